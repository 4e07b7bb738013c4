/** The share of a text's runs of four words that must be found for the text to count as kept. */
const KEPT_SHARE = 0.8
const RUN = 4

/** The share of the needed texts that is in a prompt. No language model is involved. */
export interface Haystack {
  keeps(text: string): boolean
}

export function createHaystack(texts: readonly string[]): Haystack {
  const all = folded(texts.join('\n\n'))
  let runs: Set<string> | undefined
  return {
    keeps(text) {
      const wanted = folded(text)
      if (wanted === '' || all.includes(wanted)) return true
      const needed = runsOf(wanted)
      if (needed.length < 2) return false
      const present = (runs ??= new Set(runsOf(all)))
      return needed.filter((run) => present.has(run)).length / needed.length >= KEPT_SHARE
    },
  }
}

function folded(text: string): string {
  return text.toLowerCase().replace(/\s+/g, ' ').trim()
}

function runsOf(text: string): string[] {
  const words = text.match(/[\p{L}\p{N}_./:%$#@-]+/gu) ?? []
  return words.slice(0, Math.max(0, words.length - RUN + 1)).map((_, at) => words.slice(at, at + RUN).join(' '))
}

/** Mean of what is defined, in percent. */
export function percent(shares: readonly (number | undefined)[]): number {
  const known = shares.filter((share) => share !== undefined)
  return known.length === 0 ? Number.NaN : (100 * known.reduce((sum, share) => sum + share, 0)) / known.length
}

export function shareOf<item>(items: readonly item[], holds: (item: item) => boolean): number | undefined {
  return items.length === 0 ? undefined : items.filter(holds).length / items.length
}
