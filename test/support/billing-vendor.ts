import type { Json, JsonObject } from '../../src/core/json.ts'
import { countEachDigit, VENDOR_READING } from './honest-vendor.ts'
import type { Reply, UpstreamRequest } from './upstream.ts'

/** What one request costs by the documents of the vendor. */
export interface VendorBill {
  readonly input: number
  /** Part of `input` that is written to the prompt cache, by the multiple of the input price. */
  readonly cacheWrite: { readonly tokens: number; readonly multiple: 1 | 1.25 | 2 }
  readonly output: number
  /** Multiple of the list price, such as 2 for the priority tier. */
  readonly multiple: number
}

export interface VendorRules {
  readonly maxOutputTokens: number
}

/** Names that the vendor reads in any spelling, at the top of the body and in `extra_body` and `generationConfig`. */
const COUNTS = ['n', 'best_of', 'num_completions', 'num_return_sequences', 'candidateCount']
const LIMITS = ['max_tokens', 'max_completion_tokens', 'max_output_tokens', 'max_new_tokens', 'maxOutputTokens']
const READS = [
  'data_sources',
  'documents',
  'cached_content',
  'cachedContent',
  'web_search_options',
  'search_parameters',
  'enable_search',
  'mcp_servers',
  'container',
  'conversation',
  'url_context',
  'google_search',
  'retrieval',
  'plugins',
  'assistant_id',
  'deep_mode',
  'page',
]

const spelling = (name: string): string => name.toLowerCase().replace(/[_-]/g, '')

/** Calls `visit` with every field that the vendor reads, except the conversation. */
function eachSwitch(body: JsonObject, visit: (name: string, value: Json) => void): void {
  for (const [name, value] of Object.entries(body)) {
    if (value === undefined || value === null || value === false) continue
    if (['extrabody', 'generationconfig'].includes(spelling(name))) eachSwitch(value as JsonObject, visit)
    else visit(spelling(name), value)
  }
}

function isOneOf(names: readonly string[], name: string): boolean {
  return names.some((known) => spelling(known) === name)
}

/** Returns the bill of a request whose output is as long as the vendor allows. */
export function vendorBillOf(body: JsonObject, { maxOutputTokens }: VendorRules): VendorBill {
  const text = JSON.stringify(body)
  let [generated, limit, thinking, rejected, multiple] = [1, 0, 0, 0, 1]
  let isReading = /"web_search|"file_id"|"https:\/\/pages\.example/.test(text)
  let isCompacting = false
  eachSwitch(body, (name, value) => {
    if (isOneOf(COUNTS, name)) generated = Math.max(generated, Number(value))
    if (isOneOf(LIMITS, name)) limit = Math.max(limit, Math.min(maxOutputTokens, Number(value)))
    if (name === 'thinkingbudget') thinking = Math.min(maxOutputTokens, Number(value))
    if (name === 'enablethinking' && body['thinking_budget'] === undefined) thinking = maxOutputTokens
    if (name === 'prediction') rejected = countEachDigit(String((value as JsonObject)['content']))
    if (name === 'servicetier' && value === 'priority') multiple = 2
    if (name === 'provider' && (value as JsonObject)['order'] !== undefined) multiple = 3
    if (name === 'contextmanagement') isCompacting = JSON.stringify(value).includes('compact')
    isReading ||= isOneOf(READS, name)
  })
  const input = (countEachDigit(text) + (isReading ? VENDOR_READING : 0)) * (isCompacting ? 2 : 1)
  const summary = isCompacting ? maxOutputTokens : 0
  const cacheMultiple = text.includes('"ttl":"1h"') ? 2 : text.includes('"ephemeral"') ? 1.25 : 1
  return {
    input,
    cacheWrite: { tokens: cacheMultiple === 1 ? 0 : input, multiple: cacheMultiple },
    output: ((limit === 0 ? maxOutputTokens : limit) + thinking + rejected) * generated + summary,
    multiple,
  }
}

/** Writes a bill as the usage of a complete response. */
export function billedReply({ body, path, stream }: UpstreamRequest, bill: VendorBill): Reply {
  const { input, output, cacheWrite } = bill
  if (path.includes('/count_tokens')) return { kind: 'json', value: { input_tokens: input } }
  const model = String(body['model'])
  if (path.includes('generateContent') || path.includes('GenerateContent')) {
    const usageMetadata = { promptTokenCount: input, candidatesTokenCount: output, totalTokenCount: input + output }
    const candidates = [{ content: { role: 'model', parts: [{ text: 'Yes.' }] }, finishReason: 'STOP', index: 0 }]
    return { kind: 'json', value: { candidates, usageMetadata, modelVersion: model, responseId: 'r' } }
  }
  if (path.endsWith('/responses')) {
    const content = [{ type: 'output_text', text: 'Yes.', annotations: [] }]
    const message = { type: 'message', id: 'msg_1', role: 'assistant', status: 'completed', content }
    const usage = { input_tokens: input, output_tokens: output, total_tokens: input + output }
    return {
      kind: 'json',
      value: { id: 'resp_1', object: 'response', status: 'completed', model, output: [message], usage },
    }
  }
  if (path.endsWith('/messages')) {
    const uncached = input - cacheWrite.tokens
    const isHour = cacheWrite.multiple === 2
    const cache_creation = {
      ephemeral_5m_input_tokens: isHour ? 0 : cacheWrite.tokens,
      ephemeral_1h_input_tokens: isHour ? cacheWrite.tokens : 0,
    }
    const usage = { input_tokens: uncached, cache_creation_input_tokens: cacheWrite.tokens, cache_creation }
    return { text: stream ? ['Yes.'] : 'Yes.', usage: { ...usage, output_tokens: output } }
  }
  return {
    text: stream ? ['Yes.'] : 'Yes.',
    usage: { prompt_tokens: input, completion_tokens: output, total_tokens: input + output },
  }
}
