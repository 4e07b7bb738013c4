import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { costOverTurns } from './costs.ts'
import { CACHE_TABLES } from './upstream-cache.ts'
import { meter, newWaterfall, NO_STEERING, smallModelOf } from './lab.ts'
import { lineChart, type Chart, type Series } from './line-chart.ts'
import { longChatCases } from './long-chat.ts'
import { cutMiddle } from './middle.ts'
import { measureCases, measureRecall, selectionAt, through, type Method } from './recall.ts'

/** Draws one plot per tier for the docs: the kept share by prompt size, or the cost by turn. */
const { values } = parseArgs({
  options: {
    data: { type: 'string', default: '../shared/data' },
    step: { type: 'string', default: '2' },
    out: { type: 'string', default: 'docs/tiers/figures' },
  },
})
const root = values.data
const step = Number(values.step)
const naiveAt =
  (cap: number): Method =>
  (prompt) =>
    cutMiddle(prompt, cap, meter)

async function seriesOf(
  name: string,
  caps: readonly number[],
  share: (cap: number) => Promise<number>,
): Promise<Series> {
  const points: [number, number][] = []
  for (const cap of caps) points.push([cap, await share(cap)])
  return { name, points }
}

function write(file: string, chart: Chart): void {
  mkdirSync(values.out, { recursive: true })
  writeFileSync(join(values.out, `${file}.svg`), lineChart(chart))
  for (const { name, points } of chart.series) {
    process.stderr.write(`${file}, ${name}: ${points.map(([x, y]) => `${x} ${y.toFixed(1)}`).join(', ')}\n`)
  }
}

const vanishing = { ...NO_STEERING, vanishing: true }
const recallOf = async (kind: string, method: Method): Promise<number> => {
  const { evidence, needed } = await measureRecall({ root, kind, step }, method)
  return Number.isNaN(evidence) ? needed : evidence
}
const tier2At = (minTarget: number): Method =>
  through(
    () => newWaterfall({ vanishing: { minTargetTokens: minTarget } }),
    () => ({ steering: vanishing }),
  )
const small = [1200, 2500, 4096, 8192, 16_384]
write('2-vanishing-context', {
  title: 'Tier 2: passages of follow-up questions that are kept',
  x: 'tokens of the prompt',
  y: '%',
  series: [
    await seriesOf('tier 2', small, (cap) => recallOf('mtragun', tier2At(cap))),
    await seriesOf('middle cut out', small, (cap) => recallOf('mtragun', naiveAt(cap))),
  ],
})

const caps = [4096, 8192, 16_384, 32_768, 65_536]
write('5-savings-slider', {
  title: 'Tier 5: kept share of the needed content',
  x: 'tokens of the prompt',
  y: '%',
  series: [
    await seriesOf('agent sessions', caps, (cap) => recallOf('specstory', selectionAt(cap))),
    await seriesOf('middle cut out', caps, (cap) => recallOf('specstory', naiveAt(cap))),
    await seriesOf('earlier answers', caps, async (cap) => {
      return (await measureCases(longChatCases(root, 'answers'), { cap }, selectionAt(cap))).evidence
    }),
  ],
})

const [table] = CACHE_TABLES
if (table !== undefined) {
  const options = { root, kind: 'specstory', table, secondsBetween: 30 }
  const costs = await costOverTurns(options, 13)
  write('4-family-lock', {
    title: 'Tier 4: cost of an agent session so far (reads 0.1, writes 1.25)',
    x: 'turn',
    y: 'tokens at list price',
    series: [
      { name: 'automatic', points: costs.map(({ paid }, at) => [at + 1, paid]) },
      { name: 'everything', points: costs.map(({ plain }, at) => [at + 1, plain]) },
    ],
  })
}

const recursive = { ...NO_STEERING, recursive: true }
const controllers = ['lazy', 'failing']
const shares = controllers.map(async (kind): Promise<Series> => {
  const method = through(newWaterfall, () => ({ steering: recursive, small: smallModelOf(kind).small }))
  const { tokensAfter, evidence } = await measureRecall({ root, kind: 'mtragun', step }, method)
  return {
    name: kind === 'lazy' ? 'with a small model' : 'by extract',
    points: [
      [tokensAfter, 0],
      [tokensAfter, evidence],
    ],
  }
})
const naive = seriesOf('middle cut out', [4096, 8192, 16_384, 20_480], (cap) => recallOf('mtragun', naiveAt(cap)))
write('3-recursive-summaries', {
  title: 'Tier 3: passages of follow-up questions that are kept verbatim',
  x: 'tokens of the prompt (tier 3 chooses its own size)',
  y: '%',
  series: await Promise.all([...shares, naive]),
})
