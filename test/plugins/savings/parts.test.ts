import { describe, expect, it } from 'vitest'
import type { Message } from '../../../src/core/prompt.ts'
import {
  conversationOf,
  createPrefixHashes,
  hasStandingInstruction,
} from '../../../src/plugins/savings/conversation.ts'
import { stemOf, termsOf } from '../../../src/plugins/savings/keywords.ts'
import { createMemory, recallSnapshot } from '../../../src/plugins/savings/memory.ts'
import { splitConversation } from '../../../src/plugins/savings/segments.ts'
import { parseTerms, storeTranscript } from '../../../src/plugins/savings/selection-tiers.ts'
import { summarizeByExtraction } from '../../../src/plugins/savings/summary.ts'
import { jobOf, meter, textStore } from './bench.ts'
import { promptOf, text } from './conversation.ts'

const user = (words: string): Message => ({ role: 'user', parts: [text(words)] })
const assistant = (words: string): Message => ({ role: 'assistant', parts: [text(words)] })
const call: Message = { role: 'assistant', parts: [{ type: 'tool-call', id: 'c1', name: 'read', input: '{}' }] }
const result = { type: 'tool-result', callId: 'c1', content: [text('lines')], failed: false } as const

describe('segments', () => {
  it('contain a tool call and its results, in both formats', () => {
    const openai = splitConversation([user('a'), call, { role: 'tool', parts: [result] }, assistant('b'), user('c')])
    expect(openai.old.map((segment) => [segment.kind, segment.indexes])).toEqual([
      ['user', [0]],
      ['tool-use', [1, 2]],
      ['assistant', [3]],
    ])
    const anthropic = splitConversation([user('a'), call, { role: 'user', parts: [result] }, assistant('b'), user('c')])
    expect(anthropic.old.map((segment) => segment.indexes)).toEqual([[0], [1, 2], [3]])
    expect(anthropic.live.map((segment) => segment.indexes)).toEqual([[4]])
  })

  it('contain all calls of consecutive assistant messages and their results', () => {
    const secondCall: Message = {
      role: 'assistant',
      parts: [{ type: 'tool-call', id: 'c2', name: 'read', input: '{}' }],
    }
    const results: Message = { role: 'user', parts: [result, { ...result, callId: 'c2' }] }
    const split = splitConversation([user('a'), call, assistant('b'), secondCall, results, assistant('c'), user('d')])
    expect(split.old.map(({ kind, indexes }) => [kind, indexes])).toEqual([
      ['user', [0]],
      ['tool-use', [1, 2, 3, 4]],
      ['assistant', [5]],
    ])
  })

  it('end a tool use without a result at the next user message', () => {
    const { old } = splitConversation([user('a'), call, user('b'), assistant('c'), user('d')])
    expect(old.map(({ kind, indexes }) => [kind, indexes])).toEqual([
      ['user', [0]],
      ['tool-use', [1]],
      ['user', [2]],
      ['assistant', [3]],
    ])
  })

  it('begin the live turn with the last user message, not with a tool result', () => {
    const { live } = splitConversation([user('a'), assistant('b'), user('c'), call, { role: 'user', parts: [result] }])
    expect(live.map((segment) => segment.indexes)).toEqual([[2], [3, 4]])
  })

  it('begin the live turn with the tool call if the last user message contains its result', () => {
    const { old, live } = splitConversation([user('a'), call, { role: 'user', parts: [result, text('and now?')] }])
    expect(old.map((segment) => segment.indexes)).toEqual([[0]])
    expect(live.map((segment) => segment.indexes)).toEqual([[1, 2]])
  })
})

describe('terms', () => {
  it.each([
    ['ledgers', 'ledger'],
    ['running', 'run'],
    ['stopped', 'stop'],
    ['queries', 'query'],
    ['boxes', 'box'],
    ['v1.2s', 'v1.2s'],
  ])('reduce %s to %s', (word, stem) => {
    expect(stemOf(word)).toBe(stem)
  })

  it.each([
    ['readFile of src/tokens/exact.ts', 'the read_file in exact.ts'],
    ['两个账本的预算', '预算'],
  ])('are shared by "%s" and "%s"', (first, second) => {
    const known = new Set(termsOf(first))
    expect(termsOf(second).some((term) => known.has(term))).toBe(true)
  })
})

describe('standing instructions', () => {
  it.each(['From now on answer in French.', 'I prefer metric units', "Don't ever use semicolons", 'My name is Ada'])(
    'are seen in "%s"',
    (words) => {
      const [segment] = splitConversation([user(words), assistant('ok'), user('x')]).old
      expect(segment !== undefined && hasStandingInstruction(segment)).toBe(true)
    },
  )

  it('are not found in a question', () => {
    const [segment] = splitConversation([user('What is the capital of France?'), assistant('ok'), user('x')]).old
    expect(segment !== undefined && hasStandingInstruction(segment)).toBe(false)
  })
})

describe('memory', () => {
  it('expires after one hour and is separate for each owner', async () => {
    let now = 1000
    const memory = createMemory({ store: { get: async () => undefined, set: async () => undefined }, now: () => now })
    await memory.remember('a', 'key', 'value')
    expect(await memory.recall('a', 'key')).toBe('value')
    expect(await memory.recall('b', 'key')).toBeUndefined()
    now += 60 * 60 * 1000
    expect(await memory.recall('a', 'key')).toBeUndefined()
  })

  it.each(['', 'null', '[]', '{"from":-1}', '{"from":3,"notice":7,"picks":[],"asked":0}', '{'])(
    'returns no snapshot for the damaged state %j',
    async (value) => {
      const memory = createMemory({ store: { get: async () => value, set: async () => undefined }, now: () => 1 })
      const job = jobOf(promptOf([user('a')], 'chat'))
      expect(await recallSnapshot(memory, job, 'slider-16384')).toBeUndefined()
    },
  )
})

describe('the hashes of prefixes', () => {
  const messages = Array.from({ length: 40 }, (_, at) =>
    at % 2 === 0 ? user(`q${at} `.repeat(200)) : assistant(`a${at} `.repeat(200)),
  )

  it('are equal for a longer conversation, and differ if one word differs', () => {
    const short = createPrefixHashes(messages.slice(0, 30))
    const long = createPrefixHashes(messages)
    const other = createPrefixHashes([user('q0 other'), ...messages.slice(1)])

    for (const count of [30, 0, 7, 1]) expect(long.at(count)).toBe(short.at(count))
    expect(other.at(30)).not.toBe(long.at(30))
    expect(long.at(29)).not.toBe(long.at(30))
  })
})

describe('transcripts', () => {
  it('are stored page by page under their owner, each page once', async () => {
    const { store, entries } = textStore()
    const memory = createMemory({ store, now: () => 1 })
    const messages = Array.from({ length: 100 }, (_, at) =>
      at % 2 === 0 ? user(`question ${at}`) : assistant(`answer ${at}`),
    )
    const conversation = conversationOf(promptOf([...messages, user('now?')], 'chat'))
    await storeTranscript(memory, 'a', conversation)
    const texts = [...entries.values()].flatMap((page) =>
      (JSON.parse(page) as { sections: { text: string }[] }).sections.map((section) => section.text),
    )
    expect(texts).toEqual(messages.map((_, at) => `${at % 2 === 0 ? 'question' : 'answer'} ${at}`))
    expect([...entries.keys()].every((key) => key.startsWith('savings:a:page:'))).toBe(true)
    const before = entries.size
    await storeTranscript(memory, 'a', conversationOf(promptOf([...messages, user('now?')], 'chat')))
    expect(entries.size).toBe(before)
  })
})

describe('the extractive summary', () => {
  it('copies facts unchanged, within the maximum size', async () => {
    const filler = 'It went on for a while and nothing of note was said by anyone there. '
    const summary = await summarizeByExtraction(
      `${filler.repeat(3)}We decided to move the launch to 2026-03-14 on server eu-west-7.\n${filler}`,
      40,
      { meter, pause: () => undefined },
    )
    expect(summary).toContain('2026-03-14 on server eu-west-7')
    expect(meter.tokenizer.estimate(summary)).toBeLessThanOrEqual(40)
  })
})

describe("the small model's terms", () => {
  it.each([
    ['{"terms": ["ledger", "budget"], "names": ["Ada"]}', ['ledger', 'budget', 'Ada']],
    ['Sure! ```json\n{"terms": ["ledger"]}\n```', ['ledger']],
    ['{"terms": [7, null, "", "!!!", {"a": 1}, "ok"]}', ['ok']],
    ['no json', []],
    ['{"terms": "ledger"}', []],
    [`{"terms": ["${'x'.repeat(100_000)}"]}`, []],
  ])('are parsed from %.40j', (reply, terms) => {
    expect(parseTerms(reply)).toEqual(terms)
  })
})
