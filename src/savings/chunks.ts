import type { Pause } from '../core/pause.ts'
import type { SelectionTools } from './selection.ts'
import { tellUnit } from './summary.ts'
import type { Unit } from './turns.ts'

/** A stretch of the conversation that is summarized by itself. */
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

export interface ChunkLimits {
  /** Maximum size of a chunk in tokens. */
  readonly size: number
  /** Maximum number of chunks: with one more of them the rest of the units is not read. @default unlimited */
  readonly most?: number
}

/** Cuts units into chunks, at their borders; a longer unit at its lines. */
export async function chunkUnits(
  units: readonly Unit[],
  { size, most = Number.POSITIVE_INFINITY }: ChunkLimits,
  { meter, pause }: Pick<SelectionTools, 'meter' | 'pause'>,
): Promise<Chunks> {
  const { estimate } = meter.tokenizer
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
    if (full.length > most) break
    const pieces = await piecesOf(tellUnit(unit, 'whole'), size, { estimate, pause })
    for (const [at, piece] of pieces.entries()) {
      await pause()
      const length = estimate(piece) + 1
      if (tokens + length > size) close()
      texts.push(piece)
      tokens += length
      if (at === pieces.length - 1) held.push(unit)
    }
  }
  return { full, rest: held }
}

/** An estimate is at least an eighth of the bytes: a text above this many times the size is not estimated whole. */
const SURELY_LONGER = 8

async function piecesOf(
  text: string,
  size: number,
  { estimate, pause }: { readonly estimate: (text: string) => number; readonly pause: Pause },
): Promise<string[]> {
  if (text.length < size * SURELY_LONGER && estimate(text) < size) return [text]
  const pieces: string[] = []
  let held: string[] = []
  let tokens = 0
  for (const line of text.split(/(?<=\n)/).flatMap((one) => shortLines(one, size))) {
    const due = pause()
    if (due !== undefined) await due
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
