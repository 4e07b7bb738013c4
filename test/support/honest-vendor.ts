import { countTokens } from 'gpt-tokenizer/encoding/o200k_base'
import type { Json, JsonObject } from '../../src/core/json.ts'
import type { Reply, UpstreamRequest } from './upstream.ts'

const plain = { disallowedSpecial: new Set<string>() }

/** Prompt tokens that the vendor adds for a search, a page or a file. */
export const VENDOR_READING = 150_000
/** Tokens of an image of any size. */
const IMAGE_TOKENS = 1600
const BASE64_IMAGE = /(?:data:image\/png;base64,|"data":")([A-Za-z0-9+/]{100,})/g
/** Fields of a body that make the vendor read more than the body. */
const READS_MORE = /"web_search|"mcp_servers"|"https:\/\/pages\.example|"file_id"|"enable_search":true/i

/** The fields that a count endpoint does not accept. */
const NOT_COUNTED = ['max_tokens', 'stream', 'temperature']

/** Counts a token per digit, which is more than any vocabulary with tokens of three digits does. */
export function countEachDigit(text: string): number {
  const digits = text.match(/\d/g)?.length ?? 0
  return digits + text.split(/\d+/).reduce((sum, piece) => sum + countTokens(piece, plain), 0)
}

/** Counts the texts that an o200k model reads: every string and every field name. */
function countStrings(value: Json | undefined): number {
  if (typeof value === 'string') return countTokens(value, plain)
  if (typeof value !== 'object' || value === null) return 1
  if (Array.isArray(value)) return (value as readonly Json[]).reduce((sum: number, item) => sum + countStrings(item), 0)
  return Object.entries(value as JsonObject).reduce(
    (sum, [name, field]) => sum + countTokens(name, plain) + countStrings(field),
    0,
  )
}

/** Returns the prompt tokens that the vendor bills: the body as its models read it, images, and additional reading. */
export function promptTokensOf({ path, body }: Pick<UpstreamRequest, 'path' | 'body'>): number {
  const counted = Object.fromEntries(Object.entries(body).filter(([name]) => !NOT_COUNTED.includes(name)))
  const text = JSON.stringify(counted)
  const images = text.match(BASE64_IMAGE)?.length ?? 0
  const extra = READS_MORE.test(text) ? VENDOR_READING : 0
  const words = text.replaceAll(BASE64_IMAGE, '')
  const textTokens = path.startsWith('/o200k') ? countStrings(JSON.parse(words) as JsonObject) : countEachDigit(words)
  return textTokens + images * IMAGE_TOKENS + extra
}

/** Returns the longest allowed answer, with correct usage. */
export function honestReply(request: UpstreamRequest): Reply {
  const input = promptTokensOf(request)
  const { body, dialect, path } = request
  if (path.includes('/count_tokens')) return { kind: 'json', value: { input_tokens: input } }
  if (path.endsWith('/embeddings')) return { kind: 'json', value: embeddingsOf(body, input) }
  const output = Number(body['max_tokens'] ?? body['max_completion_tokens'])
  const usage =
    dialect === 'chat'
      ? { prompt_tokens: input, completion_tokens: output, total_tokens: input + output }
      : { input_tokens: input, output_tokens: output }
  return { text: 'word '.repeat(output), usage }
}

function embeddingsOf({ input }: JsonObject, tokens: number): JsonObject {
  const count = Array.isArray(input) ? input.length : 1
  const data = Array.from({ length: count }, (_, index) => ({ object: 'embedding', index, embedding: [0.5, 0.5] }))
  return { object: 'list', model: 'vectors', data, usage: { prompt_tokens: tokens, total_tokens: tokens } }
}
