import { createHash } from 'node:crypto'
import type { Json, JsonObject } from '../../src/core/json.ts'
import type { Reply, UpstreamRequest } from './upstream.ts'

/** Dollars per million tokens. */
export interface VendorPrice {
  readonly input: number
  readonly output: number
  readonly cacheRead: number
  readonly cacheWrite?: number
  readonly cacheWrite1h?: number
}

/** Minimum length of a cached prefix, in tokens. */
const MIN_PREFIX_TOKENS = 1024
const OUTPUT_TOKENS = 40

/**
 * A vendor with a prompt cache. In the chat format, it caches every prompt for five minutes, as OpenAI does. In the
 * messages format, it caches the prefixes that a marker ends, for five minutes or one hour, as Anthropic does. A cached
 * prefix is kept for that time again when it is read. A token is four characters of JSON.
 */
export class CachingVendor {
  /** What the vendor charged, in dollars. */
  charge = 0
  readonly #price: VendorPrice
  readonly #now: () => number
  /** The time until which each prefix is cached, and its time to live. */
  readonly #cached = new Map<string, { readonly until: number; readonly ttl: Ttl }>()

  constructor(price: VendorPrice, now: () => number) {
    this.#price = price
    this.#now = now
  }

  readonly reply = ({ dialect, body }: Pick<UpstreamRequest, 'dialect' | 'body'>): Reply => {
    const usage = this.receive({ dialect, body })
    const isStream = body['stream'] === true
    const text = isStream ? Array<string>(OUTPUT_TOKENS).fill('word ') : 'word '.repeat(OUTPUT_TOKENS)
    return { text, usage: usageOf(dialect, usage) }
  }

  /** Charges a request and updates the cache, without a response. */
  receive({ dialect, body }: Pick<UpstreamRequest, 'dialect' | 'body'>): Counted {
    const prefixes = prefixesOf(blocksOf(body), scopeOf(body))
    const isAutomatic = dialect === 'chat'
    const marked = prefixes.filter(
      ({ ttl, tokens }) => (isAutomatic || ttl !== undefined) && tokens >= MIN_PREFIX_TOKENS,
    )
    const now = this.#now()
    const isCached = ({ key }: Prefix): boolean => (this.#cached.get(key)?.until ?? 0) > now
    const read = marked.length === 0 ? undefined : prefixes.findLast(isCached)
    if (read !== undefined) this.#keep(read, this.#cached.get(read.key)?.ttl ?? '5m')
    let written = read?.tokens ?? 0
    const writes = { '5m': 0, '1h': 0 }
    for (const prefix of marked) {
      const { tokens, ttl = '5m' } = prefix
      this.#keep(prefix, ttl)
      writes[ttl] += Math.max(0, tokens - written)
      written = Math.max(written, tokens)
    }
    const counted = { prompt: prefixes.at(-1)?.tokens ?? 0, read: read?.tokens ?? 0, writes, output: OUTPUT_TOKENS }
    this.#charge(counted)
    return counted
  }

  #keep({ key }: Prefix, ttl: Ttl): void {
    const until = Math.max(this.#cached.get(key)?.until ?? 0, this.#now() + MINUTES[ttl] * 60_000)
    this.#cached.set(key, { until, ttl })
  }

  #charge({ prompt, read, writes, output }: Counted): void {
    const price = this.#price
    const { cacheWrite = price.input, cacheWrite1h = cacheWrite } = price
    const cost =
      (prompt - read - writes['5m'] - writes['1h']) * price.input +
      read * price.cacheRead +
      writes['5m'] * cacheWrite +
      writes['1h'] * cacheWrite1h +
      output * price.output
    this.charge += cost / 1e6
  }
}

type Ttl = '5m' | '1h'
type Writes = Readonly<Record<Ttl, number>>

const MINUTES: Writes = { '5m': 5, '1h': 60 }

export interface Counted {
  readonly prompt: number
  readonly read: number
  readonly writes: Writes
  readonly output: number
}

function usageOf(dialect: string, { prompt, read, writes, output }: Counted): JsonObject {
  const written = writes['5m'] + writes['1h']
  if (dialect === 'chat') {
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

/** The prompt up to the end of a block. */
interface Prefix {
  readonly key: string
  readonly tokens: number
  /** Set if a marker ends the prefix. */
  readonly ttl: Ttl | undefined
}

/** Fields that are part of the prompt as the model reads it, or that choose the cache. */
function scopeOf({ response_format, tool_choice, thinking, prompt_cache_key }: JsonObject): string {
  return JSON.stringify([response_format, tool_choice, thinking, prompt_cache_key])
}

function prefixesOf(blocks: readonly JsonObject[], scope: string): readonly Prefix[] {
  let key = scope
  let length = 0
  return blocks.map(({ cache_control: marker, ...block }) => {
    const text = JSON.stringify(block)
    key = createHash('sha1').update(`${key}\n${text}`).digest('base64')
    length += text.length
    const ttl = marker === undefined ? undefined : (marker as JsonObject)['ttl'] === '1h' ? '1h' : '5m'
    return { key, tokens: Math.ceil(length / 4), ttl }
  })
}

/** Returns the content blocks in the order in which the model reads them: tools, system prompt, messages. */
function blocksOf(body: JsonObject): readonly JsonObject[] {
  const tools = (body['tools'] ?? []) as readonly JsonObject[]
  const messages = [
    ...(body['system'] === undefined ? [] : [{ role: 'system', content: body['system'] }]),
    ...((body['messages'] ?? []) as readonly JsonObject[]),
  ]
  return [
    ...tools,
    ...messages.flatMap(({ role = null, content = null, ...others }) => {
      const list: readonly Json[] = Array.isArray(content) ? content : [{ type: 'text', text: content }]
      const parts = list.map((block) => ({ role, ...(block as JsonObject) }))
      return Object.keys(others).length === 0 ? parts : [...parts, { role, ...others }]
    }),
  ]
}
