import { textOfMessage } from '../../src/core/messages.ts'
import { type Prompt } from '../../src/core/prompt.ts'
import { meter } from './lab.ts'

/** Prices of an upstream's prompt cache, as multiples of the input price. */
export interface CacheTable {
  readonly name: string
  readonly read: number
  readonly write: number
}

export const CACHE_TABLES: readonly CacheTable[] = [
  { name: 'read 0.1, write 1.25', read: 0.1, write: 1.25 },
  { name: 'read 0.25, write 1', read: 0.25, write: 1 },
  { name: 'read 0.1, write 2', read: 0.1, write: 2 },
  { name: 'no cache', read: 1, write: 1 },
]

/** Time for which an upstream caches a prefix after its last use. */
const CACHE_MS = 5 * 60 * 1000

/** Simulates an upstream that caches every prefix until five minutes after its last use. */
export function createUpstreamCache({ read, write }: CacheTable): {
  readonly costOf: (sent: Prompt, now: number) => Promise<number>
} {
  let known: { readonly texts: readonly string[]; readonly at: number }[] = []
  return {
    /** Returns the cost in tokens at list price: the longest cached prefix at the read price, the rest at the write price. */
    async costOf(sent, now) {
      const texts = sent.messages.map(textOfMessage)
      known = known.filter(({ at }) => now - at <= CACHE_MS)
      const same = Math.max(0, ...known.map((one) => sharedPrefixLength(one.texts, texts)))
      known = [...known.filter((one) => sharedPrefixLength(one.texts, texts) < one.texts.length), { texts, at: now }]
      let cost = 0
      for (const [at, message] of sent.messages.entries()) {
        cost += (await meter.countMessage(message)) * (at < same ? read : write)
      }
      return cost
    },
  }
}

function sharedPrefixLength(one: readonly string[], other: readonly string[]): number {
  const differs = one.findIndex((text, at) => text !== other[at])
  return differs === -1 ? one.length : differs
}
