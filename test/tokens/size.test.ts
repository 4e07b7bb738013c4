import { describe, expect, it } from 'vitest'
import type { Model } from '../../src/core/model.ts'
import type { Tokenizer } from '../../src/core/ports.ts'
import type { Message, Part, Prompt } from '../../src/core/prompt.ts'
import { createMeter } from '../../src/tokens/size.ts'
import { createTokenizer } from '../../src/tokens/tokenizer.ts'

const model: Model = {
  id: 'm',
  family: 'f',
  contextWindow: 200_000,
  maxOutputTokens: 1000,
  price: { input: 1, output: 1 },
}
const message = (text: string, ...more: Part[]): Message => ({ role: 'user', parts: [{ type: 'text', text }, ...more] })
const prompt = (...messages: Message[]): Prompt => ({
  native: { dialect: 'openai', value: {} },
  model: 'm',
  messages,
  settings: {},
  tools: [],
  stream: false,
})

function watched(): { tokenizer: Tokenizer; counted: () => number } {
  const inner = createTokenizer()
  let calls = 0
  return {
    tokenizer: { estimate: inner.estimate, count: (text, signal) => (calls++, inner.count(text, signal)) },
    counted: () => calls,
  }
}

describe('the meter', () => {
  it('counts text exactly and adds four for each message', async () => {
    const { tokenizer } = watched()
    const meter = createMeter(tokenizer)
    const text = 'Which of the two ledgers holds the reservation?'
    expect(await meter.countOfMessage(message(text))).toBe((await tokenizer.count(text)) + 4)
  })

  it('counts a conversation once, though every turn brings new objects', async () => {
    const { tokenizer, counted } = watched()
    const meter = createMeter(tokenizer)
    const turn = () =>
      prompt(
        message('first question, long enough to be remembered '.repeat(5)),
        message('second one, also long enough '.repeat(5)),
      )
    const first = await meter.countOf(turn())
    const before = counted()
    expect(await meter.countOf(turn())).toBe(first)
    expect(counted()).toBe(before)
  })

  it('counts exactly only near a threshold', async () => {
    const { tokenizer, counted } = watched()
    const meter = createMeter(tokenizer)
    const small = prompt(message('word '.repeat(100)))
    expect(await meter.sizeNear(small, [20_000])).toBe(meter.estimateOf(small))
    expect(counted()).toBe(0)
    expect(await meter.sizeNear(small, [105])).toBe(await meter.countOf(small))
    expect(counted()).toBe(1)
  })

  it('takes a picture for a fixed number of tokens, not for its base64 text', async () => {
    const meter = createMeter(createTokenizer())
    const source = { type: 'base64', mediaType: 'image/png', data: 'A'.repeat(400_000) } as const
    const inResult: Part = { type: 'tool-result', callId: 'c', failed: false, content: [{ type: 'image', source }] }
    expect(meter.estimateOfMessage(message('', { type: 'image', source }))).toBe(1604)
    expect(await meter.countOfMessage(message('', inResult))).toBe(
      await meter.countOfMessage(message('', { type: 'image', source })),
    )
  })

  it('does not count the encoded bytes of an unknown part as text', () => {
    const meter = createMeter(createTokenizer())
    const audio: Part = {
      type: 'opaque',
      native: { dialect: 'openai', value: { type: 'input_audio', data: 'QUJD'.repeat(250_000) } },
    }
    expect(meter.estimateOfMessage(message('', audio))).toBeLessThan(60_000)
  })

  it.each([
    ['prose', 'Please check whether the new budget is enforced for all the keys of the team. '],
    ['random letters', 'xqzj kvbw pfgh qwrt zzxc mnbv lkjh '],
    ['signs', '#$%^&*()_+{}|:"<>?'],
    ['ideographs', '我们正在构建一个网关'],
  ])('bounds %s from above', async (_, text) => {
    const meter = createMeter(createTokenizer())
    const long = prompt(message(text.repeat(50)))
    expect(meter.boundOf(long, model)).toBeGreaterThanOrEqual(await meter.countOf(long))
  })

  it('bounds a small prompt tightly', async () => {
    const meter = createMeter(createTokenizer())
    const small = prompt(message('Hello! What is the capital of France?'))
    expect(meter.boundOf(small, model)).toBeLessThanOrEqual(3 * (await meter.countOf(small)))
  })
})
