import { describe, expect, it } from 'vitest'
import type { Json } from '../../../src/core/json.ts'
import type { Message, Part, Prompt } from '../../../src/core/prompt.ts'
import { jobOf, smallModel, waterfallOf } from './bench.ts'
import { promptOf, prose, text } from './conversation.ts'

const dense = smallModel((words) => `Facts and values: ${words.slice(100, 400)}`).small

/** Returns a chat with about 300 tokens per pair of messages, without tools. */
function chat(pairs: number): Prompt {
  const past = Array.from({ length: pairs }, (_, at): Message[] => [
    { role: 'user', parts: [text(`Question ${at}: ${prose(at, 20)}`)] },
    { role: 'assistant', parts: [text(prose(at + 5000, 90))] },
  ])
  const messages: Message[] = [...past.flat(), { role: 'user', parts: [text(`And the ${prose(7, 6)}?`)] }]
  return { ...promptOf(messages, 'chat'), tools: [] }
}

function withEarlier(prompt: Prompt, added: readonly Message[]): Prompt {
  return { ...prompt, messages: [...prompt.messages.slice(0, 2), ...added, ...prompt.messages.slice(2)] }
}

function withField(prompt: Prompt, name: string, value: Json): Prompt {
  return { ...prompt, native: { ...prompt.native, value: { ...prompt.native.value, [name]: value } } }
}

const textTurns = (response: string): readonly Message[] => [
  { role: 'assistant', parts: [text(response)] },
  { role: 'user', parts: [text('Done.')] },
]
const TAGS = textTurns('I read it.\n<read_file>\n<path>a.ts</path>\n</read_file>')
const EDITS = textTurns('a.ts\n<<<<<<< SEARCH\na\n=======\nb\n>>>>>>> REPLACE')

const { tools } = promptOf([], 'chat')
const call: Message = {
  role: 'assistant',
  parts: [{ type: 'tool-call', id: 'call_1', name: 'read_file', input: '{"path":"a.ts"}' }],
}
const result: Message = {
  role: 'tool',
  parts: [{ type: 'tool-result', callId: 'call_1', content: [text('const a = 1')], failed: false }],
}
const unknown: Part = {
  type: 'opaque',
  native: { dialect: 'responses', value: { type: 'additional_tools', tools: [{ type: 'function', name: 'shell' }] } },
}

function otherSpellings(plain: Prompt): readonly (readonly [string, Prompt])[] {
  return [
    ['declares functions', withField(plain, 'functions', [{ name: 'read_file' }])],
    ['declares an MCP server', withField(plain, 'mcp_servers', [{ type: 'url', url: 'https://mcp.example' }])],
    ['switches on a search', withField(plain, 'web_search_options', {})],
    ['writes its calls as tags', { ...plain, messages: [...plain.messages, ...TAGS] }],
    ['writes its edits as blocks', { ...plain, messages: [...plain.messages, ...EDITS] }],
  ]
}

/** Tokens of `chat(pairs)` just above each threshold: 20k, 50k and 80k. */
const SIZES = [
  [100, 4],
  [250, 2],
  [400, 2],
] as const

describe.each(SIZES)('a conversation of %d pairs', (pairs, tier) => {
  const plain = chat(pairs)
  const agents: readonly (readonly [string, Prompt])[] = [
    ['declares tools', { ...plain, tools }],
    ['has a call and its result', withEarlier(plain, [call, result])],
    ['has an item of an unknown type', withEarlier(plain, [{ role: 'user', parts: [unknown] }])],
    // The size does not matter for these.
    ...(pairs === SIZES[0][0] ? otherSpellings(plain) : []),
  ]

  it('is rewritten without a header if it has no tools', async () => {
    const { rewrite } = await waterfallOf({ agents: false })(jobOf(plain, { small: dense }))
    expect(rewrite?.tier).toBe(tier)
  })

  it.each(agents)('is sent as received without a header if it %s', async (_, prompt) => {
    const { rewrite, verdicts, spent } = await waterfallOf({ agents: false })(jobOf(prompt, { small: dense }))
    expect(rewrite).toBeUndefined()
    expect(spent).toBe(0)
    const declined = verdicts.find((verdict) => verdict.tier === 4)
    expect(declined).toMatchObject({ outcome: 'declined', reason: expect.stringContaining('savings.agents') })
  })

  it.each(agents)('is rewritten without a header if it %s and savings.agents is on', async (_, prompt) => {
    const { rewrite } = await waterfallOf({ agents: true })(jobOf(prompt, { small: dense }))
    expect(rewrite?.tier).toBe(tier)
  })

  it.each(agents)('is rewritten for a header if it %s', async (_, prompt) => {
    const steering = { level: 'extreme', vanishing: false, recursive: false } as const
    const { rewrite } = await waterfallOf({ agents: false })(jobOf(prompt, { small: dense, steering }))
    expect(rewrite?.tier).toBe(5)
  })
})
