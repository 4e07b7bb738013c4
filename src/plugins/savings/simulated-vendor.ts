import { NO_USAGE, type Usage } from '../../core/money.ts'
import type { Meter, Model } from '../../core/ports.ts'
import { fingerprintOf, type Message, type Part, type Prompt, type UpstreamDialect } from '../../core/prompt.ts'
import { RecentMap } from '../../core/recent-map.ts'
import { hashInputOfMessage } from './conversation.ts'
import { cacheScopeOf, UPSTREAM_CACHE_MS } from './memory.ts'

/** A request as a vendor receives it. */
export interface VendorRequest {
  readonly prompt: Prompt
  readonly model: Model
  readonly dialect: UpstreamDialect
  /** In milliseconds since 1970. */
  readonly now: number
}

/** Simulates the prompt cache of a vendor, to predict the usage that it reports. */
export interface SimulatedVendor {
  /** Counts the prompt exactly, and updates the cache. The output is not counted. */
  receive(request: VendorRequest): Promise<Usage>
}

type Ttl = '5m' | '1h'

interface CachedPrefix {
  readonly until: number
  readonly ttl: Ttl
}

const TTL_MS: Readonly<Record<Ttl, number>> = { '5m': UPSTREAM_CACHE_MS, '1h': 60 * 60 * 1000 }
/** Vendors cache no shorter prefix. */
const MIN_PREFIX_TOKENS = 1024
const MAX_PREFIXES = 200_000

/**
 * A vendor of the messages format caches the prefixes that end with a marker. Any other vendor caches each prefix for five
 * minutes. Prefixes end between messages. Reading a prefix renews it.
 */
export function createSimulatedVendor(meter: Pick<Meter, 'countPrompt'>): SimulatedVendor {
  const cached = new RecentMap<number, CachedPrefix>(MAX_PREFIXES)
  return {
    receive: async ({ prompt, model, dialect, now }) => {
      const total = await meter.countPrompt(prompt)
      const { input, cacheRead = input, cacheWrite } = model.price
      if (cacheRead >= input) return { ...NO_USAGE, inputTokens: total }
      const tokensUpTo = (end: number): Promise<number> =>
        end === prompt.messages.length
          ? Promise.resolve(total)
          : meter.countPrompt({ ...prompt, messages: prompt.messages.slice(0, end) })
      const keys = prefixKeysOf(prompt.messages, cacheScopeOf(model, prompt))
      const marks = dialect === 'messages' ? marksOf(prompt) : keys.map((): Ttl => '5m')
      const keep = (end: number, ttl: Ttl): void => {
        const key = keys[end]
        if (key === undefined) return
        cached.set(key, { ttl, until: Math.max(cached.get(key)?.until ?? 0, now + TTL_MS[ttl]) })
      }
      const isMarked = marks.some((ttl) => ttl !== undefined)
      const readEnd = isMarked ? keys.findLastIndex((key) => (cached.get(key)?.until ?? 0) >= now) : -1
      const readTokens = readEnd < 0 ? 0 : await tokensUpTo(readEnd)
      const cacheReadTokens = readTokens < MIN_PREFIX_TOKENS ? 0 : readTokens
      if (readEnd >= 0) keep(readEnd, cached.get(keys[readEnd] ?? 0)?.ttl ?? '5m')
      const writes: Record<Ttl, number> = { '5m': 0, '1h': 0 }
      let writtenTokens = cacheReadTokens
      for (const [end, ttl] of marks.entries()) {
        if (ttl === undefined) continue
        keep(end, ttl)
        // In between, an automatic cache writes the same tokens.
        if (dialect !== 'messages' && end < prompt.messages.length) continue
        const tokens = await tokensUpTo(end)
        if (tokens < MIN_PREFIX_TOKENS) continue
        writes[ttl] += Math.max(0, tokens - writtenTokens)
        writtenTokens = Math.max(writtenTokens, tokens)
      }
      const cacheWriteTokens = cacheWrite === undefined ? 0 : writes['5m']
      const cacheWrite1hTokens = cacheWrite === undefined ? 0 : writes['1h']
      const inputTokens = total - cacheReadTokens - cacheWriteTokens - cacheWrite1hTokens
      return { ...NO_USAGE, inputTokens, cacheReadTokens, cacheWriteTokens, cacheWrite1hTokens }
    },
  }
}

/** Returns a key for each prefix of the messages, beginning with the empty one. */
export function prefixKeysOf(messages: readonly Message[], scope: string = ''): readonly number[] {
  let key = fingerprintOf(scope)
  return [key, ...messages.map((message) => (key = fingerprintOf(`${key} ${hashOfMessage(message)}`)))]
}

const hashes = new WeakMap<Message, number>()

function hashOfMessage(message: Message): number {
  let hash = hashes.get(message)
  if (hash === undefined) hashes.set(message, (hash = fingerprintOf(hashInputOfMessage(message))))
  return hash
}

/** Returns the marker at the end of each prefix. */
function marksOf({ native, tools, messages }: Prompt): readonly (Ttl | undefined)[] {
  const marks = [
    tools.map(({ native: tool }) => ttlOf(tool.value['cache_control'])).findLast((ttl) => ttl !== undefined),
    ...messages.map(({ parts }) => parts.map(markOfPart).findLast((ttl) => ttl !== undefined)),
  ]
  const ofPrompt = ttlOf(native.value['cache_control'])
  return ofPrompt === undefined ? marks : [...marks.slice(0, -1), ofPrompt]
}

function markOfPart(part: Part): Ttl | undefined {
  const own = ttlOf(part.native?.value['cache_control'])
  if (own !== undefined || part.type !== 'tool-result') return own
  return part.content.map(markOfPart).findLast((ttl) => ttl !== undefined)
}

function ttlOf(marker: unknown): Ttl | undefined {
  if (typeof marker !== 'object' || marker === null) return undefined
  return 'ttl' in marker && marker.ttl === '1h' ? '1h' : '5m'
}
