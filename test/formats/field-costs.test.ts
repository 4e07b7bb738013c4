import { describe, expect, it } from 'vitest'
import type { Json, JsonObject } from '../../src/core/json.ts'
import type { FieldCosts } from '../../src/formats/field-costs.ts'
import { chatClient } from '../../src/formats/chat/client.ts'
import { messagesClient } from '../../src/formats/messages/client.ts'
import { fieldCostsOf, findVendorWork } from '../../src/formats/prompt-checks.ts'
import { responsesClient } from '../../src/formats/responses/client.ts'
import { weighPrompt } from '../../src/tokens/estimate.ts'

const MESSAGES = [{ role: 'user', content: 'Hello?' }]
const READERS = {
  chat: (fields: JsonObject) => chatClient.readPrompt({ model: 'm', messages: MESSAGES, ...fields }),
  messages: (fields: JsonObject) =>
    messagesClient.readPrompt({ model: 'm', max_tokens: 16, messages: MESSAGES, ...fields }),
  responses: (fields: JsonObject) => responsesClient.readPrompt({ model: 'm', input: 'Hello?', ...fields }),
}

interface Costs extends FieldCosts {
  readonly work: string | undefined
}

async function costsOf(format: keyof typeof READERS, fields: JsonObject): Promise<Costs> {
  const prompt = READERS[format](fields)
  const costs = await fieldCostsOf(prompt)
  return { ...costs, work: findVendorWork(prompt, costs) }
}

const userBlocks = (...content: readonly JsonObject[]): JsonObject => ({ messages: [{ role: 'user', content }] })
const SEARCH: JsonObject = { type: 'web_search_20260318', name: 'web_search' }
const LOCAL: JsonObject = { name: 'look', input_schema: { type: 'object' } }
const addition = (definition: JsonObject): JsonObject => ({
  type: 'tool_addition',
  tool: { type: 'tool_definition', definition },
})
const namespace = (tool: JsonObject): JsonObject => ({
  tools: [{ type: 'namespace', name: 'crm', description: 'CRM', tools: [tool] }],
})

describe('vendor-side work', () => {
  it.each<[string, keyof typeof READERS, JsonObject, string | undefined]>([
    ['a search tool that a block adds', 'messages', userBlocks(addition(SEARCH)), 'messages[0]'],
    ['a local tool that a block adds', 'messages', userBlocks(addition(LOCAL)), undefined],
    ['a search tool in a group', 'responses', namespace({ type: 'web_search' }), 'tools[0]'],
    ['a function in a group', 'responses', namespace({ type: 'function', name: 'look', parameters: {} }), undefined],
    ['the pro mode of reasoning', 'responses', { reasoning: { mode: 'pro' } }, 'reasoning.mode'],
    ['the pro mode of reasoning', 'chat', { reasoning: { mode: 'pro' } }, 'reasoning.mode'],
    ['the standard mode of reasoning', 'responses', { reasoning: { mode: 'standard', effort: 'low' } }, undefined],
    ['a compaction trigger', 'responses', { input: [{ type: 'compaction_trigger' }] }, 'compaction_trigger'],
    ['compaction', 'messages', { compaction: { type: 'summarize' } }, 'compaction'],
  ])('%s (%s)', async (_, format, fields, expected) => {
    expect((await costsOf(format, fields)).work).toBe(expected)
  })
})

describe('output beyond the limit of the request', () => {
  it.each<[keyof typeof READERS, JsonObject]>([
    ['responses', { reasoning: { mode: 'pro' } }],
    ['responses', { reasoning: { max_tokens: 64_000 } }],
    ['responses', { input: [{ type: 'compaction_trigger' }] }],
    ['messages', { compaction: { type: 'summarize' } }],
  ])('is reserved (%s, %j)', async (format, fields) => {
    expect((await costsOf(format, fields)).optionalOutputTokens).toBeGreaterThanOrEqual(64_000)
  })

  it('is not reserved for the usual fields of reasoning', async () => {
    const fields = { reasoning: { effort: 'high', summary: 'auto', context: 'all_turns' } }
    expect((await costsOf('responses', fields)).optionalOutputTokens).toBe(0)
  })
})

it.each<[Json, number]>([
  ['1_000', 1000],
  ['٨', 8],
  ['1,000', 1000],
  [' +8 ', 8],
  ['8.0', 8],
  ['two', 1],
  ['8 apples', 1],
])('a number of outputs of %j counts as at least %i', async (best_of, atLeast) => {
  const { outputs } = await costsOf('chat', { best_of })
  expect(outputs).toBeGreaterThanOrEqual(atLeast)
  expect(outputs).toBeLessThanOrEqual(Math.max(1, 10 * atLeast))
})

const TEXT: JsonObject = { type: 'text', text: 'Hi.', cache_control: { type: 'ephemeral', ttl: '1h' } }

it.each<[string, JsonObject]>([
  ['a document', userBlocks({ type: 'document', source: { type: 'content', content: [TEXT] } })],
  ['a search result', userBlocks({ type: 'search_result', source: 's', title: 't', content: [TEXT] })],
  [
    'a search result of a tool',
    userBlocks({
      type: 'tool_result',
      tool_use_id: 't',
      content: [{ type: 'search_result', source: 's', title: 't', content: [TEXT] }],
    }),
  ],
  ['an added tool', userBlocks(addition({ ...LOCAL, cache_control: { type: 'ephemeral', ttl: '1h' } }))],
  [
    'the prompt of an advisor',
    { tools: [{ type: 'advisor_20260301', name: 'advisor', model: 'm', caching: { type: 'ephemeral', ttl: '1h' } }] },
  ],
])('a cache marker in %s is priced', (_, fields) => {
  expect(weighPrompt(READERS.messages(fields), 1000).cacheWrites).toBe('1h')
})
