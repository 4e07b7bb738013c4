import { tellUnit } from './summary.ts'
import type { Unit } from './turns.ts'

/** A stretch of the conversation that is summarised by itself. */
export interface Chunk {
  readonly text: string
  /** The units that end in it. */
  readonly units: readonly Unit[]
}

export interface Chunks {
  /** Counted from the oldest end, so that they are the same on the next turn; every old word is in exactly one. */
  readonly full: readonly Chunk[]
  /** What does not fill a chunk yet: it stays as it is. */
  readonly rest: readonly Unit[]
}

/** Cuts units into chunks of at most `size` tokens, at their borders; a longer unit at its lines. */
export function chunkUnits(units: readonly Unit[], size: number, estimate: (text: string) => number): Chunks {
  const full: Chunk[] = []
  let texts: string[] = []
  let held: Unit[] = []
  let tokens = 0
  const close = (): void => {
    if (texts.length > 0) full.push({ text: texts.join('\n'), units: held })
    texts = []
    held = []
    tokens = 0
  }
  for (const unit of units) {
    const text = tellUnit(unit, 'whole')
    const pieces = piecesOf(text, size, estimate)
    for (const [at, piece] of pieces.entries()) {
      const length = estimate(piece) + 1
      if (tokens + length > size) close()
      texts.push(piece)
      tokens += length
      if (at === pieces.length - 1) held.push(unit)
    }
  }
  return { full, rest: held }
}

function piecesOf(text: string, size: number, estimate: (text: string) => number): string[] {
  if (estimate(text) < size) return [text]
  const pieces: string[] = []
  let held: string[] = []
  let tokens = 0
  for (const line of text.split(/(?<=\n)/).flatMap((one) => shortLines(one, size))) {
    const length = estimate(line) + 1
    if (tokens + length > size && held.length > 0) {
      pieces.push(held.join(''))
      held = []
      tokens = 0
    }
    held.push(line)
    tokens += length
  }
  if (held.length > 0) pieces.push(held.join(''))
  return pieces
}

/** No line has more tokens than bytes, so a quarter of the size in characters always fits. */
function shortLines(line: string, size: number): string[] {
  const longest = Math.max(1, Math.floor(size / 4))
  if (line.length <= longest) return [line]
  const pieces: string[] = []
  for (let at = 0; at < line.length;) {
    const end = at + longest
    const cut = line.charCodeAt(end)
    const whole = cut >= 0xdc00 && cut < 0xe000 ? end - 1 : end
    pieces.push(line.slice(at, whole))
    at = whole
  }
  return pieces
}
