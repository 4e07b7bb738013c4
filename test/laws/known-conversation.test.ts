import { describe, expect, it } from 'vitest'
import type { Message, Prompt } from '../../src/core/prompt.ts'
import type { Steering, TierJob, WaterfallResult } from '../../src/plugins/savings/tier.ts'
import { createWaterfall } from '../../src/plugins/savings/waterfall.ts'
import { yieldToEventLoop } from '../../src/tokens/event-loop.ts'
import { PromptMeter } from '../../src/tokens/meter.ts'
import { jobOf, MODEL } from '../plugins/savings/bench.ts'
import { conversation } from '../plugins/savings/conversation.ts'
import { cases, fc } from '../support/properties.ts'

const steerings: readonly [string, Steering][] = [
  ['the slider', { level: 'extreme', vanishing: false, recursive: false }],
  ['vanishing context', { vanishing: true, recursive: false }],
  ['no header', { vanishing: false, recursive: false }],
]
const MAX_TURNS = 4
/** Estimates and counts are the same, because a process uses the counts that it knows as estimates. */
const countAt = (text: string): number => Math.ceil(text.length / 4)
const tokenizer = { estimate: countAt, count: async (text: string) => countAt(text) }
const model = { ...MODEL, price: { ...MODEL.price, cacheRead: 0.3 } }

type Run = (job: TierJob) => Promise<WaterfallResult>

function createProcess(entries: Map<string, string>): Run {
  const meter = new PromptMeter(tokenizer)
  const store = {
    get: async (key: string) => entries.get(key),
    set: async (key: string, value: string) => void entries.set(key, value),
  }
  const thresholds = { vanishing: 9000, recursive: 14_000, family: 4000 }
  const options = { meter, store, thresholds, now: () => 1e12, after: () => () => {}, yieldToEventLoop }
  const waterfall = createWaterfall({ ...options, agents: true, keep: 0 })
  return async (job) => {
    await waterfall.passUnchanged(job, 1e9)
    await meter.cacheEstimates(job.prompt)
    const result = await waterfall({ ...job, tokens: meter.estimatePrompt(job.prompt) })
    await result.reportSent?.()
    return result
  }
}

/** Prompts of one conversation that end with a message of the user. Each turn may change one earlier text. */
const turns = fc
  .record({
    prompt: conversation,
    edited: fc.array(fc.option(fc.nat(60)), { minLength: MAX_TURNS, maxLength: MAX_TURNS }),
  })
  .map(({ prompt, edited }) => {
    const ends = prompt.messages.flatMap(({ role }, index) => (role === 'user' ? [index + 1] : [])).slice(-MAX_TURNS)
    let { messages } = prompt
    return ends.map((end, turn): Prompt => {
      messages = messages.map((message, index) => (index === edited[turn] ? withOtherWords(message) : message))
      return { ...prompt, messages: structuredClone(messages.slice(0, end)) }
    })
  })

/** Keeps the length, so that only reading the text finds the change. */
function withOtherWords(message: Message): Message {
  const parts = message.parts.map((part) => {
    return part.type === 'text' ? { ...part, text: part.text.replaceAll('o', 'u') } : part
  })
  return { ...message, parts }
}

function sentOf({ rewrite, tokens, verdicts }: WaterfallResult): unknown {
  return { tokens, verdicts, sent: rewrite?.tokens, strategy: rewrite?.strategy, messages: rewrite?.prompt.messages }
}

describe.each(steerings)('a process that knows the conversation, with %s', (_, steering) => {
  it('sends the same prompt as one that reads all messages again', async () => {
    await fc.assert(
      fc.asyncProperty(turns, async (prompts) => {
        const entries = new Map<string, string>()
        const known = createProcess(entries)
        for (const prompt of prompts) {
          const job = jobOf(prompt, { model, steering, tokens: 0 })
          const fresh = await createProcess(new Map(entries))(job)
          expect(sentOf(await known({ ...job, prompt: structuredClone(prompt) }))).toEqual(sentOf(fresh))
        }
      }),
      { numRuns: cases(60) },
    )
  })
})
