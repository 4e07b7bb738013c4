/** @own-process: sends a thousand requests at once. */
import { afterEach, expect, it } from 'vitest'
import { PATIENT } from '../support/fleet/jobs.ts'
import { everyNth } from '../support/full.ts'
import { sendRequest, CHAT, MESSAGE, type Reply as ClientReply } from '../support/send-request.ts'
import { startStage, type Stage } from '../support/stage.ts'
import { limitCheckingStore } from '../support/limit-checking-store.ts'
import { gate, HANG, type Reply, type UpstreamRequest } from '../support/upstream.ts'
import { CUT, eventsUntilText } from '../support/upstream-events.ts'

/** Nano-dollars per token at the prices of the stage, without a margin. */
const [INPUT, OUTPUT] = [1_000, 2_000]
/** Prompt tokens that the upstream reports, and the longest requested answer. */
interface Sizes {
  readonly prompt: number
  readonly response: number
}
/** Maximum reservation for a prompt without an exact counter: its bytes, its overhead and its translation. */
const BOUND = 256
/** Maximum reservation for a prompt that o200k counts: 72 tokens of overhead and at most 56 for its short body. */
const COUNTED = 72 + 56
const BUDGET_CENTS = 5
const BUDGET = BUDGET_CENTS * 10_000_000
const STORM = 1000
const NOON = Date.UTC(2026, 0, 30, 12, 12, 12)

/** Outcome of a request: answered, rejected, rate limited, cut, or disconnected after or before its first word. */
type Kind = 'whole' | 'stream' | 'refused' | 'down' | 'cut' | 'left' | 'hung'
const MIXTURE: readonly Kind[] = [
  ...(['whole', 'stream', 'whole', 'stream', 'stream'] as const),
  ...(['refused', 'down', 'cut', 'left', 'hung'] as const),
]
/** Sent before the others, because chance decides which of those the budget covers. */
const FIRST: readonly Kind[] = ['refused', 'down']

interface SentRequest {
  readonly number: number
  readonly kind: Kind
  /** Undefined if the caller disconnected. */
  readonly reply: ClientReply | undefined
}

let stage: Stage | undefined
afterEach(() => stage?.close())

/** Cost of the usage that the upstream reported, in nano-dollars, by request number. */
const reported = new Map<number, number>()
const controllers = new Map<number, AbortController>()
let sizes: Sizes = { prompt: 20, response: 240 }
/** Half of the responses wait until every request of the storm is admitted or rejected. */
let decided = gate()

function reply(request: UpstreamRequest): Reply | Promise<Reply> {
  const [, digits, kind] = /Question (\d+) (\w+)\?/.exec(request.text) ?? []
  const leave = (): void => controllers.get(Number(digits))?.abort()
  const begun = eventsUntilText(request.dialect)
  if (kind === 'refused') return { kind: 'failure', status: 400 }
  if (kind === 'down') return { kind: 'failure', status: 429 }
  if (kind === 'cut') return { kind: 'events', items: [...begun, CUT] }
  if (kind === 'left') return { kind: 'events', items: [...begun, new Promise(setImmediate).then(leave), HANG] }
  if (kind !== 'hung' && Number(digits) % 4 < 2) return response(request, Number(digits))
  if (kind !== 'hung') return decided.opened.then(() => response(request, Number(digits)))
  setImmediate(leave)
  return { kind: 'hang' }
}

/** The longest allowed answer, so that it costs the granted amount. */
function response(request: UpstreamRequest, number: number): Reply {
  const output = Math.min(sizes.response, Number(request.body['max_tokens']))
  const { prompt } = sizes
  reported.set(number, prompt * INPUT + output * OUTPUT)
  const usage =
    request.dialect === 'chat'
      ? { prompt_tokens: prompt, completion_tokens: output, total_tokens: prompt + output }
      : { input_tokens: prompt, output_tokens: output }
  return { text: 'Some words.', usage }
}

/** Both endpoints with both upstreams. */
async function send(at: Stage, number: number, kind: Kind): Promise<SentRequest> {
  const endpoint = number % 2 === 0 ? CHAT : MESSAGE
  const { model } = number % 3 === 0 ? MESSAGE : CHAT
  const stream = kind === 'stream' || kind === 'cut' || kind === 'left' || (kind === 'hung' && number % 2 === 0)
  const messages = [{ role: 'user', content: `Question ${number} ${kind}?` }]
  const controller = new AbortController()
  controllers.set(number, controller)
  const body = { model, messages, max_tokens: sizes.response, stream }
  const reply = sendRequest(at, body, { path: endpoint.path, signal: controller.signal })
  return { number, kind, reply: await reply.catch(() => undefined) }
}

/** Returns the cost of each request in the audit trail, in nano-dollars, by request id. */
async function readAuditCosts({ gateway }: Stage): Promise<ReadonlyMap<string, number>> {
  const costs = new Map<string, number>()
  for (let query: { limit: number; after?: string } | undefined = { limit: 1000 }; query !== undefined;) {
    const { records, next } = await gateway.audit.read(query)
    for (const record of records) costs.set(record.requestId, Math.round(record.costUsd * 1e9))
    query = next === undefined ? undefined : { limit: 1000, after: next }
  }
  return costs
}

interface Case {
  readonly name: string
  readonly sizes: Sizes
  readonly tokenizer?: 'o200k'
  /** Upper bound of the cost of the shortest useful response. */
  readonly needed: number
}

const CASES: readonly Case[] = [
  { name: 'bounded by their bytes', sizes: { prompt: 20, response: 240 }, needed: BOUND * INPUT + 16 * OUTPUT },
  {
    name: 'counted exactly',
    sizes: { prompt: 20, response: 240 },
    tokenizer: 'o200k',
    needed: COUNTED * INPUT + 16 * OUTPUT,
  },
]

const TITLE = 'a thousand requests at once, $name, spend a budget that pays for a hundred to its end, and never more'
it.each(everyNth(2, CASES))(
  TITLE,
  async ({ sizes: given, needed, tokenizer }) => {
    sizes = given
    decided = gate()
    reported.clear()
    expect(BUDGET / (given.prompt * INPUT + given.response * OUTPUT)).toBe(100)
    // The store reports every grant above the budget, and every rejection of a request that fits.
    const store = limitCheckingStore(
      () => NOON,
      ({ reservationIds, rejections: refusals }) => {
        if (reservationIds.length + refusals.length === FIRST.length + STORM) decided.open()
      },
    )
    const key = { name: 'load', budget_limit_cents: BUDGET_CENTS, rate_limit_requests: 1_000_000 }
    const runtime = { now: () => NOON, random: () => 0 }
    const at = await startStage({
      ...(tokenizer !== undefined && { tokenizer }),
      store,
      margin: 1,
      ...PATIENT,
      runtime,
      key,
      reply,
    })
    stage = at

    const kindOf = (number: number): Kind => MIXTURE[(number * 7) % MIXTURE.length] ?? 'whole'
    const sent: SentRequest[] = []
    for (const [index, kind] of FIRST.entries()) sent.push(await send(at, 2 * STORM + index, kind))
    sent.push(...(await Promise.all(Array.from({ length: STORM }, (_, number) => send(at, number, kindOf(number))))))
    await store.waitUntilSettled()
    expect(await store.maxHeld()).toBe(0)
    // The amounts that failed and disconnected requests released can be spent.
    let number = STORM
    do sent.push(await send(at, number, number % 2 === 0 ? 'whole' : 'stream'))
    while (sent.at(-1)?.reply?.status !== 402 && (number += 1) < STORM + 200)
    await store.waitUntilSettled()

    const statuses = new Set(sent.map(({ reply }) => String(reply?.status ?? 'left')))
    expect([...statuses].toSorted()).toEqual(['200', '400', '402', '429', 'left'])
    const spent = await store.spent('budget')
    expect(await store.maxHeld()).toBe(0)
    expect(spent).toBeLessThanOrEqual(BUDGET)
    expect(store.violations).toEqual([])
    expect(store.rejections.filter(({ level, max }) => level > max)).toEqual([])

    // The remaining budget does not cover the shortest useful response.
    const minGrant = store.rejections.at(-1)?.minGrant ?? 0
    expect(BUDGET - spent).toBeLessThan(Math.min(minGrant, needed))

    // Whole responses are billed with the reported usage, and the total equals the audit trail.
    const costs = await readAuditCosts(at)
    const whole = sent.filter(({ reply, kind }) => reply?.status === 200 && kind !== 'cut')
    expect(whole.length).toBeGreaterThan(60)
    for (const { number, reply } of whole) {
      expect(costs.get(String(reply?.headers['x-request-id']))).toBe(reported.get(number))
    }
    for (const { reply } of sent.filter((one) => [400, 402, 429].includes(one.reply?.status ?? 0))) {
      expect(costs.get(String(reply?.headers['x-request-id']))).toBe(0)
    }
    expect([...costs.values()].reduce((sum, cost) => sum + cost, 0)).toBe(spent)
    expect(costs.size).toBe(sent.length)
  },
  60_000,
)
