import type { Bill, ExcessUsage } from '../billing/bill.ts'
import { chain, isPromise, type MaybePromise } from '../core/async.ts'
import { GatewayError } from '../core/errors.ts'
import type { HttpRequest } from '../core/http.ts'
import { type NanoUsd, ZERO } from '../core/money.ts'
import type { RequestUsage } from '../governance/reservation.ts'
import type { Audit } from '../plugins/audit/audit.ts'
import type { Metrics } from '../plugins/metrics/metrics.ts'
import type { RequestLog } from '../plugins/request-log/request-log.ts'
import { billForDisconnect, billForFailure, prepareBill } from './charge.ts'
import {
  type Exchange,
  type Planned,
  type RequestOutcome,
  type Reserved,
  waitForStore,
  type Answered,
  type UpstreamPlan,
} from './exchange.ts'
import type { Observers, Services } from './services.ts'
import { readCacheDirectives } from '../plugins/cache/cache-options.ts'
import type { FinishedRequest } from './finished-request.ts'
import type { LogEventFields } from '../core/failure-log.ts'

type ResolvedExchange = Exchange & Pick<Planned, 'resolved'>

export function settle(
  exchange: ResolvedExchange,
  outcome: RequestOutcome & { readonly bill: Bill },
  services: Services,
): MaybePromise<void> {
  return end(exchange, usageOf(exchange, outcome.bill), outcome, services)
}

/** Batch items have no caller that could disconnect; a canceled item is retried. */
export function release(exchange: Exchange, outcome: RequestOutcome, services: Services): MaybePromise<void> {
  if (!isPlanned(exchange)) return end(exchange, unbilledUsage(exchange.resolved?.name ?? ''), outcome, services)
  const hasDisconnected = exchange.cancellation.isCanceled && exchange.subscribers !== undefined
  return chain(prepareBill(exchange), () => {
    const bill = hasDisconnected ? billForDisconnect(exchange) : billForFailure(exchange)
    if (bill === undefined) return end(exchange, unbilledUsage(exchange.resolved.name), outcome, services)
    return end(exchange, usageOf(exchange, bill), { ...outcome, bill }, services)
  })
}

function isPlanned(exchange: Exchange): exchange is Planned {
  return exchange.plan !== undefined
}

function end(exchange: Exchange, used: RequestUsage, outcome: RequestOutcome, services: Services): MaybePromise<void> {
  if (exchange.isEnded) return
  exchange.isEnded = true
  exchange.capacity?.release()
  const settled = settleReservation(exchange, used, outcome, services)
  const observed = services.observers.observeRequest(exchange, outcome)
  if (isPlanned(exchange)) {
    const { plan } = exchange
    storeForLater(exchange, outcome, services)
    if (plan.kind === 'upstream' && plan.optimization.reportAnswer !== undefined) {
      void chain(settled, () => reportAnswer(plan, outcome, services))
    }
  }
  // The response waits no longer than the store timeout. After that, settlement continues in the background.
  const ended = isPromise(observed) ? observed.then(() => settled) : settled
  return isPromise(ended) ? waitUntilStoreTimeout(exchange, ended, services) : ended
}

async function waitUntilStoreTimeout(exchange: Exchange, ended: Promise<void>, services: Services): Promise<void> {
  try {
    await waitForStore(exchange, ended, services)
  } catch {}
}

/** Lets a shadow trial compare the answer with the prompt that it would have sent. */
function reportAnswer({ optimization }: UpstreamPlan, { completion }: RequestOutcome, { observers }: Services): void {
  try {
    optimization.reportAnswer?.(completion?.().parts)
  } catch (cause) {
    observers.reportFailure('the shadow run of a savings tier failed', cause)
  }
}

const MAX_RECENT_OUTPUTS = 20
const MAX_RECENT_MODELS = 16
const MAX_RECENT_KEYS = 4096

/** Logs failures instead of throwing, because they must not fail the request. */
function storeForLater(planned: Planned, outcome: RequestOutcome, { observers, recentOutputs }: Services): void {
  try {
    const { plan, key, resolved, subscribers, embedding } = planned
    plan.keeper?.finish(outcome)
    if (plan.kind === 'replay') return
    // Written inline, because all requests run this code. Batch items have no subscribers.
    if (outcome.completion !== undefined && subscribers !== undefined && embedding === undefined) {
      const models = recentOutputs.get(key.id) ?? new Map<string, number[]>()
      const outputs = models.get(resolved.name) ?? []
      if (outputs.push(outcome.bill?.completionTokens ?? 0) > MAX_RECENT_OUTPUTS) outputs.shift()
      // Moves both entries to the end of their maps, so that the first entry is the least recently used one.
      models.delete(resolved.name)
      models.set(resolved.name, outputs)
      recentOutputs.delete(key.id)
      recentOutputs.set(key.id, models)
      if (models.size > MAX_RECENT_MODELS) models.delete(models.keys().next().value ?? '')
      if (recentOutputs.size > MAX_RECENT_KEYS) recentOutputs.delete(recentOutputs.keys().next().value ?? '')
    }
    const { optimization, markedPrompt } = plan
    if (optimization.reportSent === undefined && markedPrompt === undefined) return
    const usage = outcome.completion?.().usage
    // Later turns assume that the vendor has cached this prompt. Otherwise, a rejected request would make them cheaper.
    const sentTokens = outcome.bill?.optimizedTokens ?? 0
    if (sentTokens > 0) void optimization.reportSent?.({ promptTokens: sentTokens, usage })
    if (usage !== undefined) void markedPrompt?.report(usage)
  } catch (cause) {
    observers.reportFailure('an answer could not be stored for later requests', cause)
  }
}

/** Never throws or rejects. Failed settlements are logged. */
function settleReservation(
  exchange: Exchange,
  used: RequestUsage,
  outcome: RequestOutcome,
  { observers }: Services,
): MaybePromise<void> {
  const { reservation } = exchange
  if (reservation === undefined) return
  const reportUnsettled = (cause: unknown): void => observers.reportUnsettled(exchange as Reserved, used, cause)
  try {
    const settled = reservation.settle(used, observers.auditEntries(exchange, outcome))
    return isPromise(settled) ? settled.catch(reportUnsettled) : settled
  } catch (cause) {
    reportUnsettled(cause)
  }
}

/** A cache hit uses no tokens, because no prompt is sent. */
function usageOf({ resolved }: ResolvedExchange, bill: Bill): RequestUsage {
  const isHit = bill.cache === 'HIT'
  return {
    promptTokens: isHit ? 0 : bill.optimizedTokens,
    completionTokens: isHit ? 0 : bill.completionTokens,
    savedTokens: bill.originalTokens - bill.optimizedTokens,
    theoretical: bill.theoretical,
    actual: bill.actual,
    billed: bill.billed,
    model: resolved.name,
  }
}

/** The operator pays the actual cost of a request that is not billed. */
export function unbilledUsage(model: string, actual: NanoUsd = ZERO): RequestUsage {
  return { promptTokens: 0, completionTokens: 0, savedTokens: 0, theoretical: ZERO, actual, billed: ZERO, model }
}

export function canceledError(cause?: unknown): GatewayError {
  return new GatewayError(
    'cancelled',
    'The request was canceled before the end of the answer, because the caller disconnected or the gateway closed.',
    { cause },
  )
}

/** Replaces other errors with `internal`, because their messages may contain secrets. */
export function asFailure(error: unknown): GatewayError {
  if (GatewayError.is(error)) return error
  return new GatewayError(
    'internal',
    'The gateway failed to answer because of an internal error. Retry, and report the request id if the retry fails too.',
    { cause: error },
  )
}

/** Batch items, which have no subscribers, store their results themselves. */
export function isRecorded({ format, subscribers, request }: Answered, { recordings }: Services): boolean {
  if (!recordings.isEnabled || subscribers === undefined || format.answerId === undefined) return false
  return readCacheDirectives((name) => request.header(name)).allowsWrite
}

/** Never throws or rejects, because the answer is sent anyway. */
export function storeTurn(
  answered: Answered,
  serialized: string | undefined,
  { turns, observers }: Pick<Services, 'turns' | 'observers'>,
): MaybePromise<void> {
  const logFailure = (cause: unknown): void =>
    observers.reportFailure('an answer could not be stored for later requests', cause, { request_id: answered.id })
  try {
    const stored = turns.store(answered, serialized)
    return isPromise(stored) ? stored.catch(logFailure) : stored
  } catch (cause) {
    logFailure(cause)
  }
}

export interface ObserverTargets {
  readonly audit: Audit
  readonly metrics: Metrics
  readonly log: RequestLog
  readonly now: () => number
}

export function routeOf({ method, path }: Pick<HttpRequest, 'method' | 'path'>): string {
  return `${method} ${path}`
}

export const INTERNAL_FAILURE = 'a request failed because of an internal error'

/** The audit trail omits requests without a known key. Otherwise, callers without a key could fill it. */
export function createObservers({ audit, metrics, log, now }: ObserverTargets): Observers {
  const reportFailure: Observers['reportFailure'] = (event, cause, fields) => log.failure(event, cause, now(), fields)
  return {
    reportFailure,
    observeRequest: (exchange, outcome) => {
      const finished = finishedOf(exchange, outcome, now())
      metrics.record(finished)
      if (outcome.failure?.kind === 'internal')
        reportFailure(INTERNAL_FAILURE, outcome.failure, { request_id: exchange.id, route: routeOf(exchange.request) })
      const excessUsage = outcome.bill?.excessUsage
      if (excessUsage !== undefined)
        log.event('WARN', IMPLAUSIBLE_USAGE, now(), excessUsageFields(exchange, excessUsage))
      log.write(finished)
      // If there is a reservation, its settlement contains the audit record.
      const hasReservation = exchange.reservation !== undefined
      return finished.keyId === undefined || hasReservation ? undefined : audit.write(finished)
    },
    auditEntries: (exchange, outcome) =>
      exchange.key === undefined ? [] : audit.entriesOf(finishedOf(exchange, outcome, now())),
    reportUnsettled: (reserved, used, cause) => {
      reportFailure('a settlement failed; it is retried if possible', cause, {
        request_id: reserved.id,
        virtual_key_id: reserved.key.id,
        billed_nano_usd: used.billed,
        tokens: used.promptTokens + used.completionTokens,
      })
    },
  }
}

const IMPLAUSIBLE_USAGE = 'an upstream reported more tokens than the call could have used; the excess is not billed'

function excessUsageFields(
  { id, key, route }: Exchange,
  { promptTokens, completionTokens }: ExcessUsage,
): LogEventFields {
  return {
    request_id: id,
    virtual_key_id: key?.id ?? null,
    provider: route?.provider.name ?? null,
    model: route?.model.id ?? null,
    prompt_tokens_cut: promptTokens,
    completion_tokens_cut: completionTokens,
  }
}

/** The settlement, the metrics and the log share one record. */
function finishedOf(exchange: Exchange, outcome: RequestOutcome, finishedAt: number): FinishedRequest {
  const { finished, id, key, resolved, plan, startedAt } = exchange
  if (finished !== undefined) return finished
  const optimization = plan?.kind === 'upstream' ? plan.optimization : undefined
  return (exchange.finished = {
    requestId: id,
    keyId: key?.id,
    model: resolved?.name,
    status: outcome.status,
    failure: outcome.failure?.kind,
    cause: outcome.failure?.cause,
    at: finishedAt,
    latencyMs: finishedAt - startedAt,
    tier: optimization?.rewrite?.tier,
    bill: outcome.bill,
    tiers: optimization?.verdicts,
  })
}
