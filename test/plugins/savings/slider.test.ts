import { describe, expect, it } from 'vitest'
import { textOfMessage } from '../../../src/core/messages.ts'
import { type Message } from '../../../src/core/prompt.ts'
import type { TierJob } from '../../../src/plugins/savings/tier.ts'
import { PromptMeter, createTokenizer } from '../../../src/tokens/meter.ts'
import { jobOf, meter, textStore, waterfallOf } from './bench.ts'
import { promptOf, prose, text } from './conversation.ts'

const EXTREME = { level: 'extreme', vanishing: false, recursive: false } as const
const MED = { ...EXTREME, level: 'med' } as const
/** Shares a word with nearly every old message, and none with the plan. */
const QUESTION =
  'What of the harbour, ledger, invoice, compiler, orchard, violin, glacier, reservoir, telescope and passport?'

const user = (words: string): Message => ({ role: 'user', parts: [text(words)] })
const assistant = (words: string): Message => ({ role: 'assistant', parts: [text(words)] })

/** Prepends a conversation of about 40k tokens to these messages. */
function after(...tail: Message[]): TierJob['prompt'] {
  const past = Array.from({ length: 160 }, (_, at) => [user(prose(at, 40)), assistant(prose(at + 5000, 180))])
  return promptOf([...past.flat(), ...tail], 'chat')
}

/** Returns sentences that share no word with the question. */
function plan(sentences: number): string {
  return Array.from({ length: sentences }, (_, at) => `Paragraph ${at} weighs the marble against the copper.`).join(
    '\n',
  )
}

function sentWords(prompt: TierJob['prompt'] | undefined): string {
  return (prompt?.messages ?? []).map(textOfMessage).join('\n\n')
}

/** Returns words of seven tokens each, which the estimate counts as two. */
function rareWords(count: number, seed: number): string {
  let state = seed * 7919 + 17
  const draw = (signs: string): string => {
    state = (state * 48_271) % 2_147_483_647
    return signs[state % signs.length] ?? ''
  }
  const word = (): string => Array.from({ length: 7 }, () => draw('aeiouy') + draw('qxzjwvk')).join('')
  return Array.from({ length: count }, word).join(' ')
}

describe('the exchange before the last user message', () => {
  it('stays unchanged at the level extreme, regardless of the question', async () => {
    const response = plan(220)
    const prompt = after(user('Draft the whole plan.'), assistant(response), user(QUESTION))
    const { rewrite } = await waterfallOf()(jobOf(prompt, { steering: EXTREME }))
    expect(await meter.countPrompt(prompt)).toBeGreaterThan(40_000)
    expect(rewrite?.tier).toBe(5)
    expect(rewrite?.tokens).toBeLessThanOrEqual(16_384)
    expect(sentWords(rewrite?.prompt)).toContain(response)
    expect(sentWords(rewrite?.prompt)).toContain('Draft the whole plan.')
  })

  it('stays unchanged if a later turn repeats the cut', async () => {
    const { store } = textStore()
    const waterfall = waterfallOf({ store })
    const first = after(user('Begin.'), assistant('Begun.'), user(QUESTION))
    await waterfall(jobOf(first, { steering: EXTREME }))
    const response = plan(220)
    const second = promptOf([...first.messages, assistant(response), user(QUESTION)], 'chat')
    const { rewrite } = await waterfall(jobOf(second, { steering: EXTREME }))
    expect(sentWords(rewrite?.prompt)).toContain(response)
  })

  it('contains most of a quarter of the cap if the answer is longer', async () => {
    const response = plan(700)
    const prompt = after(user('Draft the whole plan.'), assistant(response), user(QUESTION))
    const { rewrite } = await waterfallOf()(jobOf(prompt, { steering: EXTREME }))
    const kept = rewrite?.prompt.messages.find((message) => textOfMessage(message).includes('marble'))
    const tokens = kept === undefined ? 0 : await meter.countMessage(kept)
    expect(rewrite?.tokens).toBeLessThanOrEqual(16_384)
    expect(tokens).toBeGreaterThan(3000)
  })
})

describe('the cap', () => {
  it('is not exceeded by the notice if the last exchange nearly fills it', async () => {
    const question = user('alpha '.repeat(13_000))
    const responseTokens = 16_384 - 16 - (await meter.countPrompt(promptOf([question], 'chat')))
    const prompt = after(user('Go.'), assistant('alpha '.repeat(responseTokens)), question)
    const { rewrite } = await waterfallOf()(jobOf(prompt, { steering: EXTREME }))
    expect(rewrite?.tokens).toBeLessThanOrEqual(16_384)
  })

  it('is not exceeded by words whose estimate is too low', async () => {
    const past = Array.from({ length: 40 }, (_, at) => [user(rareWords(15, at)), assistant(rareWords(300, at + 500))])
    const prompt = promptOf([...past.flat(), user('Which of these was first?')], 'chat')
    expect(await meter.countPrompt(prompt)).toBeGreaterThan(65_536)
    // A meter that has not counted these words yet uses the estimate.
    const fresh = new PromptMeter(createTokenizer())
    const tokens = fresh.estimatePrompt(prompt)
    const { rewrite } = await waterfallOf({ meter: fresh })(jobOf(prompt, { steering: MED, tokens }))
    expect(rewrite?.tokens).toBeLessThanOrEqual(65_536)
  })
})
