import { expect, it } from 'vitest'
import type { JsonObject } from '../../src/core/json.ts'
import { anthropic, createGateway, openaiCompatible } from '../../src/index.ts'
import { CHAT, MESSAGE } from '../support/send-request.ts'
import { limitCheckingStore } from '../support/limit-checking-store.ts'
import { cases, fc } from '../support/properties.ts'
import { buildEvents, formatEvent } from '../support/upstream.ts'
import { buildBody } from '../support/upstream-responses.ts'

const NOON = Date.UTC(2026, 0, 30, 12, 12, 12)
const CENT = 10_000_000
/** Three of the longest answers cost more than a cent. */
const PRICE = { input: 2, output: 4 }
const PROMPT = 20

const request = fc.record({
  key: fc.nat(1),
  endpoint: fc.constantFrom(CHAT, MESSAGE),
  model: fc.constantFrom(CHAT.model, MESSAGE.model),
  stream: fc.boolean(),
  maxTokens: fc.constantFrom(1, 20, 500, 1_000, 1_000),
  /** Share of the allowed output that the response uses. */
  share: fc.constantFrom(0, 0.3, 1, 1, 1),
  ending: fc.constantFrom('whole', 'whole', 'whole', 'refused', 'cut', 'left'),
})
type Asked = typeof request extends fc.Arbitrary<infer value> ? value : never

/** A change of the shared budget while requests are in flight. */
const change = fc.record({ cents: fc.integer({ min: 0, max: 4 }), every: fc.constantFrom('1h', '1d', '1M' as const) })

interface Play {
  readonly schedule: fc.Scheduler
  readonly requests: readonly Asked[]
  /** Nano-dollars by request number. */
  readonly reported: Map<number, number>
}

/** An upstream that sends each response, and each piece of a stream, when the schedule says so. */
function upstreamOf({ schedule, requests, reported }: Play): typeof fetch {
  return async (url, init) => {
    const text = typeof init?.body === 'string' ? init.body : new TextDecoder().decode(init?.body as Uint8Array)
    const body = JSON.parse(text) as JsonObject
    const dialect = String(url).includes('/messages') ? 'messages' : 'chat'
    const index = Number(/Question (\d+)\?/.exec(text)?.[1])
    const { ending, share, stream } = requests[index] as Asked
    await schedule.schedule(Promise.resolve(), `answer ${index}`)
    init?.signal?.throwIfAborted()
    if (ending === 'refused') return Response.json({ error: { message: 'No.' } }, { status: 400 })

    const output = Math.ceil(share * Number(body['max_tokens']))
    reported.set(index, PROMPT * 2_000 + output * 4_000)
    const usage =
      dialect === 'chat'
        ? { prompt_tokens: PROMPT, completion_tokens: output, total_tokens: PROMPT + output }
        : { input_tokens: PROMPT, output_tokens: output }
    const asked = { index, text, body, dialect } as const
    const response = { text: output === 0 ? '' : 'Some words.', usage }
    if (!stream) return Response.json(buildBody(asked, response))
    const frames = buildEvents(asked, response).map(formatEvent)
    // The cut precedes the finish reason, the usage and the last event of the chat format, or the usage of the other
    // format.
    const sent = ending === 'cut' ? frames.slice(0, dialect === 'chat' ? -3 : -2) : frames
    return new Response(piecesOf(sent, schedule, init?.signal ?? undefined), {
      headers: { 'content-type': 'text/event-stream' },
    })
  }
}

function piecesOf(
  texts: readonly string[],
  schedule: fc.Scheduler,
  signal: AbortSignal | undefined,
): ReadableStream<Uint8Array> {
  let next = 0
  return new ReadableStream({
    pull: async (controller) => {
      await schedule.schedule(Promise.resolve(), 'piece')
      const text = texts[next++]
      if (signal?.aborted === true) controller.error(signal.reason)
      else if (text === undefined) controller.close()
      else controller.enqueue(new TextEncoder().encode(text))
    },
  })
}

it('in any order of events, budgets are not exceeded, accept every request that fits, and equal the sum of the bills', async () => {
  const acts = fc.array(request, { minLength: 3, maxLength: 25 })
  await fc.assert(
    fc.asyncProperty(fc.scheduler(), acts, fc.array(change, { maxLength: 3 }), async (schedule, requests, changes) => {
      const store = limitCheckingStore(() => NOON)
      const reported = new Map<number, number>()
      const models = ['large'].map((id) => ({ id, price: PRICE, contextWindowTokens: 200_000, maxOutputTokens: 1000 }))
      const gateway = createGateway({
        providers: [
          openaiCompatible({ name: 'chat', baseUrl: 'http://upstream/v1', models }),
          anthropic({ baseUrl: 'http://upstream', apiKey: 'none', models }),
        ],
        store,
        margin: 1,
        cache: false,
        runtime: { now: () => NOON, random: () => 0, fetch: upstreamOf({ schedule, requests, reported }) },
      })
      await gateway.budgets.create({ id: 'team', max_limit: 0.01, reset_duration: '1d' })
      const keys = [
        await gateway.keys.create({ name: 'own', budget_id: 'team', budget_limit_cents: 1 }),
        await gateway.keys.create({ name: 'other', budget_id: 'team' }),
      ]

      const send = async (one: Asked, index: number): Promise<{ status: number; id: string | null; text: string }> => {
        const controller = new AbortController()
        if (one.ending === 'left') {
          void schedule.schedule(Promise.resolve(), `leave ${index}`).then(() => controller.abort())
        }
        const response = await gateway.fetch(
          new Request(`http://gateway${one.endpoint.path}`, {
            method: 'POST',
            headers: { 'x-bf-vk': keys[one.key]?.value ?? '', 'content-type': 'application/json' },
            body: JSON.stringify({
              model: one.model,
              stream: one.stream,
              max_tokens: one.maxTokens,
              messages: [{ role: 'user', content: `Question ${index}?` }],
            }),
            signal: controller.signal,
          }),
        )
        const text = await response.text().catch(() => '')
        return { status: response.status, id: response.headers.get('x-request-id'), text }
      }
      const changing = changes.map(async ({ cents, every }) => {
        await schedule.schedule(Promise.resolve(), 'change')
        await gateway.budgets.update('team', { max_limit: cents / 100, reset_duration: every })
      })
      const ended = await schedule.waitFor(Promise.all(requests.map(send)))
      await schedule.waitFor(Promise.all(changing))
      await schedule.waitFor(store.waitUntilSettled())

      expect(store.violations).toEqual([])
      expect(await store.maxHeld()).toBe(0)
      const spent = store.dailyTotals().billed
      const highest = Math.max(1, ...changes.map(({ cents }) => cents)) * CENT
      expect(spent).toBeLessThanOrEqual(highest)
      const records = (await gateway.audit.read({ limit: 1000 })).records
      const costs = new Map(records.map((record) => [record.requestId, Math.round(record.costUsd * 1e9)]))
      expect([...costs.values()].reduce((sum, cost) => sum + cost, 0)).toBe(spent)
      expect(costs.size).toBe(requests.length)
      for (const [index, { status, id, text }] of ended.entries()) {
        const isWhole = status === 200 && (requests[index]?.stream === false || /\[DONE\]|message_stop/.test(text))
        if (isWhole) expect(costs.get(id ?? '')).toBe(reported.get(index))
        // A caller that disconnects after the upstream call begins is billed for the prompt.
        if (status !== 200 && requests[index]?.ending !== 'left') expect(costs.get(id ?? '')).toBe(0)
      }
      const own = records.filter((record) => record.keyId === keys[0]?.id)
      const usage = await gateway.keys.usage(keys[0]?.id ?? '')
      expect(usage.requests).toBeLessThanOrEqual(own.length)
      const [level] = await store.levels([`budget:key:${keys[0]?.id}:1M:${Date.UTC(2026, 0, 1)}`])
      expect(level?.spent).toBe(own.reduce((sum, record) => sum + Math.round(record.costUsd * 1e9), 0))
      expect(level?.spent).toBeLessThanOrEqual(CENT)
      await gateway.close()
    }),
    { numRuns: cases(60) },
  )
}, 60_000)
