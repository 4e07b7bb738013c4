import { describe, expect, it } from 'vitest'
import type { Message, Prompt } from '../../../src/core/prompt.ts'
import type { Tier, TierNumber, Steering } from '../../../src/plugins/savings/tier.ts'
import { jobOf, meter, smallModel, waterfallOf } from './bench.ts'
import { promptOf, prose, text } from './conversation.ts'

const RECURSIVE: Steering = { vanishing: false, recursive: true }
const VANISHING: Steering = { vanishing: true, recursive: false }
const MINUTE = 60_000
const SUMMARY = 'Facts and values: the harbour was closed in 1999.'

const user = (words: string): Message => ({ role: 'user', parts: [text(words)] })
const assistant = (words: string): Message => ({ role: 'assistant', parts: [text(words)] })

function chat(pairs: number, question: string, opening = 'Question'): Prompt {
  const past = Array.from({ length: pairs }, (_, at) => [
    user(`${opening} ${at}: ${prose(at, 20)}`),
    assistant(prose(at + 5000, 180)),
  ])
  return promptOf([...past.flat(), user(question)], 'chat')
}

async function chatOf(tokens: number, question: string, opening?: string): Promise<Prompt> {
  const perPair = ((await meter.countPrompt(chat(40, question))) - (await meter.countPrompt(chat(20, question)))) / 20
  return chat(Math.ceil(tokens / perPair), question, opening)
}

const next = ({ messages, ...prompt }: Prompt, turn: number): Prompt => ({
  ...prompt,
  messages: [...messages, assistant(prose(turn + 900, 60)), user(`Turn ${turn}: ${prose(turn, 15)}?`)],
})

const QUESTION = 'What of the harbour, the ledger, the orchard and the violin?'
const UNRELATED = 'Why do penguins waddle across Antarctic icebergs during stormy winters without freezing?'
const only = (number: TierNumber) => ({
  tiers: (own: readonly Tier[]) => own.filter(({ tier }) => tier === number),
})

describe('a small model that fails', () => {
  it.each([
    ['rejects every call', () => Promise.reject(new Error('down'))],
    ['refuses every call', () => 'I am sorry, but I cannot help with that.'],
    ['answers every call with an empty text', () => ''],
  ])('is not called again on later turns if it %s', async (_, reply) => {
    const waterfall = waterfallOf()
    const { small, modelCalls } = smallModel(reply)
    let prompt = await chatOf(90_000, QUESTION)
    for (let turn = 0; turn < 4; turn++) {
      const { rewrite } = await waterfall(jobOf(prompt, { small, steering: RECURSIVE }))
      expect(rewrite?.strategy).toBe('Recursive-RLM (controller: extractive)')
      prompt = next(prompt, turn)
    }
    expect(modelCalls).toHaveLength(1)
  })

  it('is replaced by extractive summaries in tier 4', async () => {
    const waterfall = waterfallOf(only(4))
    const { small, modelCalls } = smallModel(() => Promise.reject(new Error('down')))
    const prompt = await chatOf(30_000, QUESTION)
    const first = await waterfall(jobOf(prompt, { small }))
    const second = await waterfall(jobOf(next(prompt, 1), { small }))
    expect(first.rewrite?.strategy).toBe('Family-Lock (extractive -> mock/large)')
    expect(second.rewrite?.tier).toBe(4)
    expect(modelCalls).toHaveLength(1)
  })

  it('is called again after five minutes, and paused again by one failure', async () => {
    let now = 1e12
    const waterfall = waterfallOf({ now: () => now })
    const { small, modelCalls } = smallModel(() => Promise.reject(new Error('down')))
    const ask = async (prompt: Prompt): Promise<number> => {
      const before = modelCalls.length
      await waterfall(jobOf(prompt, { small, steering: VANISHING, now }))
      return modelCalls.length - before
    }
    let prompt = await chatOf(20_000, QUESTION)
    const calls: number[] = []
    for (const later of [0, 1, 1, 5 * MINUTE, 1]) {
      now += later
      calls.push(await ask(prompt))
      prompt = next(prompt, calls.length)
    }
    expect(calls).toEqual([1, 0, 0, 1, 0])
  })

  it('is paused for its own conversation and owner only', async () => {
    const waterfall = waterfallOf()
    const broken = smallModel(() => Promise.reject(new Error('down')))
    const prompt = await chatOf(30_000, QUESTION)
    await waterfall(jobOf(prompt, { small: broken.small, steering: RECURSIVE }))
    const other = smallModel(SUMMARY)
    await waterfall(jobOf(await chatOf(30_000, QUESTION, 'Topic'), { small: other.small, steering: RECURSIVE }))
    await waterfall(jobOf(prompt, { small: other.small, steering: RECURSIVE, owner: 'key-2' }))
    expect(other.modelCalls.length).toBeGreaterThanOrEqual(6)
  })

  it('is not paused by calls that the caller aborted', async () => {
    const leaving = new AbortController()
    const waterfall = waterfallOf()
    const { small, modelCalls } = smallModel(async () => {
      leaving.abort(new Error('left'))
      throw new Error('aborted')
    })
    const prompt = await chatOf(30_000, QUESTION)
    await waterfall(jobOf(prompt, { small, steering: VANISHING, signal: leaving.signal }))
    await waterfall(jobOf(prompt, { small, steering: VANISHING, signal: leaving.signal }))
    await waterfall(jobOf(prompt, { small, steering: VANISHING }))
    expect(modelCalls).toHaveLength(3)
  })
})

/** Asks the small model as the built-in tier does, and then declines. */
const withDecliningTier2 = (own: readonly Tier[]): readonly Tier[] =>
  own.map((tier): Tier => {
    if (tier.tier !== 2) return tier
    const rewrite: Tier['rewrite'] = async (job) => {
      const result = await tier.rewrite(job)
      return { declined: 'declines', spent: result.spent }
    }
    return { ...tier, rewrite }
  })

describe('after a requested tier that declines', () => {
  it('no tier runs whose small-model calls cost more', async () => {
    const { small, modelCalls } = smallModel(SUMMARY)
    const prompt = await chatOf(138_000, UNRELATED)
    const waterfall = waterfallOf({ tiers: withDecliningTier2 })
    const { rewrite, verdicts, spent } = await waterfall(jobOf(prompt, { small, steering: VANISHING }))
    expect(rewrite).toBeUndefined()
    expect(modelCalls).toHaveLength(1)
    expect(spent).toBe(1000)
    expect(verdicts.map(({ tier, outcome }) => [tier, outcome])).toEqual([
      [5, 'not-wanted'],
      [2, 'declined'],
      [3, 'does-not-pay'],
      [4, 'does-not-pay'],
    ])
  })

  it('a tier without small-model calls runs', async () => {
    const prompt = await chatOf(138_000, UNRELATED)
    const waterfall = waterfallOf({ summarizer: 'extractive', tiers: withDecliningTier2 })
    const { rewrite } = await waterfall(jobOf(prompt, { steering: VANISHING }))
    expect([3, 4]).toContain(rewrite?.tier)
  })
})
