/** Requests and required fields as in the public specification of Open Responses, with upstreams of other formats. */
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import * as z from 'zod'
import { asObject, type JsonObject, parseObject } from '../../src/core/json.ts'
import { anthropic, openaiCompatible } from '../../src/index.ts'
import { gemini } from '../../src/providers.ts'
import { readSseEvents } from '../support/read-events.ts'
import { CHAT_MODEL, MESSAGE_MODEL, PRICE, startStage, type Stage } from '../support/stage.ts'
import {
  type ModelResponse,
  type Reply,
  startUpstream,
  type Upstream,
  type UpstreamRequest,
} from '../support/upstream.ts'

const integer = z.number().int()
const status = z.enum(['in_progress', 'completed', 'incomplete'])
const effort = z.enum(['none', 'minimal', 'low', 'medium', 'high', 'xhigh'])
const outputText = z.object({
  type: z.literal('output_text'),
  text: z.string(),
  annotations: z.array(z.unknown()),
  logprobs: z.array(z.unknown()),
})
const summaryText = z.object({ type: z.literal('summary_text'), text: z.string() })
const contentPart = z.union([
  outputText,
  summaryText,
  z.object({ type: z.literal('refusal'), refusal: z.string() }),
  z.object({ type: z.literal('reasoning_text'), text: z.string() }),
])
const item = z.union([
  z.object({
    type: z.literal('message'),
    id: z.string(),
    status,
    role: z.literal('assistant'),
    content: z.array(contentPart),
  }),
  z.object({
    type: z.literal('function_call'),
    id: z.string(),
    call_id: z.string(),
    name: z.string(),
    arguments: z.string(),
    status,
  }),
  z.object({
    type: z.literal('reasoning'),
    id: z.string(),
    summary: z.array(summaryText),
    encrypted_content: z.string().optional(),
  }),
])
const tool = z.object({
  type: z.literal('function'),
  name: z.string(),
  description: z.string().nullable(),
  parameters: z.record(z.string(), z.unknown()).nullable(),
  strict: z.boolean().nullable(),
})
const textFormat = z.union([
  z.object({ type: z.enum(['text', 'json_object']) }),
  z.object({
    type: z.literal('json_schema'),
    name: z.string(),
    description: z.string().nullable(),
    schema: z.record(z.string(), z.unknown()).nullable(),
    strict: z.boolean(),
  }),
])
const response = z.object({
  id: z.string(),
  object: z.literal('response'),
  created_at: integer,
  completed_at: integer.nullable(),
  status: z.string(),
  incomplete_details: z.object({ reason: z.string() }).nullable(),
  model: z.string(),
  previous_response_id: z.string().nullable(),
  instructions: z.string().nullable(),
  output: z.array(item),
  error: z.object({ code: z.string(), message: z.string() }).nullable(),
  tools: z.array(tool),
  tool_choice: z.union([
    z.enum(['none', 'auto', 'required']),
    z.object({ type: z.literal('function'), name: z.string() }),
  ]),
  truncation: z.enum(['auto', 'disabled']),
  parallel_tool_calls: z.boolean(),
  text: z.object({ format: textFormat, verbosity: z.enum(['low', 'medium', 'high']).optional() }),
  top_p: z.number(),
  presence_penalty: z.number(),
  frequency_penalty: z.number(),
  top_logprobs: integer,
  temperature: z.number(),
  reasoning: z
    .object({ effort: effort.nullable(), summary: z.enum(['auto', 'concise', 'detailed']).nullable() })
    .nullable(),
  user: z.string().nullable(),
  usage: z
    .object({
      input_tokens: integer,
      output_tokens: integer,
      total_tokens: integer,
      input_tokens_details: z.object({ cached_tokens: integer }),
      output_tokens_details: z.object({ reasoning_tokens: integer }),
    })
    .nullable(),
  max_output_tokens: integer.nullable(),
  max_tool_calls: integer.nullable(),
  store: z.boolean(),
  background: z.boolean(),
  service_tier: z.string(),
  metadata: z.record(z.string(), z.string()),
  safety_identifier: z.string().nullable(),
  prompt_cache_key: z.string().nullable(),
})
type ResponseResource = z.infer<typeof response>

const inItem = { item_id: z.string(), output_index: integer }
const inContent = { ...inItem, content_index: integer }
const inSummary = { ...inItem, summary_index: integer }
const EVENTS: Readonly<Record<string, z.ZodRawShape>> = {
  'response.created': { response },
  'response.in_progress': { response },
  'response.completed': { response },
  'response.incomplete': { response },
  'response.output_item.added': { output_index: integer, item },
  'response.output_item.done': { output_index: integer, item },
  'response.content_part.added': { ...inContent, part: contentPart },
  'response.content_part.done': { ...inContent, part: contentPart },
  'response.output_text.delta': { ...inContent, delta: z.string(), logprobs: z.array(z.unknown()) },
  'response.output_text.done': { ...inContent, text: z.string(), logprobs: z.array(z.unknown()) },
  'response.refusal.delta': { ...inContent, delta: z.string() },
  'response.refusal.done': { ...inContent, refusal: z.string() },
  'response.function_call_arguments.delta': { ...inItem, delta: z.string() },
  'response.function_call_arguments.done': { ...inItem, arguments: z.string() },
  'response.reasoning_summary_part.added': { ...inSummary, part: summaryText },
  'response.reasoning_summary_part.done': { ...inSummary, part: summaryText },
  'response.reasoning_summary_text.delta': { ...inSummary, delta: z.string() },
  'response.reasoning_summary_text.done': { ...inSummary, text: z.string() },
}

function checkEvents(events: readonly JsonObject[]): ResponseResource {
  for (const [index, event] of events.entries()) {
    const shape = EVENTS[String(event['type'])]
    expect(shape, `the event ${String(event['type'])}`).toBeDefined()
    const checked = z.object({ ...shape, sequence_number: z.literal(index) }).safeParse(event)
    expect(checked.error?.issues ?? [], JSON.stringify(event)).toEqual([])
  }
  return response.parse(events.at(-1)?.['response'])
}

const PICTURE =
  'data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=='
const DOCUMENT = `data:application/pdf;base64,${btoa('%PDF-1.1\n%%EOF')}`
const WEATHER = {
  type: 'function',
  name: 'get_weather',
  description: 'The weather of a place',
  parameters: { type: 'object', properties: { place: { type: 'string' } }, required: ['place'] },
}
const CALL = { toolCalls: [{ id: 'call_1', name: 'get_weather', input: '{"place":"Oslo"}' }] }
const user = (content: unknown): JsonObject => ({ type: 'message', role: 'user', content }) as JsonObject

function geminiReply(request: UpstreamRequest, answer: ModelResponse): Reply {
  const calls = (answer.toolCalls ?? []).map(({ id, name, input }) => ({
    functionCall: { id, name, args: parseObject(input) },
  }))
  const texts = answer.text === undefined ? [] : [{ text: answer.text }]
  const thoughts = answer.thinking === undefined ? [] : [{ text: answer.thinking, thought: true }]
  const value = {
    candidates: [
      { content: { role: 'model', parts: [...thoughts, ...texts, ...calls] }, finishReason: answer.finish ?? 'STOP' },
    ],
    usageMetadata: { promptTokenCount: 10, candidatesTokenCount: 5, totalTokenCount: 15 },
    modelVersion: 'gemini-3-flash-preview',
    responseId: 'r-1',
  }
  return request.path.includes('streamGenerateContent')
    ? { kind: 'events', items: [{ data: JSON.stringify(value) }] }
    : { kind: 'json', value }
}

let upstream: Upstream
let stage: Stage
let now = 1_760_000_000_000

beforeAll(async () => {
  upstream = await startUpstream()
  const models = [{ id: 'large', price: PRICE, contextWindowTokens: 200_000, maxOutputTokens: 1000 }]
  stage = await startStage({
    providers: [
      openaiCompatible({ name: 'chat', baseUrl: upstream.baseUrl, models }),
      anthropic({ baseUrl: upstream.url, apiKey: 'k', models }),
      gemini({ apiKey: 'k', baseUrl: upstream.url }),
    ],
    runtime: { random: () => 0, now: () => now },
  })
})
afterAll(async () => {
  await stage.close()
  await upstream.close()
})
afterEach(() => {
  now = 1_760_000_000_000
})

describe.each([
  ['chat', CHAT_MODEL, 'length'],
  ['messages', MESSAGE_MODEL, 'max_tokens'],
  ['Gemini', 'gemini/gemini-3-flash-preview', 'MAX_TOKENS'],
])('Open Responses with a %s upstream', (_, model, lengthReason) => {
  function replyWith(answer: ModelResponse): void {
    upstream.reply = (request) => {
      now += 3000
      return request.path.includes('enerateContent') ? geminiReply(request, answer) : answer
    }
  }

  async function send(fields: JsonObject): Promise<Response> {
    const sent = await fetch(`${stage.url}/v1/responses`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', authorization: `Bearer ${stage.secret}` },
      body: JSON.stringify({ model, ...fields }),
    })
    if (sent.status !== 200) throw new Error(await sent.text())
    return sent
  }

  async function create(
    fields: JsonObject,
    answer: ModelResponse = { text: 'Hello there.' },
  ): Promise<ResponseResource> {
    replyWith(answer)
    const created = response.parse(await (await send({ ...fields, stream: false })).json())
    expect(created.output).not.toEqual([])
    expect(created.status).toBe('completed')
    return created
  }

  async function stream(fields: JsonObject, answer: ModelResponse): Promise<readonly JsonObject[]> {
    replyWith(answer)
    const { body } = await send({ ...fields, stream: true })
    const events: JsonObject[] = []
    for await (const { data } of readSseEvents(body ?? new ReadableStream())) events.push(parseObject(data) ?? {})
    return events
  }

  it('returns a text with every required field', async () => {
    const created = await create({ input: [user('Say hello.')] })

    expect(created).toMatchObject({
      output: [{ type: 'message', content: [{ text: 'Hello there.' }] }],
      created_at: 1_760_000_000,
      completed_at: 1_760_000_003,
      temperature: 1,
      top_p: 1,
      presence_penalty: 0,
      frequency_penalty: 0,
      top_logprobs: 0,
      service_tier: 'default',
      safety_identifier: null,
      prompt_cache_key: null,
    })
  })

  it('streams a text and a final response with every required field', async () => {
    const events = await stream({ input: [user('Count.')] }, { text: '1 2 3', thinking: 'I count.' })

    expect(checkEvents(events)).toMatchObject({ status: 'completed', completed_at: 1_760_000_003 })
    const started = events.slice(0, 2).map((event) => asObject(event['response'])?.['completed_at'])
    expect(started).toEqual([null, null])
  })

  it('accepts a system message', async () => {
    await create({ input: [{ type: 'message', role: 'system', content: 'Talk like a pirate.' }, user('Hello.')] })

    expect(upstream.last.text).toContain('Talk like a pirate.')
  })

  it('returns a function call, and the tool with its strictness', async () => {
    const created = await create({ input: [user('The weather?')], tools: [WEATHER] }, CALL)

    expect(created.output).toMatchObject([{ type: 'function_call', name: 'get_weather', status: 'completed' }])
    expect(created.tools).toEqual([{ ...WEATHER, strict: false }])
  })

  it('streams a function call', async () => {
    const events = await stream({ input: [user('The weather?')], tools: [WEATHER] }, CALL)

    checkEvents(events)
    const types = events.map(({ type, item: added }) => [type, asObject(added)?.['type']].join(' ').trim())
    expect(types).toEqual(
      expect.arrayContaining([
        'response.output_item.added function_call',
        'response.function_call_arguments.delta',
        'response.function_call_arguments.done',
        'response.output_item.done function_call',
      ]),
    )
  })

  it('continues after the result of a call', async () => {
    const tool_choice = { type: 'function', name: 'get_weather' }
    const first = await create({ input: 'The weather?', tools: [WEATHER], tool_choice }, CALL)
    expect(first.tool_choice).toEqual(tool_choice)
    const output = { type: 'function_call_output', call_id: 'call_1', output: '18 degrees and clear' }

    const second = await create({ previous_response_id: first.id, input: [output] })

    expect(second.previous_response_id).toBe(first.id)
    expect(upstream.last.text).toContain('18 degrees and clear')
  })

  it('accepts an image', async () => {
    const content = [
      { type: 'input_text', text: 'What is this?' },
      { type: 'input_image', image_url: PICTURE },
    ]
    await create({ input: [user(content)] })

    expect(upstream.last.text).toContain('iVBORw0KGgo')
  })

  it('accepts a file', async () => {
    const content = [
      { type: 'input_text', text: 'What is its title?' },
      { type: 'input_file', filename: 'a.pdf', file_data: DOCUMENT },
    ]
    await create({ input: [user(content)] })

    expect(upstream.last.text).toContain('JVBERi0xLjEKJSVFT0Y=')
  })

  it('accepts earlier messages', async () => {
    const earlier = { type: 'message', role: 'assistant', content: 'Hello Alice.' }
    await create({ input: [user('I am Alice.'), earlier, user('Who am I?')] })

    expect(upstream.last.text).toContain('Hello Alice.')
  })

  it('continues an earlier response', async () => {
    const first = await create({ input: 'The word is papaya.' }, { text: 'Noted.' })
    await create({ previous_response_id: first.id, input: 'Which word?' })

    for (const text of ['papaya', 'Noted.', 'Which word?']) expect(upstream.last.text).toContain(text)
  })

  it('repeats the fields of the request, and completes their parts', async () => {
    const schema = { type: 'object', properties: {} }
    const fields = {
      instructions: 'Be brief.',
      temperature: 0.5,
      top_p: 0.25,
      max_output_tokens: 60,
      max_tool_calls: 3,
      safety_identifier: 'person-1',
      prompt_cache_key: 'cache-1',
      presence_penalty: 0,
      frequency_penalty: 0,
      service_tier: 'auto',
      reasoning: { summary: 'auto' },
      text: { verbosity: 'low', format: { type: 'json_schema', name: 'a', schema } },
      metadata: { a: 'b' },
      tools: [{ type: 'function', name: 'bare' }],
      user: 'person-2',
    }

    expect(await create({ input: 'Hi', ...fields }, { text: '{}' })).toMatchObject({
      ...fields,
      service_tier: 'default',
      reasoning: { effort: null, summary: 'auto' },
      text: { verbosity: 'low', format: { type: 'json_schema', name: 'a', description: null, schema, strict: false } },
      tools: [{ type: 'function', name: 'bare', description: null, parameters: null, strict: false }],
    })
    expect(await create({ input: 'Hi', text: { verbosity: 'high' } })).toMatchObject({
      text: { verbosity: 'high', format: { type: 'text' } },
    })
  })

  it('names penalties that it does not send', async () => {
    replyWith({ text: 'Hello.' })
    const sent = await send({ input: 'Hi', presence_penalty: 0.5, frequency_penalty: -0.5 })

    expect(sent.headers.get('x-svc-ignored')?.split(', ')).toEqual(['presence_penalty', 'frequency_penalty'])
    expect(await sent.json()).toMatchObject({ presence_penalty: 0, frequency_penalty: 0 })
  })

  it('does not complete a response that was cut off', async () => {
    const events = await stream({ input: 'Hi' }, { text: 'Hello', finish: lengthReason })

    expect(checkEvents(events)).toMatchObject({
      status: 'incomplete',
      completed_at: null,
      output: [{ status: 'incomplete' }],
    })
  })
})
