/** Bodies of many shapes for bench/blocking.ts, each close to one of the size limits. `model` is a placeholder. */

export interface Shape {
  readonly name: string
  readonly path: string
  readonly make: (model: string) => string
  readonly headers?: Readonly<Record<string, string>>
}

const CHAT = '/v1/chat/completions'
const MESSAGES = '/v1/messages'
const RESPONSES = '/v1/responses'

const prose = 'The quick brown fox jumps over the lazy dog while it sleeps. '

function list<T>(length: number, make: (index: number) => T): readonly T[] {
  return Array.from({ length }, (_, index) => make(index))
}

function fields(count: number, value: unknown = 1): Record<string, unknown> {
  return Object.fromEntries(list(count, (index) => [`k${index}`, value]))
}

/** Objects without a common field, which take longest to parse. */
function objects(count: number, size: number): readonly object[] {
  return list(count, (index) => Object.fromEntries(list(size, (field) => [`k${index}_${field}`, 1])))
}

function nested(depth: number): unknown {
  return depth === 0 ? 1 : [nested(depth - 1)]
}

const words = (count: number): string => list(count, (index) => (index * 7919 + 104_729).toString(36)).join(' ')
const role = (index: number): string => (index % 2 === 0 ? 'user' : 'assistant')
const hello = [{ role: 'user', content: 'Hello.' }]
const closedSchema = {
  type: 'object',
  additionalProperties: false,
  properties: fields(30_000, {}),
  required: list(30_000, (index) => `k${index}`),
}

const texts: readonly (readonly [string, () => string])[] = [
  ['8 MB of prose', () => prose.repeat(130_000)],
  ['8 MB of different words', () => words(1_300_000).slice(0, 8_000_000)],
  ['8 MB in one word', () => 'a'.repeat(8_000_000)],
  ['combining marks', () => 'e\u0301\u0302\u0303'.repeat(1_100_000)],
  ['emoji', () => '👩‍👩‍👧'.repeat(400_000)],
  ['Chinese', () => '快速的棕色狐狸跳过懒狗。'.repeat(220_000)],
  ['lines', () => 'a1\n'.repeat(1_900_000)],
  ['blanks', () => ' '.repeat(8_000_000)],
  ['punctuation', () => '?!. '.repeat(2_000_000)],
  ['digits', () => '1234567890 '.repeat(700_000)],
  ['base64', () => 'iVBORw0KGgoAAAANSUhEUgAA'.repeat(330_000)],
]

/** Fields that are added to a short request of each format. */
const extras: readonly (readonly [string, () => object])[] = [
  ['90,000 unknown fields', () => fields(90_000)],
  ['9,900 unknown fields', () => fields(9900)],
  ['9 objects of 9,900 fields', () => ({ x: objects(9, 9900) })],
  ['90 objects of 990 fields', () => ({ x: objects(90, 990) })],
  ['8,000 objects of 10 fields', () => ({ x: objects(8000, 10) })],
  ['metadata of 45,000 texts', () => ({ metadata: fields(45_000, 'text') })],
  ['metadata of 8 MB', () => ({ metadata: { a: prose.repeat(120_000) } })],
  ['nesting of 60 levels, 1,500 times', () => ({ x: list(1500, () => nested(60)) })],
  ['8,000 stop sequences', () => ({ stop: list(16, String), stop_sequences: list(8000, String) })],
]

const schemas: readonly (readonly [string, () => object])[] = [
  ['schema of 30,000 closed fields', () => closedSchema],
  ['schema of 90,000 choices', () => ({ type: 'string', enum: list(90_000, (index) => `choice ${index}`) })],
  [
    'schema of eight nested arrays',
    () => list(8, String).reduce<object>((items) => ({ type: 'array', minItems: 10, items }), {}),
  ],
]

const chatTool = (index: number, parameters: object = {}): object => ({
  type: 'function',
  function: { name: `tool${index}`, description: prose, parameters: { type: 'object', ...parameters } },
})
const messageTool = (index: number, parameters: object = {}): object => ({
  name: `tool${index}`,
  description: prose,
  input_schema: { type: 'object', ...parameters },
})
const responseTool = (index: number, parameters: object = {}): object => ({
  type: 'function',
  name: `tool${index}`,
  parameters: { type: 'object', ...parameters },
})

const chatCalls = (count: number, id: (index: number) => string): readonly object[] => [
  ...hello,
  ...list(count, (index) => [
    {
      role: 'assistant',
      content: null,
      tool_calls: [{ id: id(index), type: 'function', function: { name: 'a', arguments: '{"a":1}' } }],
    },
    { role: 'tool', tool_call_id: id(index), content: 'Done.' },
  ]).flat(),
]
const messageCalls = (count: number): readonly object[] => [
  ...hello,
  ...list(count, (index) => [
    { role: 'assistant', content: [{ type: 'tool_use', id: `c${index}`, name: 'a', input: { a: 1 } }] },
    { role: 'user', content: [{ type: 'tool_result', tool_use_id: `c${index}`, content: 'Done.' }] },
  ]).flat(),
]
const call = (index: number): object => ({
  type: 'function_call',
  call_id: `c${index}`,
  name: `tool${index}`,
  arguments: '{"a":1}',
})
const result = (index: number): object => ({ type: 'function_call_output', call_id: `c${index}`, output: 'Done.' })

const chat = (name: string, make: () => object, headers?: Shape['headers']): Shape => ({
  name: `chat: ${name}`,
  path: CHAT,
  make: (model) => JSON.stringify({ model, messages: hello, max_tokens: 16, ...make() }),
  ...(headers && { headers }),
})
const messages = (name: string, make: () => object, headers?: Shape['headers']): Shape => ({
  name: `messages: ${name}`,
  path: MESSAGES,
  make: (model) => JSON.stringify({ model, messages: hello, max_tokens: 16, ...make() }),
  ...(headers && { headers }),
})
const responses = (name: string, make: () => object, headers?: Shape['headers']): Shape => ({
  name: `responses: ${name}`,
  path: RESPONSES,
  make: (model) => JSON.stringify({ model, input: 'Hello.', max_output_tokens: 16, ...make() }),
  ...(headers && { headers }),
})

const levels: readonly Readonly<Record<string, string>>[] = [
  { 'x-savings-level': 'extreme' },
  { 'x-vanishing-context': 'true' },
  { 'x-svc-rlm': 'true' },
]

export const shapes: readonly Shape[] = [
  ...[chat, messages, responses].flatMap((format) => extras.map(([name, make]) => format(name, make))),
  ...texts.flatMap(([name, make]) => [
    chat(name, () => ({ messages: [{ role: 'user', content: make() }] })),
    messages(name, () => ({ messages: [{ role: 'user', content: make() }] })),
    responses(name, () => ({ input: make() })),
    ...levels.map((headers) =>
      chat(
        `${name}, ${Object.keys(headers).join()}`,
        () => ({ messages: [{ role: 'user', content: make() }, ...hello] }),
        headers,
      ),
    ),
  ]),
  ...schemas.flatMap(([name, make]) => [
    chat(name, () => ({ response_format: { type: 'json_schema', json_schema: { name: 'a', schema: make() } } })),
    chat(`tool with a ${name}`, () => ({ tools: [chatTool(0, make())], tool_choice: 'required' })),
    messages(name, () => ({ output_config: { format: { type: 'json_schema', schema: make() } } })),
    responses(name, () => ({ text: { format: { type: 'json_schema', name: 'a', schema: make() } } })),
  ]),
  chat('9,999 messages', () => ({
    messages: list(9999, (index) => ({ role: role(index), content: `${prose}${index}` })),
  })),
  messages('9,999 messages', () => ({
    messages: list(9999, (index) => ({ role: role(index), content: `${prose}${index}` })),
  })),
  responses('9,900 items', () => ({
    input: list(9900, (index) => ({ role: role(index), content: `${prose}${index}` })),
  })),
  responses('9,900 items of the assistant', () => ({
    input: list(9900, (index) => ({ role: 'assistant', content: `${index}` })),
  })),
  responses('9,900 calls in one turn', () => ({
    input: [...list(4950, call), ...list(4950, result)],
    tools: list(128, (index) => responseTool(index)),
  })),
  responses('4,950 calls with results', () => ({ input: list(4950, (index) => [call(index), result(index)]).flat() })),
  responses('9,900 reasoning items', () => ({
    input: list(9900, (index) => ({ type: 'reasoning', id: `r${index}`, summary: [] })),
  })),
  responses('9,900 additional tools with one name', () => ({
    input: [
      { role: 'user', content: 'a' },
      { type: 'additional_tools', tools: list(25_000, () => ({ type: 'custom', name: 'é' })) },
    ],
  })),
  responses('4,900 calls of namespaces', () => ({
    input: [
      { role: 'user', content: 'a' },
      {
        type: 'additional_tools',
        tools: [
          { type: 'namespace', name: 'n', tools: list(9000, (index) => ({ type: 'function', name: `t${index}` })) },
        ],
      },
      ...list(4900, (index) => [{ ...call(index), name: 't8999', namespace: 'n' }, result(index)]).flat(),
    ],
  })),
  responses('references to 9,900 items', () => ({
    input: list(9900, (index) => ({ type: 'item_reference', id: `msg_a${index}_0` })),
  })),
  chat('20 messages of 1,000 parts', () => ({
    messages: list(20, () => ({ role: 'user', content: list(1000, () => ({ type: 'text', text: prose })) })),
  })),
  messages('20 messages of 1,000 parts', () => ({
    messages: list(20, () => ({ role: 'user', content: list(1000, () => ({ type: 'text', text: prose })) })),
  })),
  responses('20 messages of 1,000 parts', () => ({
    input: list(20, () => ({ role: 'user', content: list(1000, () => ({ type: 'input_text', text: prose })) })),
  })),
  messages('call with 90 objects of 990 fields', () => ({
    messages: [
      ...hello,
      { role: 'assistant', content: [{ type: 'tool_use', id: 'c', name: 'a', input: { x: objects(90, 990) } }] },
      { role: 'user', content: [{ type: 'tool_result', tool_use_id: 'c', content: 'Done.' }] },
    ],
  })),
  chat('tool with 90 objects of 990 fields', () => ({ tools: [chatTool(0, { x: objects(90, 990) })] })),
  chat('3,300 calls with results', () => ({ messages: chatCalls(3300, (index) => `c${index}`) })),
  chat('3,300 calls with one id', () => ({ messages: chatCalls(3300, () => 'c') })),
  messages('3,300 calls with results', () => ({ messages: messageCalls(3300) })),
  chat('128 tools', () => ({ tools: list(128, (index) => chatTool(index, { properties: fields(700, true) })) })),
  messages('9,900 tools', () => ({ tools: list(9900, (index) => messageTool(index)) })),
  responses('20,000 tools', () => ({ tools: list(20_000, (index) => responseTool(index)) })),
  chat('arguments of 4 MB', () => ({
    messages: [
      ...hello,
      {
        role: 'assistant',
        tool_calls: [
          { id: 'c', type: 'function', function: { name: 'a', arguments: `{"a":[${'1,'.repeat(2_000_000)}1]}` } },
        ],
      },
      { role: 'tool', tool_call_id: 'c', content: 'Done.' },
    ],
  })),
  chat('result of 7 MB of JSON', () => ({
    messages: [
      ...hello,
      { role: 'assistant', tool_calls: [{ id: 'c', type: 'function', function: { name: 'a', arguments: '{}' } }] },
      { role: 'tool', tool_call_id: 'c', content: `{"a":[${'{"b":1},'.repeat(850_000)}1]}` },
    ],
  })),
  ...levels.flatMap((headers) => [
    chat(
      `1,500 messages of 2 KB, ${Object.keys(headers).join()}`,
      () => ({
        messages: list(1501, (index) => ({ role: role(index), content: prose.repeat(32) + index })),
      }),
      headers,
    ),
    chat(
      `9,999 messages, ${Object.keys(headers).join()}`,
      () => ({
        messages: list(9999, (index) => ({ role: role(index), content: `${prose}${index}` })),
      }),
      headers,
    ),
    chat(
      `3,300 calls, ${Object.keys(headers).join()}`,
      () => ({ messages: chatCalls(3300, (index) => `c${index}`) }),
      headers,
    ),
    messages(`3,300 calls, ${Object.keys(headers).join()}`, () => ({ messages: messageCalls(3300) }), headers),
    responses(
      `9,900 items, ${Object.keys(headers).join()}`,
      () => ({
        input: list(9900, (index) => ({ role: role(index), content: `${prose}${index}` })),
      }),
      headers,
    ),
  ]),
  messages('a header with 5,000 betas', () => ({}), { 'anthropic-beta': list(700, (index) => `beta-${index}`).join() }),
]
