import type { Bill, ExcessUsage } from '../billing/bill.ts'
import { chain, isPromise, type MaybePromise } from '../core/async.ts'
import { GatewayError } from '../core/errors.ts'
import type { HttpRequest } from '../core/http.ts'
import { type NanoUsd, ZERO } from '../core/money.ts'
import type { RequestUsage } from '../governance/reservation.ts'
import { billForDisconnect, billForFailure, prepareBill } from './charge.ts'
import { type Exchange, type Planned, type RequestOutcome, waitForStore, type UpstreamPlan } from './exchange.ts'
import type { Services } from './services.ts'
import type { SettledEntry } from '../core/store.ts'
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

/**
 * Ends a request without a response of its own. Bills what its small models, or the prompt of a caller that disconnected,
 * have cost. Batch items have no caller that could disconnect; a canceled item is retried.
 */
export function endWithoutResponse(
  exchange: Exchange,
  outcome: RequestOutcome,
  services: Services,
): MaybePromise<void> {
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
  const observed = observeEnd(exchange, outcome, services)
  if (isPlanned(exchange)) {
    const { plan } = exchange
    storeForLater(exchange, outcome, services)
    if (plan.kind === 'upstream' && plan.optimization.reportResponse !== undefined) {
      void chain(settled, () => reportResponse(plan, outcome, services))
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

/** Lets a shadow trial compare the response with the prompt that it would have sent. */
function reportResponse({ optimization }: UpstreamPlan, { completion }: RequestOutcome, { log }: Services): void {
  try {
    optimization.reportResponse?.(completion?.().parts)
  } catch (cause) {
    log.failure('the shadow run of a savings tier failed', cause)
  }
}

const MAX_RECENT_OUTPUTS = 20
const MAX_RECENT_MODELS = 16
const MAX_RECENT_KEYS = 4096

/** Logs failures instead of throwing, because they must not fail the request. */
function storeForLater(planned: Planned, outcome: RequestOutcome, { log, recentOutputs }: Services): void {
  try {
    const { plan, key, resolved, subscribers, grant } = planned
    plan.keeper?.finish(outcome)
    if (plan.kind === 'replay') return
    // Written inline, because all requests run this code. Batch items have no subscribers.
    if (outcome.completion !== undefined && subscribers !== undefined && grant.outputTokens > 0) {
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
    const { optimization, markers } = plan
    if (optimization.reportSent === undefined && markers === undefined) return
    const usage = outcome.completion?.().usage
    // Later turns assume that the vendor has cached this prompt. Otherwise, a rejected request would make them cheaper.
    const sentTokens = outcome.bill?.optimizedTokens ?? 0
    if (sentTokens > 0) void optimization.reportSent?.({ promptTokens: sentTokens, usage })
    if (usage !== undefined) void markers?.report(usage)
  } catch (cause) {
    log.failure('a response could not be stored for later requests', cause)
  }
}

/** Never throws or rejects. Failed settlements are logged. */
function settleReservation(
  exchange: Exchange,
  used: RequestUsage,
  outcome: RequestOutcome,
  services: Services,
): MaybePromise<void> {
  const { reservation, settlement, key } = exchange
  if (reservation === undefined) return
  const reportUnsettled = (cause: unknown): void =>
    services.log.failure('a settlement failed; it is retried if possible', cause, {
      request_id: exchange.id,
      virtual_key_id: key?.id ?? null,
      billed_nano_usd: used.billed,
      tokens: used.promptTokens + used.completionTokens,
    })
  try {
    const entries = settledEntries(exchange, outcome, services)
    if (settlement !== undefined) return settlement.settle(reservation, used, entries)
    const settled = reservation.settle(used, entries)
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
    'The request was canceled before the end of the response, because the caller disconnected or the gateway closed.',
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

export function routeOf({ method, path }: Pick<HttpRequest, 'method' | 'path'>): string {
  return `${method} ${path}`
}

export const INTERNAL_FAILURE = 'a request failed because of an internal error'

function settledEntries(exchange: Exchange, outcome: RequestOutcome, services: Services): readonly SettledEntry[] {
  const entries: SettledEntry[] = []
  for (const entriesOf of services.hooks.settledEntries) {
    entries.push(...entriesOf(finishedOf(exchange, outcome, services)))
  }
  return entries
}

/** Calls the hooks for the end of a request, also for one that reserves nothing. */
export function observeEnd(exchange: Exchange, outcome: RequestOutcome, services: Services): MaybePromise<void> {
  const { settlement } = exchange
  if (settlement === undefined) return callEndHooks(exchange, outcome, services)
  settlement.observe(outcome, () => callEndHooks(exchange, outcome, services))
}

function callEndHooks(exchange: Exchange, outcome: RequestOutcome, services: Services): MaybePromise<void> {
  const { hooks, log } = services
  const finished = finishedOf(exchange, outcome, services)
  if (outcome.failure?.kind === 'internal') {
    log.failure(INTERNAL_FAILURE, outcome.failure, { request_id: exchange.id, route: routeOf(exchange.request) })
  }
  const excessUsage = outcome.bill?.excessUsage
  if (excessUsage !== undefined) log.warning(IMPLAUSIBLE_USAGE, excessUsageFields(exchange, excessUsage))
  let pending: Promise<void> | undefined
  for (const onEnd of hooks.onEnd) {
    const observed = onEnd(finished, exchange, outcome)
    if (isPromise(observed)) pending = pending === undefined ? observed : pending.then(() => observed)
  }
  return pending
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

/** The settlement and all hooks share one record. */
function finishedOf(exchange: Exchange, outcome: RequestOutcome, { runtime }: Services): FinishedRequest {
  const { finished, id, key, resolved, plan, startedAt } = exchange
  if (finished !== undefined) return finished
  const finishedAt = runtime.now()
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
