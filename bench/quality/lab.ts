import type { Model } from '../../src/core/ports.ts'
import { toNanoUsd } from '../../src/core/money.ts'
import type { Prompt } from '../../src/core/prompt.ts'
import type { SmallModel } from '../../src/core/ports.ts'
import type { Steering, TierJob, WaterfallResult } from '../../src/plugins/savings/tier.ts'
import { createWaterfall, type WaterfallOptions } from '../../src/plugins/savings/waterfall.ts'
import { yieldToEventLoop } from '../../src/tokens/event-loop.ts'
import { PromptMeter, createTokenizer } from '../../src/tokens/meter.ts'

/** Shared by all measurements, so that each conversation is counted once. */
export const meter: PromptMeter = new PromptMeter(createTokenizer())

/** Start of the simulated clock. */
export const START = 1_700_000_000_000

export const MODEL: Model = {
  id: 'large',
  family: 'mock',
  contextWindowTokens: 1_000_000,
  maxOutputTokens: 4096,
  price: { input: 3, output: 15 },
}

/** Returns a waterfall with a new, empty store, whose prompts the vendor processes. */
export function newWaterfall(options: Partial<WaterfallOptions> = {}): (job: TierJob) => Promise<WaterfallResult> {
  const texts = new Map<string, string>()
  const store = {
    get: async (key: string) => texts.get(key),
    set: async (key: string, value: string) => {
      texts.set(key, value)
    },
  }
  const after = (ms: number, callback: () => void): (() => void) => {
    const timer = setTimeout(callback, ms)
    return () => clearTimeout(timer)
  }
  const fixed = { meter, store, now: () => START, after, yieldToEventLoop }
  const waterfall = createWaterfall({ ...fixed, agents: true, keep: 0, ...options })
  return async (job) => {
    const result = await waterfall(job)
    await result.reportSent?.()
    return result
  }
}

export const NO_STEERING: Steering = { vanishing: false, recursive: false }

export function jobOf(prompt: Prompt, more: Partial<TierJob> = {}): TierJob {
  return {
    prompt,
    modelName: 'mock/large',
    model: MODEL,
    tokens: meter.estimatePrompt(prompt),
    steering: NO_STEERING,
    owner: 'bench',
    small: undefined,
    signal: new AbortController().signal,
    now: START,
    ...more,
  }
}

/** Simulated replies of the small model, from useful to useless. */
export const SMALL_REPLIES: Readonly<Record<string, (text: string, maxTokens: number) => string | Promise<string>>> = {
  lazy: (text, maxTokens) =>
    text
      .split('\n')
      .slice(1)
      .join('\n')
      .slice(0, maxTokens * 2),
  refusing: () => 'I am sorry, but I cannot help with that.',
  nonsense: () => '{"terms": ["banana", "quantum", "weather", "soccer", "paris", "recipe", "guitar", "ocean"]}',
  empty: () => '',
  failing: () => Promise.reject(new Error('down')),
}

/** Returns a small model at a fifth of the large model's price, with counters of its calls and their cost. */
export function smallModelOf(kind: string): { readonly small: SmallModel; calls: number; dollars: number } {
  const price = (prompt: number, output: number): number => prompt * 600 + output * 3000
  const reply = SMALL_REPLIES[kind] ?? (() => '')
  const ledger = {
    calls: 0,
    dollars: 0,
    small: {
      name: 'mock/small',
      price: (prompt: number, output: number) => toNanoUsd(price(prompt, output)),
      async ask({ instruction, text, maxTokens }: Parameters<SmallModel['ask']>[0]) {
        ledger.calls++
        const output = await reply(text, maxTokens)
        const spent = price(meter.tokenizer.estimate(instruction + text), meter.tokenizer.estimate(output))
        ledger.dollars += spent / 1e9
        return { text: output, spent: toNanoUsd(spent) }
      },
    },
  }
  return ledger
}
