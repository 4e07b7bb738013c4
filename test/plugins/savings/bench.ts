import { toNanoUsd, ZERO } from '../../../src/core/money.ts'
import type { Meter, Model } from '../../../src/core/ports.ts'
import type { Prompt } from '../../../src/core/prompt.ts'
import { createWaterfall, type WaterfallOptions } from '../../../src/plugins/savings/waterfall.ts'
import type { SmallModel } from '../../../src/core/ports.ts'
import type { TierJob, WaterfallResult } from '../../../src/plugins/savings/tier.ts'
import { yieldToEventLoop } from '../../../src/tokens/event-loop.ts'
import { PromptMeter, createTokenizer } from '../../../src/tokens/meter.ts'

export const meter: Meter = new PromptMeter(createTokenizer())

export const MODEL: Model = {
  id: 'large',
  family: 'mock',
  contextWindowTokens: 1_000_000,
  maxOutputTokens: 1000,
  price: { input: 3, output: 15 },
}

/** Creates a text store whose entries the test can read. */
export function textStore(): { readonly store: WaterfallOptions['store']; readonly entries: Map<string, string> } {
  const entries = new Map<string, string>()
  const store = {
    get: async (key: string) => entries.get(key),
    set: async (key: string, value: string) => {
      entries.set(key, value)
    },
  }
  return { store, entries }
}

/** Returns a waterfall whose prompts the vendor processes. */
export function waterfallOf(options: Partial<WaterfallOptions> = {}): (job: TierJob) => Promise<WaterfallResult> {
  const waterfall = createWaterfall({
    meter,
    store: textStore().store,
    now: () => 1e12,
    after: () => () => undefined,
    yieldToEventLoop,
    agents: true,
    keep: 0,
    ...options,
  })
  return async (job) => {
    const result = await waterfall(job)
    await result.reportSent?.()
    return result
  }
}

/** Creates a small model that answers with `reply` and records its prompts. */
export function smallModel(reply: string | ((text: string) => string | Promise<string>)): {
  readonly small: SmallModel
  readonly modelCalls: { instruction: string; text: string }[]
} {
  const modelCalls: { instruction: string; text: string }[] = []
  const small: SmallModel = {
    name: 'mock/small',
    async ask({ instruction, text }) {
      modelCalls.push({ instruction, text })
      return { text: typeof reply === 'string' ? reply : await reply(text), spent: toNanoUsd(1000) }
    },
    price: (input, output) => toNanoUsd(input * 100 + output * 400),
  }
  return { small, modelCalls }
}

export function jobOf(prompt: Prompt, more: Partial<TierJob> = {}): TierJob {
  return {
    prompt,
    modelName: 'mock/large',
    model: MODEL,
    tokens: meter.estimatePrompt(prompt),
    steering: { vanishing: false, recursive: false },
    owner: 'key-1',
    small: undefined,
    signal: new AbortController().signal,
    now: 1e12,
    ...more,
  }
}

export const NOTHING_SPENT: typeof ZERO = ZERO
