import { noNetwork } from '../../support/no-network.ts'
import { describe, expect, it } from 'vitest'
import { memoryStore } from '../../../src/index.ts'
import { toNanoUsd } from '../../../src/core/money.ts'
import type { Runtime } from '../../../src/core/ports.ts'
import type { Store } from '../../../src/core/store.ts'
import { textOfMessage } from '../../../src/core/messages.ts'
import { type Message, type Prompt } from '../../../src/core/prompt.ts'
import { createSavings, type SavingsOptions } from '../../../src/plugins/savings/options.ts'
import type { ShadowFields, ShadowRecord } from '../../../src/plugins/savings/shadow.ts'
import type { Tier, TierJob, Waterfall, WaterfallResult } from '../../../src/plugins/savings/tier.ts'
import { jobOf, meter, MODEL, smallModel } from './bench.ts'
import { promptOf, prose, text } from './conversation.ts'

const CACHED = { ...MODEL, price: { ...MODEL.price, cacheRead: 0.3 } }
const NOW = 1e12

const user = (words: string): Message => ({ role: 'user', parts: [text(words)] })
const assistant = (words: string): Message => ({ role: 'assistant', parts: [text(words)] })

/** Returns a chat of about 24k tokens. */
function chat(): Prompt {
  const past = Array.from({ length: 110 }, (_, at) => [user(prose(at, 20)), assistant(prose(at + 5000, 90))])
  return promptOf([...past.flat(), user('What of the harbour, the ledger and the orchard?')], 'chat')
}

function next(prompt: Prompt): Prompt {
  return { ...prompt, messages: [...prompt.messages, assistant('Yes.'), user('And of the glacier and the violin?')] }
}

/** Creates a store that reports its first write. */
function watchedStore(): { readonly store: Store; readonly written: Promise<void> } {
  const store = memoryStore()
  const { promise, resolve } = deferred()
  const set: Store['set'] = async (...given) => {
    await store.set(...given)
    resolve()
  }
  return { store: { ...store, set }, written: promise }
}

function deferred(): { readonly promise: Promise<void>; readonly resolve: () => void } {
  let resolve = (): void => {}
  const promise = new Promise<void>((done) => (resolve = done))
  return { promise, resolve: () => resolve() }
}

/** The savings of a gateway over a store; `trial` sends a request whose trial has an outcome, and waits for that. */
function savingsOf(
  options: SavingsOptions,
  store: Store,
  random = 0,
): {
  readonly waterfall: Waterfall
  readonly trial: (job: TierJob) => Promise<ShadowRecord>
  readonly records: readonly ShadowRecord[]
  readonly unchanged: readonly ShadowFields[]
} {
  const reports: ((record: ShadowRecord) => void)[] = []
  const records: ShadowRecord[] = []
  const unchanged: ShadowFields[] = []
  const runtime: Runtime = {
    now: () => NOW,
    random: () => random,
    uuid: () => '',
    transport: noNetwork,
    after: () => () => undefined,
  }
  const observer = {
    onShadow: (record: ShadowRecord) => {
      records.push(record)
      reports.shift()?.(record)
    },
    log: {
      info: (event: string, fields: ShadowFields) => void (event === 'shadow' || unchanged.push(fields)),
      failure: (_event: string, cause: unknown) => {
        throw cause
      },
    },
  }
  const savings = createSavings({ agents: true, ...options }, { store, meter, runtime }, observer)
  const send = async (job: TierJob): Promise<WaterfallResult> => {
    const result = await savings(job)
    await result.reportSent?.()
    return result
  }
  const waterfall: Waterfall = Object.assign(send, {
    isTooSmall: savings.isTooSmall,
    passUnchanged: savings.passUnchanged,
  })
  const trial = async (job: TierJob): Promise<ShadowRecord> => {
    const reported = new Promise<ShadowRecord>((resolve) => reports.push(resolve))
    const result = await waterfall(job)
    expect(result.rewrite).toBeUndefined()
    result.reportResponse?.(undefined)
    return reported
  }
  return { waterfall, trial, records, unchanged }
}

/** A tier that keeps the newest messages. */
const newestOnly: Tier = {
  tier: 2,
  wants: () => true,
  forecast: (job) => {
    const target = Math.round(job.tokens / 2)
    return { tokens: target, callCost: toNanoUsd(0), nextCut: { limit: 2 * target, target, callCost: toNanoUsd(0) } }
  },
  rewrite: async (job) => {
    const prompt = { ...job.prompt, messages: job.prompt.messages.slice(-60) }
    const tokens = await meter.countPrompt(prompt)
    return { rewrite: { prompt, tokens, tier: 2, strategy: 'Newest only' }, spent: toNanoUsd(0) }
  },
}

describe('a shadow trial', () => {
  it('reports the sizes and the cost of a rewrite', async () => {
    const prompt = chat()
    const { trial } = savingsOf({ shadowShare: 1, tiers: [newestOnly] }, memoryStore())

    expect(await trial(jobOf(prompt))).toEqual({
      strategy: 'Newest only',
      originalTokens: await meter.countPrompt(prompt),
      optimizedTokens: await meter.countPrompt({ ...prompt, messages: prompt.messages.slice(-60) }),
      spent: toNanoUsd(0),
      tier: 2,
      evidence: undefined,
      isDropped: false,
    })
  })

  it('reports nothing without a rewrite', async () => {
    const { store, written } = watchedStore()
    const { waterfall, records } = savingsOf({ shadowShare: 1, tiers: [] }, store)
    await waterfall(jobOf(chat()))
    await written
    await new Promise((resolve) => setImmediate(resolve))

    expect(records).toEqual([])
  })

  it('below the floor is reported once, with the option to change', async () => {
    const { waterfall, unchanged } = savingsOf({ shadowShare: 1 }, memoryStore())
    const prompt = chat()
    for (const sent of [prompt, next(prompt), next(next(prompt))]) {
      expect(await waterfall.passUnchanged(jobOf(sent), 30_000)).toBeDefined()
    }
    expect(unchanged).toEqual([
      {
        tier: 4,
        outcome: 'below-floor',
        reason: 'keeps less than savings.keep (97.0%)',
        advice: 'set savings.keep to the share that you want to try, such as 0.8',
      },
    ])
  })

  it('that is counted is reported, too, once for each reason', async () => {
    const { waterfall, unchanged } = savingsOf(
      {
        shadowShare: 1,
        tiers: [{ ...newestOnly, wants: () => true, forecast: () => ({ tokens: 1e6, callCost: toNanoUsd(0) }) }],
      },
      memoryStore(),
    )
    for (let count = 0; count < 2; count++) await (await waterfall(jobOf(chat()))).reportSent?.()
    expect(unchanged).toEqual([{ tier: 2, outcome: 'does-not-pay', reason: 'not expected to save money' }])
  })

  it('is not reported with a share of 0', async () => {
    const { waterfall, unchanged } = savingsOf({ shadowShare: 0 }, memoryStore(), 0.5)
    await waterfall.passUnchanged(jobOf(chat()), 30_000)
    expect(unchanged).toEqual([])
  })

  it('stores no cut that later requests continue', async () => {
    const store = memoryStore()
    const tried = smallModel('Facts and values: the trial says 4711.')
    const prompt = chat()
    await savingsOf({ shadowShare: 1, keep: 0 }, store).trial(jobOf(prompt, { small: tried.small }))
    expect(tried.modelCalls).toHaveLength(1)

    const real = smallModel('Facts and values: the real one says 1234.')
    const { waterfall } = savingsOf({ keep: 0 }, store)
    const { rewrite } = await waterfall(jobOf(next(prompt), { small: real.small }))
    expect(rewrite?.tier).toBe(4)
    const words = (rewrite?.prompt.messages ?? []).map(textOfMessage).join()
    expect(words).toContain('1234')
    expect(words).not.toContain('4711')
  })

  it.each([
    ['tried', 0],
    ['not tried', 0.9],
  ])('is recorded as sent unchanged: the next request has a cached prefix if this one is %s', async (_, random) => {
    const { store, written } = watchedStore()
    const prompt = chat()
    const shadowed = savingsOf({ shadowShare: 0.5, tiers: [newestOnly] }, store, random)
    // A model without a cache price, because a conversation that another process may have sent is not tried.
    const job = jobOf(prompt, { model: MODEL })
    if (random < 0.5) await shadowed.trial(job)
    else await shadowed.waterfall(job)
    await written

    const { waterfall } = savingsOf({ tiers: [newestOnly] }, store)
    const known = await waterfall(jobOf(next(prompt), { model: CACHED }))
    expect(known.verdicts.map(({ outcome }) => outcome)).toEqual(['does-not-pay'])
    expect(known.expectedCacheRead?.()).toBeGreaterThan(0)
    const unknown = await savingsOf({ tiers: [newestOnly] }, memoryStore()).waterfall(jobOf(prompt, { model: MODEL }))
    expect(unknown.rewrite?.strategy).toBe('Newest only')
  })

  it('continues the trial of the last turn, so its summary is paid once', async () => {
    const { trial } = savingsOf({ shadowShare: 1, keep: 0 }, memoryStore())
    const { small, modelCalls } = smallModel('Facts and values: the trial says 4711.')
    const prompt = chat()
    await trial(jobOf(prompt, { small }))
    await trial(jobOf(next(prompt), { small }))
    expect(modelCalls).toHaveLength(1)
  })
})
