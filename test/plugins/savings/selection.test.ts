import { describe, expect, it } from 'vitest'
import { textOfMessage } from '../../../src/core/messages.ts'
import { type Message } from '../../../src/core/prompt.ts'
import { jobOf, waterfallOf } from './bench.ts'
import { promptOf, prose, text } from './conversation.ts'

const EXTREME = { level: 'extreme', vanishing: false, recursive: false } as const
const QUESTION = 'What of the harbour, ledger, invoice, compiler, orchard, glacier, reservoir, telescope and passport?'

const user = (words: string): Message => ({ role: 'user', parts: [text(words)] })
const assistant = (words: string): Message => ({ role: 'assistant', parts: [text(words)] })

/** Returns a user message of about 130 tokens that shares no word with the question. */
function aside(at: number): string {
  return `Remark ${at}: ${Array.from({ length: 9 }, (_, line) => `the marble weighs ${at * 31 + line} grams of copper`).join(', ')}.`
}

describe('a selection without tool traffic', () => {
  it('contains all user messages if they fit in three quarters of the capacity', async () => {
    const past = Array.from({ length: 100 }, (_, at) => [
      user(aside(at)),
      assistant('Noted.'),
      user('Next?'),
      assistant(prose(at + 5000, 260)),
    ])
    const prompt = promptOf([...past.flat(), user(QUESTION)], 'chat')
    const { rewrite } = await waterfallOf()(jobOf(prompt, { steering: EXTREME }))
    const sent = (rewrite?.prompt.messages ?? []).map(textOfMessage).join('\n')
    expect(rewrite?.tokens).toBeLessThanOrEqual(16_384)
    expect(past.flatMap(([asked], at) => (asked !== undefined && sent.includes(aside(at)) ? [] : [at]))).toEqual([])
  })
})

describe('a cut in the message format', () => {
  it('fills the tokens that joined messages saved', async () => {
    const past = Array.from({ length: 700 }, (_, at) => [
      user(`${prose(at, 12)}?`),
      assistant(at % 3 === 0 ? prose(at + 5000, 40) : `Noted ${at}.`),
    ])
    const prompt = promptOf([...past.flat(), user(QUESTION)], 'messages')
    const { rewrite } = await waterfallOf()(jobOf(prompt, { steering: EXTREME }))
    expect(rewrite?.tokens).toBeLessThanOrEqual(16_384)
    expect(rewrite?.tokens).toBeGreaterThan(16_384 * 0.985)
  })
})
