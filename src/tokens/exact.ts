import type { Vocabulary } from '../core/model.ts'
import { breathe } from './breathe.ts'
import { countPiece } from './merge.ts'
import { readRanks, type Ranks } from './ranks.ts'

/** The text is read through a window, so that neither a pattern nor a merge ever sees more than this at once. */
const WINDOW = 8192
/** Pieces that end this close to the window's end might be longer in truth: the next window begins with them. */
const MARGIN = 4
/** How many UTF-16 units are counted before the event loop gets a turn. */
const SLICE = 32_768

/** The tokens of a vocabulary, and the pattern that cuts text into pieces before they are merged. */
interface Loaded {
  readonly ranks: Ranks
  readonly pattern: RegExp
}

/** Literal imports, so that bundlers find them. */
const SOURCES = {
  o200k: () => import('js-tiktoken/ranks/o200k_base'),
  cl100k: () => import('js-tiktoken/ranks/cl100k_base'),
}

/** Exact counts of tokens. Spellings of special tokens are plain text. */
export type ExactCount = (text: string, signal?: AbortSignal) => Promise<number>

/** A counter of one vocabulary, which is loaded at the first call. */
export function createExactCount(name: Vocabulary = 'o200k'): ExactCount {
  let loading: Promise<Loaded> | undefined
  let sinceBreath = 0

  const vocabularyOf = async (): Promise<Loaded> => {
    loading ??= load(name)
    try {
      return await loading
    } catch (cause) {
      loading = undefined
      throw cause
    }
  }

  return async (text, signal) => {
    signal?.throwIfAborted()
    if (text === '') return 0
    const vocabulary = await vocabularyOf()
    let tokens = 0
    let at = 0
    while (at < text.length) {
      const step = countWindow(vocabulary, text.slice(at, at + WINDOW), at + WINDOW >= text.length)
      tokens += step.tokens
      at += step.length
      sinceBreath += step.length
      if (sinceBreath < SLICE) continue
      sinceBreath = 0
      await breathe()
      signal?.throwIfAborted()
    }
    return tokens
  }
}

async function load(name: Vocabulary): Promise<Loaded> {
  const { default: source } = await SOURCES[name]()
  return { ranks: await readRanks(source.bpe_ranks), pattern: new RegExp(source.pat_str, 'gu') }
}

const scratch: Uint8Array = new Uint8Array(WINDOW * 3)

/** Counts the pieces that surely end within the window; one piece that fills it is counted cut. */
function countWindow(
  { ranks, pattern }: Loaded,
  window: string,
  last: boolean,
): { readonly tokens: number; readonly length: number } {
  const trusted = last ? window.length : window.length - MARGIN
  let tokens = 0
  let start = 0
  pattern.lastIndex = 0
  while (start < window.length && pattern.test(window)) {
    const end = pattern.lastIndex
    if (end > trusted && start > 0) return { tokens, length: start }
    tokens += countPiece(scratch, writeUtf8(window, start, end), ranks)
    start = end
  }
  return { tokens, length: window.length }
}

/** Writes text[start, end) to `scratch` as UTF-8, lone surrogates as U+FFFD, and answers the number of bytes. */
function writeUtf8(text: string, start: number, end: number): number {
  let size = 0
  for (let at = start; at < end; at++) {
    const unit = text.charCodeAt(at)
    if (unit < 0x80) {
      scratch[size++] = unit
      continue
    }
    const code = text.codePointAt(at) ?? 0
    if (code > 0xffff) at++
    size = writeCodePoint(code >= 0xd800 && code <= 0xdfff ? 0xfffd : code, size)
  }
  return size
}

function writeCodePoint(code: number, at: number): number {
  let size = at
  if (code < 0x800) {
    scratch[size++] = 0xc0 | (code >> 6)
  } else if (code < 0x10000) {
    scratch[size++] = 0xe0 | (code >> 12)
    scratch[size++] = 0x80 | ((code >> 6) & 0x3f)
  } else {
    scratch[size++] = 0xf0 | (code >> 18)
    scratch[size++] = 0x80 | ((code >> 12) & 0x3f)
    scratch[size++] = 0x80 | ((code >> 6) & 0x3f)
  }
  scratch[size++] = 0x80 | (code & 0x3f)
  return size
}
