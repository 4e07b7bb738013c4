import { APPLICATION_KEY, callerOfKey } from '../../governance/caller.ts'
import { createPause } from '../../core/async.ts'
import { add, type NanoUsd, promptTokens, toDollars, type Usage, ZERO } from '../../core/money.ts'
import type { Meter } from '../../core/ports.ts'
import { type Message, type Part, type Prompt, textOfPart } from '../../core/prompt.ts'
import { UNLIMITED, type VirtualKey } from '../../governance/virtual-key.ts'
import { type EvidenceLoss, measureLoss } from './evidence.ts'
import { createSimulatedVendor, prefixKeysOf, type SimulatedVendor } from './simulated-vendor.ts'
import type { Steering } from './tier.ts'
import { utf8Length } from '../../tokens/estimate.ts'
import { yieldToEventLoop } from '../../tokens/event-loop.ts'
import { billOf } from '../../kernel/charge.ts'
import { simulateSmallModel } from '../../kernel/small-model.ts'
import { Exchange, type Parsed, type Planned, type UpstreamPlan } from '../../kernel/exchange.ts'
import { type ReadRequest, withPath } from './explain-input.ts'
import { RecentOutputs } from '../../kernel/recent-outputs.ts'
import { parsePrompt } from '../../kernel/parse-request.ts'
import { isSentUnchanged, planUnchanged } from '../../kernel/plan.ts'
import { type PromptSavings, shortenAndMark } from './plugin.ts'
import type { Services } from '../../kernel/services.ts'
import { CollectedResponse, internalRequest } from '../../http/internal-request.ts'
import { quote } from '../../kernel/reserve.ts'

/** A way to handle the requests. */
export interface PlanSetup extends PromptSavings {
  readonly name: string
  readonly steering: Steering
}

/** What a plan costs and loses, compared with sending every request unchanged. */
export interface ExplainedPlan {
  readonly plan: string
  /** Cost of all calls to vendors, as in `X-Svc-Actual-Cost`. */
  readonly costUsd: number
  /** The same, in billionths of a dollar. */
  readonly costNanoUsd: number
  /** `costUsd` divided by that of the plan `off`. */
  readonly costShare: number
  readonly tokensReceived: number
  readonly tokensSent: number
  readonly rewrittenRequests: number
  /** Identifiers, numbers and runs of four words in the responses that the received prompts contain. */
  readonly facts: number
  /** Those that the sent prompts lack. */
  readonly lostFacts: number
  /** 1 minus `lostFacts` / `facts`. 1 if the latter is 0. */
  readonly keptShare: number
  /** Requests that cost more than with the plan `off`. */
  readonly dearerRequests: number
  /** Conversations that cost more than with the plan `off`. */
  readonly dearerSessions: number
}

/** Sums over the sessions of an explanation. */
export interface SessionTotals {
  readonly requests: number
  readonly sessions: number
  /** Requests whose response the input contains. Only these have output tokens and facts. */
  readonly answeredRequests: number
  /** True if the input has more requests than `maxRequests`. */
  readonly isTruncated: boolean
  readonly plans: readonly ExplainedPlan[]
}

export interface SessionOptions {
  /** The first one is the baseline. */
  readonly plans: readonly PlanSetup[]
  readonly meter: Meter
  /** The clock of the plans. */
  readonly clock: { now: number }
  readonly maxRequests: number
  readonly signal?: AbortSignal | undefined
}

/** Plays requests through the plan stage of the gateway, with simulated vendors. Calls no upstream and writes nothing. */
export async function explainRequests(
  requests: AsyncIterable<ReadRequest>,
  options: SessionOptions,
  services: Services,
): Promise<SessionTotals> {
  const { meter, clock, maxRequests, signal } = options
  const dryServices = isolate(services, meter, clock)
  const plans = options.plans.map((setup) => new PlanRun(setup, meter))
  const sessions = new Sessions()
  let count = 0
  let isTruncated = false
  for await (const request of requests) {
    signal?.throwIfAborted()
    isTruncated = count === maxRequests
    if (isTruncated) break
    count += 1
    clock.now = request.at
    const parsed = await withPath(request.path, parse(request, dryServices))
    const { session, response, expired } = sessions.take(parsed.prompt)
    if (expired?.last !== undefined) await finish(expired, expired.last, undefined, meter)
    if (session.last !== undefined) await finish(session, session.last, response, meter)
    session.last = { prompt: parsed.prompt, sent: await sendWithEach(plans, parsed, dryServices) }
    await yieldToEventLoop()
  }
  for (const session of sessions.all) {
    if (session.last !== undefined) await finish(session, session.last, undefined, meter)
    compareSessions(session)
  }
  return {
    requests: count,
    sessions: sessions.all.length,
    answeredRequests: sessions.all.reduce((sum, { responded }) => sum + responded, 0),
    isTruncated,
    plans: plans.map((run) => run.result(plans[0])),
  }
}

/** A conversation in the input. */
interface Session {
  last: { readonly prompt: Prompt; readonly sent: readonly SentRequest[] } | undefined
  responded: number
  readonly costs: Map<PlanRun, NanoUsd>
}

interface SentRequest {
  readonly run: PlanRun
  readonly planned: Planned
  readonly plan: UpstreamPlan
  /** Without output. */
  readonly usage: Usage
}

async function sendWithEach(
  runs: readonly PlanRun[],
  parsed: Parsed,
  services: Services,
): Promise<readonly SentRequest[]> {
  const sent: SentRequest[] = []
  for (const run of runs) sent.push(...(await run.send(parsed, services)))
  return sent
}

/** Bills the last request of a session, whose response is now known. */
async function finish(
  session: Session,
  { prompt, sent }: NonNullable<Session['last']>,
  response: readonly Part[] | undefined,
  { tokenizer }: Meter,
): Promise<void> {
  const pause = createPause(yieldToEventLoop)
  const outputTokens = tokenizer.estimate((response ?? []).map(textOfPart).join('\n'))
  if (response !== undefined) session.responded += 1
  const unchanged = response && (await measureLoss({ received: prompt, sent: prompt, response }, pause))
  let baseline: NanoUsd | undefined
  for (const request of sent) {
    const { run, planned, plan: upstreamPlan, usage } = request
    const route = planned.resolved.routes[0]
    const bill = billOf(planned, upstreamPlan, { route, usage: { ...usage, outputTokens }, isEstimated: false })
    const { rewrite } = upstreamPlan.optimization
    const loss =
      rewrite === undefined || response === undefined
        ? unchanged
        : await measureLoss({ received: prompt, sent: rewrite.prompt, response }, pause)
    baseline ??= bill.actual
    session.costs.set(run, add(session.costs.get(run) ?? ZERO, bill.actual))
    run.record({ ...bill, loss, isRewritten: rewrite !== undefined, isDearer: bill.actual > baseline })
  }
  session.last = undefined
}

function compareSessions({ costs }: Session): void {
  const [baseline = ZERO] = costs.values()
  for (const [run, cost] of costs) if (cost > baseline) run.dearerSessions += 1
}

interface BilledRequest {
  readonly actual: NanoUsd
  readonly originalTokens: number
  readonly optimizedTokens: number
  readonly loss: EvidenceLoss | undefined
  readonly isRewritten: boolean
  readonly isDearer: boolean
}

class PlanRun {
  dearerSessions = 0
  readonly #setup: PlanSetup
  readonly #vendor: SimulatedVendor
  #cost = ZERO
  readonly #sums = { received: 0, sent: 0, rewritten: 0, facts: 0, lost: 0, dearer: 0 }

  constructor(setup: PlanSetup, meter: Meter) {
    this.#setup = setup
    this.#vendor = createSimulatedVendor(meter)
  }

  async send(parsed: Parsed, services: Services): Promise<readonly SentRequest[]> {
    const quoted = quote(parsed, false)
    const grant = { rate: NO_RATE, quote: quoted, outputTokens: quoted.outputTokens }
    const reserved = Object.assign(parsed, { grant })
    const unchanged = planUnchanged(reserved)
    const upstreamPlan = isSentUnchanged(reserved)
      ? unchanged
      : ((await shortenAndMark(reserved, unchanged, this.#setup, services)) ?? unchanged)
    const planned = Object.assign(reserved, { plan: upstreamPlan })
    const { model, provider } = planned.resolved.routes[0]
    const { dialect } = provider
    const usage = await this.#vendor.receive({ prompt: upstreamPlan.prompt, model, dialect, now: parsed.startedAt })
    await upstreamPlan.optimization.reportSent?.({ promptTokens: promptTokens(usage), usage })
    await upstreamPlan.markers?.report(usage)
    return [{ run: this, planned, plan: upstreamPlan, usage }]
  }

  record({ actual, originalTokens, optimizedTokens, loss, isRewritten, isDearer }: BilledRequest): void {
    const sums = this.#sums
    this.#cost = add(this.#cost, actual)
    sums.received += originalTokens
    sums.sent += optimizedTokens
    sums.rewritten += isRewritten ? 1 : 0
    sums.dearer += isDearer ? 1 : 0
    sums.facts += loss?.facts ?? 0
    sums.lost += loss?.lost ?? 0
  }

  result(baseline: PlanRun | undefined): ExplainedPlan {
    const { received, sent, rewritten, facts, lost, dearer } = this.#sums
    return {
      plan: this.#setup.name,
      costUsd: toDollars(this.#cost),
      costNanoUsd: this.#cost,
      costShare: share(this.#cost, baseline === undefined ? 0 : baseline.#cost),
      tokensReceived: received,
      tokensSent: sent,
      rewrittenRequests: rewritten,
      facts,
      lostFacts: lost,
      keptShare: share(facts - lost, facts),
      dearerRequests: dearer,
      dearerSessions: this.dearerSessions,
    }
  }
}

function share(part: number, total: number): number {
  return total === 0 ? 1 : Math.round((part / total) * 1e6) / 1e6
}

const NO_RATE = { limit: UNLIMITED, remaining: UNLIMITED, resetAt: 0 }

const KEY: VirtualKey = { ...APPLICATION_KEY, id: 'explain', name: 'explain', description: '' }

async function parse({ body, format, at }: ReadRequest, services: Services): Promise<Parsed> {
  const request = internalRequest('', {}, JSON.stringify(body))
  const start = { id: 'explain', startedAt: at, request, sink: new CollectedResponse(), format }
  const exchange = new Exchange(start, { hasClient: false, isDetached: false })
  const maxSerializedBytes = utf8Length(JSON.stringify(body))
  const authenticated = Object.assign(exchange, { key: KEY, caller: callerOfKey(KEY) })
  return Object.assign(authenticated, await parsePrompt(authenticated, { body, maxSerializedBytes }, services))
}

/** The services of the gateway without those that have state or call upstreams. */
function isolate(services: Services, meter: Meter, clock: { readonly now: number }): Services {
  return {
    ...services,
    meter,
    hooks: { ...services.hooks, completeBody: undefined },
    smallModel: (route, caller) => simulateSmallModel(services.smallModel(route, caller), meter),
    margin: () => 1,
    policies: { ...services.policies, vendorTools: 'allow', surcharges: 'allow' },
    recentOutputs: new RecentOutputs(),
    runtime: { ...services.runtime, now: () => clock.now },
  }
}

/** Each keeps its last prompt, as sent by each plan. */
const MAX_OPEN_SESSIONS = 1000

/** Recognizes the conversation that a request continues, by the whole prompt of the last request. */
class Sessions {
  readonly all: Session[] = []
  readonly #byLastPrompt = new Map<number, Session>()

  take(prompt: Prompt): {
    readonly session: Session
    readonly response: readonly Part[] | undefined
    /** Too many conversations are open. A later request does not continue this one. */
    readonly expired: Session | undefined
  } {
    const keys = prefixKeysOf(prompt.messages)
    const end = keys.findLastIndex((key, length) => length > 0 && this.#byLastPrompt.has(key))
    const key = keys[end] ?? -1
    const continued = this.#byLastPrompt.get(key)
    const session = continued ?? { last: undefined, responded: 0, costs: new Map() }
    if (continued === undefined) this.all.push(session)
    this.#byLastPrompt.delete(key)
    this.#byLastPrompt.set(keys.at(-1) ?? -1, session)
    const response = continued === undefined ? undefined : responseIn(prompt.messages.slice(end))
    const [oldest] = this.#byLastPrompt
    if (oldest === undefined || this.#byLastPrompt.size <= MAX_OPEN_SESSIONS) {
      return { session, response, expired: undefined }
    }
    this.#byLastPrompt.delete(oldest[0])
    return { session, response, expired: oldest[1] }
  }
}

/** Returns undefined for a repetition of the last request. */
function responseIn(added: readonly Message[]): readonly Part[] | undefined {
  const end = added.findIndex(({ role }) => role !== 'assistant')
  const parts = added.slice(0, end === -1 ? added.length : end).flatMap((message) => message.parts)
  return parts.length === 0 ? undefined : parts
}
