import { describe, expect, it } from 'vitest'
import type { Embedder } from '../../src/core/cache.ts'
import { textOfMessage } from '../../src/core/messages.ts'
import { type Message } from '../../src/core/prompt.ts'
import { asksAboutAnswer } from '../../src/plugins/savings/conversation.ts'
import { splitConversation } from '../../src/plugins/savings/segments.ts'
import { jobOf, waterfallOf } from './bench.ts'
import { promptOf, prose, text } from './conversation.ts'

const user = (words: string): Message => ({ role: 'user', parts: [text(words)] })
const assistant = (words: string): Message => ({ role: 'assistant', parts: [text(words)] })

describe('a question about an earlier answer', () => {
  it.each([
    ['What did you recommend for the balcony?', true],
    ['Remind me which tools you mentioned.', true],
    ['You once told me why the seedlings die. What was it?', true],
    ['What was your advice on watering?', true],
    ['Which books had you suggested?', true],
    ['What do I need for the balcony?', false],
    ['Can you tell me about watering?', false],
    ['Please list the files in this folder.', false],
    ['What did Anna recommend for the balcony?', false],
    [`What did you recommend? ${'A pasted document. '.repeat(100)}`, false],
  ])('is recognized: %s', (question, expected) => {
    expect(asksAboutAnswer(splitConversation([user('Hello.'), assistant('Hello.'), user(question)]))).toBe(expected)
  })
})

const ADVICE = `For a balcony in shade: ferns, hostas and begonias. ${'Water them twice per week, and feed them in May. '.repeat(60)}`
const QUESTION = 'Which balcony plants did you recommend for shade?'

/** Maps the question and the advice to one direction and all other texts to another. */
const embedder: Embedder = {
  name: 'plants',
  dimensions: 2,
  embed: (texts) => texts.map((one) => Float32Array.of(...(/shade/.test(one) ? [1, 0] : [0, 1]))),
}

async function keepsAdvice(options: { readonly embedder?: Embedder }): Promise<boolean> {
  const chatter = Array.from({ length: 400 }, (_, at) => [
    user(`The balcony again, number ${at}: ${prose(at, 40)}`),
    assistant(prose(at + 5000, 40)),
  ])
  const past = [...chatter.slice(0, 150).flat(), user('My balcony has no sun.'), assistant(ADVICE)]
  const messages = [...past, ...chatter.slice(150).flat(), user(QUESTION)]
  const steering = { level: 'extreme', vanishing: false, recursive: false } as const
  const optimize = waterfallOf({ slider: 'query', ...options })
  const { rewrite } = await optimize(jobOf(promptOf(messages, 'openai'), { steering }))
  return rewrite?.prompt.messages.some((message) => textOfMessage(message) === ADVICE) === true
}

describe('the slider', () => {
  it('selects the long answer that a question asks for before short user messages, if it ranks by meaning', async () => {
    expect(await keepsAdvice({ embedder })).toBe(true)
  })
})
