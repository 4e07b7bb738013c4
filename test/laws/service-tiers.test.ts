import { afterAll, beforeAll, expect, it } from 'vitest'
import type { JsonObject } from '../../src/core/json.ts'
import { anthropic, openaiCompatible } from '../../src/index.ts'
import { cases, fc } from '../support/properties.ts'
import { recordingStore, type RecordingStore } from '../support/recording-store.ts'
import { sendRequest } from '../support/send-request.ts'
import { startStage, type Stage } from '../support/stage.ts'
import { type Report, TIER_FORMATS, tierReply } from '../support/tier-vendor.ts'
import { startUpstream, type Upstream } from '../support/upstream.ts'

const MARGIN = 1.5
const FACTORS = { flex: 0.5, priority: 2, ultrafast: 6, fast: 3, 'inference_geo:us': 1.1 } as const
const PRICE = { input: 10, output: 50, tiers: FACTORS }

let stage: Stage
let upstream: Upstream
let store: RecordingStore
let report: Report = {}
let reserved = 0

beforeAll(async () => {
  upstream = await startUpstream({ reply: (request) => tierReply(request, report) })
  store = recordingStore()
  const models = [{ id: 'large', price: PRICE, contextWindowTokens: 200_000, maxOutputTokens: 1000 }]
  stage = await startStage({
    margin: MARGIN,
    key: { name: 'k', budget_limit_cents: 100_000_000 },
    providers: [
      openaiCompatible({ name: 'chat', baseUrl: upstream.baseUrl, responses: true, models }),
      anthropic({ baseUrl: upstream.url, apiKey: 'k', models }),
    ],
    store: {
      ...store,
      reserve: (request) => {
        reserved = Math.max(...request.claims.map(({ amount, elastic }) => (elastic === true ? amount : 0)))
        return store.reserve(request)
      },
    },
  })
})

afterAll(async () => {
  await stage.close()
  await upstream.close()
})

/** Written in another way than in the gateway: the factor of a reported value, or undefined if it is unknown. */
function factorOf(field: string, value: string): number | undefined {
  if (['default', 'standard', 'global', 'not_available'].includes(value)) return 1
  const names: Readonly<Record<string, string>> =
    field === 'speed'
      ? { fast: 'fast' }
      : field === 'inference_geo'
        ? { us: 'inference_geo:us' }
        : { fast: 'priority', priority: 'priority', flex: 'flex', ultrafast: 'ultrafast' }
  const name = names[value] as keyof typeof FACTORS | undefined
  return name === undefined ? undefined : FACTORS[name]
}

const CHOICES: Readonly<Record<string, readonly string[]>> = {
  service_tier: ['default', 'auto', 'flex', 'fast', 'priority', 'ultrafast'],
  speed: ['standard', 'fast'],
  inference_geo: ['global', 'us'],
}

function dearestFactor(field: string, value: string): number {
  return Math.max(1, value === 'auto' ? FACTORS.priority : (factorOf(field, value) ?? 1))
}

function expectedFactor(requested: JsonObject, response: JsonObject): number {
  // An empty text names no tier.
  const reported = Object.fromEntries(Object.entries(response).filter(([, value]) => value !== ''))
  const fields = Object.keys(CHOICES)
  const isUnknown = fields.some((field) => {
    const [wanted, given] = [requested[field], reported[field]]
    if (typeof wanted !== 'string' || factorOf(field, wanted) === 1) return false
    return typeof given === 'string' ? factorOf(field, given) === undefined : wanted !== 'auto'
  })
  const factors = fields.map((field) => {
    const [wanted, given] = [requested[field], reported[field]]
    if (isUnknown) return typeof wanted === 'string' ? dearestFactor(field, wanted) : 1
    return typeof given === 'string' ? (factorOf(field, given) ?? 1) : 1
  })
  return factors.reduce((product, factor) => product * factor, 1)
}

const tierOf = (field: string, further: readonly string[]): fc.Arbitrary<string> =>
  fc.constantFrom(...(CHOICES[field] ?? []).filter((value) => further.length === 0 || value !== 'auto'), ...further)

const exchange = fc.constantFrom(...TIER_FORMATS).chain((format) => {
  const fields = format.name === 'messages' ? ['speed', 'inference_geo'] : ['service_tier']
  const record = (further: readonly string[]) =>
    fc.record(Object.fromEntries(fields.map((field) => [field, tierOf(field, further)])), { requiredKeys: [] })
  return fc.record({
    format: fc.constant(format),
    requested: record([]),
    reported: record(['turbo', 'constructor', '']),
    stream: fc.boolean(),
    prompt: fc.integer({ min: 1, max: 60 }),
    output: fc.integer({ min: 1, max: 500 }),
  })
})

it('a bill has the reported tier, is at most the reserved amount, and nothing stays reserved', async () => {
  await fc.assert(
    fc.asyncProperty(exchange, async ({ format, requested, reported, stream, prompt, output }) => {
      report = { tiers: reported, prompt, output }
      const before = store.dailyTotals()
      const spentBefore = await store.spent('budget')
      const reply = await sendRequest(stage, { ...format.body, ...requested, stream }, { path: format.path })
      expect(reply.status, reply.text).toBe(200)
      await store.waitUntilSettled()
      const { actual, billed } = store.dailyTotals()
      const list = prompt * PRICE.input * 1000 + output * PRICE.output * 1000
      const expected = list * expectedFactor(requested, reported)
      expect(actual - before.actual).toBeCloseTo(expected, 0)
      expect(billed - before.billed).toBeLessThanOrEqual(reserved)
      expect(billed - before.billed).toBeCloseTo(Math.min(expected * MARGIN, reserved), -1)
      expect((await store.spent('budget')) - spentBefore).toBe(billed - before.billed)
      expect(await store.maxHeld()).toBe(0)
    }),
    { numRuns: cases(200) },
  )
})
