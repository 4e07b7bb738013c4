/** A text counts as kept if at least this share of its four-word sequences is found. */
const KEPT_SHARE = 0.8
const SEQUENCE_WORDS = 4

/** Checks whether texts are contained in a prompt. No language model is involved. */
export interface Haystack {
  keeps(text: string): boolean
}

export function createHaystack(texts: readonly string[]): Haystack {
  const all = normalized(texts.join('\n\n'))
  let sequences: Set<string> | undefined
  return {
    keeps(text) {
      const wanted = normalized(text)
      if (wanted === '' || all.includes(wanted)) return true
      const needed = sequencesOf(wanted)
      if (needed.length < 2) return false
      const present = (sequences ??= new Set(sequencesOf(all)))
      return needed.filter((sequence) => present.has(sequence)).length / needed.length >= KEPT_SHARE
    },
  }
}

function normalized(text: string): string {
  return text.toLowerCase().replace(/\s+/g, ' ').trim()
}

function sequencesOf(text: string): string[] {
  const words = text.match(/[\p{L}\p{N}_./:%$#@-]+/gu) ?? []
  return words
    .slice(0, Math.max(0, words.length - SEQUENCE_WORDS + 1))
    .map((_, at) => words.slice(at, at + SEQUENCE_WORDS).join(' '))
}

/** Returns the mean of the defined shares in percent, or NaN if there are none. */
export function percent(shares: readonly (number | undefined)[]): number {
  const known = shares.filter((share) => share !== undefined)
  return known.length === 0 ? Number.NaN : (100 * known.reduce((sum, share) => sum + share, 0)) / known.length
}

export function shareOf<item>(items: readonly item[], holds: (item: item) => boolean): number | undefined {
  return items.length === 0 ? undefined : items.filter(holds).length / items.length
}
