/** One line of a chart. */
export interface Series {
  readonly name: string
  readonly points: readonly (readonly [number, number])[]
}

export interface Chart {
  readonly title: string
  readonly x: string
  readonly y: string
  readonly series: readonly Series[]
}

const WIDTH = 640
const HEIGHT = 360
const LEFT = 64
const BOTTOM = 48
const TOP = 40
const RIGHT = 150
const COLORS = ['#1f6feb', '#8b949e', '#d29922', '#2da44e']
const TICKS = 4

/** Returns a chart as SVG. */
export function lineChart({ title, x, y, series }: Chart): string {
  const points = series.flatMap((one) => one.points)
  const maxX = Math.max(...points.map(([at]) => at))
  const maxY = Math.max(...points.map(([, value]) => value))
  const xOf = (at: number): number => LEFT + (at / maxX) * (WIDTH - LEFT - RIGHT)
  const yOf = (value: number): number => HEIGHT - BOTTOM - (value / maxY) * (HEIGHT - TOP - BOTTOM)
  const text = (left: number, top: number, words: string, more = ''): string =>
    `<text x="${left.toFixed(0)}" y="${top.toFixed(0)}" ${more}>${words}</text>`
  const ticks = Array.from({ length: TICKS + 1 }, (_, at) => at / TICKS)
  const grid = ticks.flatMap((share) => [
    `<line x1="${LEFT}" x2="${WIDTH - RIGHT}" y1="${yOf(share * maxY).toFixed(0)}" y2="${yOf(share * maxY).toFixed(0)}" stroke="#d0d7de"/>`,
    text(LEFT - 8, yOf(share * maxY) + 4, shortened(share * maxY), 'text-anchor="end"'),
    text(xOf(share * maxX), HEIGHT - BOTTOM + 18, shortened(share * maxX), 'text-anchor="middle"'),
  ])
  const lines = series.flatMap((one, at) => {
    const color = COLORS[at % COLORS.length] ?? '#000'
    const path = one.points.map(([px, py]) => `${xOf(px).toFixed(1)},${yOf(py).toFixed(1)}`).join(' ')
    const label = text(WIDTH - RIGHT + 12, TOP + 16 + at * 20, one.name, `fill="${color}"`)
    return [`<polyline points="${path}" fill="none" stroke="${color}" stroke-width="2"/>`, label]
  })
  const labels = [
    text(LEFT, 20, title, 'font-weight="bold"'),
    text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 10, x, 'text-anchor="middle"'),
    text(LEFT, TOP - 6, y),
  ]
  const open = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${HEIGHT}" font-family="sans-serif" font-size="12">`
  return [open, '<rect width="100%" height="100%" fill="#fff"/>', ...grid, ...lines, ...labels, '</svg>', ''].join('\n')
}

function shortened(value: number): string {
  return value >= 10_000 ? `${Math.round(value / 1000)}k` : String(Math.round(value))
}
