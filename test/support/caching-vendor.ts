import type { Json, JsonObject } from '../../src/core/json.ts'
import type { Reply, UpstreamRequest } from './upstream.ts'

/** Dollars per million tokens. */
interface VendorPrice {
  readonly input: number
  readonly output: number
  readonly cacheRead: number
  readonly cacheWrite?: number
  readonly cacheWrite1h?: number
}

/**
 * A vendor with a prompt cache. In the chat format, it caches every prompt for five minutes, as OpenAI does. In the
 * messages format, it caches the prefixes that a marker ends, for five minutes or one hour, as Anthropic does. A token
 * is four bytes of JSON.
 */
export class CachingVendor {
  /** What the vendor charged, in dollars. */
  charge = 0
  readonly #price: VendorPrice
  readonly #now: () => number
  /** The time until which each prefix is cached. */
  readonly #cachedUntil = new Map<string, number>()

  constructor(price: VendorPrice, now: () => number) {
    this.#price = price
    this.#now = now
  }

  readonly reply = ({ dialect, body }: Pick<UpstreamRequest, 'dialect' | 'body'>): Reply => {
    const blocks = blocksOf(body)
    const marks = dialect === 'openai' ? [{ end: blocks.length, ttl: '5m' }] : marksOf(blocks)
    const text = JSON.stringify(withoutMarkers(blocks))
    const prefixes = blocks.map((_, index) => JSON.stringify(withoutMarkers(blocks.slice(0, index + 1))))
    const now = this.#now()
    const readBlocks = prefixes.findLastIndex((prefix) => (this.#cachedUntil.get(prefix) ?? 0) > now) + 1
    const isReadable = marks.length > 0
    const lastRead = isReadable ? prefixes[readBlocks - 1] : undefined
    const read = tokensOf(lastRead)
    if (lastRead !== undefined) this.#keep(lastRead, now + MINUTES['5m'] * 60_000)
    let written = read
    const writes = { '5m': 0, '1h': 0 }
    for (const { end, ttl } of marks) {
      const prefix = prefixes[end - 1] ?? ''
      const duration = ttl === '1h' ? '1h' : '5m'
      this.#keep(prefix, now + MINUTES[duration] * 60_000)
      writes[duration] += Math.max(0, tokensOf(prefix) - written)
      written = Math.max(written, tokensOf(prefix))
    }
    const prompt = tokensOf(text)
    const output = 40
    this.#charge({ input: prompt - read - writes['5m'] - writes['1h'], read, writes, output })
    return { text: 'word '.repeat(output), usage: usageOf(dialect, { prompt, read, writes, output }) }
  }

  #keep(prefix: string, until: number): void {
    this.#cachedUntil.set(prefix, Math.max(this.#cachedUntil.get(prefix) ?? 0, until))
  }

  #charge(tokens: {
    readonly input: number
    readonly read: number
    readonly writes: Writes
    readonly output: number
  }): void {
    const { input, output, cacheRead, cacheWrite = input, cacheWrite1h = cacheWrite } = this.#price
    const prompt =
      tokens.input * input +
      tokens.read * cacheRead +
      tokens.writes['5m'] * cacheWrite +
      tokens.writes['1h'] * cacheWrite1h
    this.charge += (prompt + tokens.output * output) / 1e6
  }
}

type Writes = Readonly<Record<'5m' | '1h', number>>

const MINUTES: Writes = { '5m': 5, '1h': 60 }

interface Counted {
  readonly prompt: number
  readonly read: number
  readonly writes: Writes
  readonly output: number
}

function usageOf(dialect: string, { prompt, read, writes, output }: Counted): JsonObject {
  const written = writes['5m'] + writes['1h']
  if (dialect === 'openai') {
    return {
      prompt_tokens: prompt,
      completion_tokens: output,
      total_tokens: prompt + output,
      prompt_tokens_details: { cached_tokens: read, cache_write_tokens: written },
    }
  }
  return {
    input_tokens: prompt - read - written,
    output_tokens: output,
    cache_read_input_tokens: read,
    cache_creation_input_tokens: written,
    cache_creation: { ephemeral_5m_input_tokens: writes['5m'], ephemeral_1h_input_tokens: writes['1h'] },
  }
}

function tokensOf(text = ''): number {
  return Math.ceil(text.length / 4)
}

/** Returns the content blocks in the order in which the model reads them: system prompt, then messages. */
function blocksOf(body: JsonObject): readonly JsonObject[] {
  const messages = [
    ...(body['system'] === undefined ? [] : [{ role: 'system', content: body['system'] }]),
    ...((body['messages'] ?? []) as readonly JsonObject[]),
  ]
  return messages.flatMap(({ role, content }) => {
    const list: readonly Json[] = Array.isArray(content) ? content : [{ type: 'text', text: content ?? null }]
    return list.map((block) => ({ role: role ?? null, ...(block as JsonObject) }))
  })
}

function marksOf(blocks: readonly JsonObject[]): readonly { readonly end: number; readonly ttl: string }[] {
  return blocks.flatMap(({ cache_control: marker }, index) => {
    if (marker === undefined) return []
    return [{ end: index + 1, ttl: String((marker as JsonObject)['ttl'] ?? '5m') }]
  })
}

function withoutMarkers(blocks: readonly JsonObject[]): readonly JsonObject[] {
  return blocks.map((block) => Object.fromEntries(Object.entries(block).filter(([name]) => name !== 'cache_control')))
}
