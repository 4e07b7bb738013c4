import { describe, expect, it, vi } from 'vitest'
import type { Json } from '../../src/core/json.ts'
import type { Tokenizer } from '../../src/core/ports.ts'
import { type Message, type Part, type Prompt, fingerprintOf } from '../../src/core/prompt.ts'
import { PromptMeter, createTokenizer } from '../../src/tokens/meter.ts'

const message = (text: string, ...more: Part[]): Message => ({ role: 'user', parts: [{ type: 'text', text }, ...more] })
const prompt = (...messages: Message[]): Prompt => ({
  native: { dialect: 'chat', value: {} },
  model: 'm',
  messages,
  settings: {},
  tools: [],
  stream: false,
})

function createCountingTokenizer(): { tokenizer: Tokenizer; countCalls: () => number } {
  const inner = createTokenizer()
  let calls = 0
  return {
    tokenizer: { estimate: inner.estimate, count: (text, signal) => (calls++, inner.count(text, signal)) },
    countCalls: () => calls,
  }
}

describe('the meter', () => {
  it('counts text exactly and adds four for each message', async () => {
    const { tokenizer } = createCountingTokenizer()
    const meter = new PromptMeter(tokenizer)
    const text = 'Which of the two ledgers holds the reservation?'
    expect(await meter.countMessage(message(text))).toBe((await tokenizer.count(text)) + 4)
  })

  it('counts a conversation once, although every turn creates new objects', async () => {
    const { tokenizer, countCalls } = createCountingTokenizer()
    const meter = new PromptMeter(tokenizer)
    const turn = () =>
      prompt(
        message('first question, long enough to be remembered '.repeat(5)),
        message('second one, also long enough '.repeat(5)),
      )
    const first = await meter.countPrompt(turn())
    const before = countCalls()
    expect(await meter.countPrompt(turn())).toBe(first)
    expect(countCalls()).toBe(before)
  })

  it('counts exactly only near a threshold', async () => {
    const { tokenizer, countCalls } = createCountingTokenizer()
    const meter = new PromptMeter(tokenizer)
    const small = prompt(message('word '.repeat(100)))
    expect(await meter.countNearThresholds(small, [20_000])).toBe(meter.estimatePrompt(small))
    expect(countCalls()).toBe(0)
    expect(await meter.countNearThresholds(small, [105])).toBe(await meter.countPrompt(small))
    expect(countCalls()).toBe(1)
  })

  it('counts an image as a fixed number of tokens, not by its base64 text', async () => {
    const meter = new PromptMeter(createTokenizer())
    const source = { type: 'base64', mediaType: 'image/png', data: 'A'.repeat(400_000) } as const
    const inResult: Part = { type: 'tool-result', callId: 'c', failed: false, content: [{ type: 'image', source }] }
    expect(meter.estimateMessage(message('', { type: 'image', source }))).toBe(1604)
    expect(await meter.countMessage(message('', inResult))).toBe(
      await meter.countMessage(message('', { type: 'image', source })),
    )
  })

  it('does not count the encoded bytes of an unknown part as text', () => {
    const meter = new PromptMeter(createTokenizer())
    const audio: Part = {
      type: 'opaque',
      native: { dialect: 'chat', value: { type: 'input_audio', data: 'QUJD'.repeat(250_000) } },
    }
    expect(meter.estimateMessage(message('', audio))).toBeLessThan(60_000)
  })

  it('copies deeply nested text once when it counts a body', async () => {
    const text = 'word '.repeat(10_000)
    let nested: Json = text
    for (let depth = 0; depth < 50; depth++) nested = { inner: nested, other: [depth] }
    const body = { ...prompt(message('hi')), native: { dialect: 'chat', value: { metadata: nested } } } as const
    const meter = new PromptMeter({ ...createTokenizer(), count: async (counted) => counted.length })
    let joinedLength = 0
    const { join } = Array.prototype
    const spy = vi.spyOn(Array.prototype, 'join').mockImplementation(function (this: unknown[], separator) {
      const joined = join.call(this, separator)
      joinedLength += joined.length
      return joined
    })
    const counted = await meter.countBody(body, 'o200k').finally(() => spy.mockRestore())
    expect(counted).toBeGreaterThan(text.length)
    expect(joinedLength).toBeLessThan(1.5 * counted)
  })
})

describe('the fingerprint of a text', () => {
  it('differs by seed, so that no caller can create two texts with the same fingerprint', () => {
    const texts = ['first question, long enough to be remembered', 'second question, long enough to be remembered']
    const prints = Array.from({ length: 500 }, (_, seed) => texts.map((text) => fingerprintOf(text, seed * 7919)))
    expect(new Set(prints.flat()).size).toBe(1000)
  })
})
