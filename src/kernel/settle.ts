/** Ends a request, once, however it ended: settles what it used and reports the end. charge.ts has the amounts. */
import type { Bill } from '../billing/bill.ts'
import { chain, isPromise, type MaybePromise } from '../core/async.ts'
import { asObject } from '../core/json.ts'
import { add, type NanoUsd, ZERO } from '../core/money.ts'
import type { RequestUsage, SettlementRecord } from '../governance/reservation.ts'
import { billForDisconnect, billForFailure, prepareBill } from './charge.ts'
import type { Exchange, Planned } from './exchange.ts'
import type { Services } from './services.ts'
import type { RequestOutcome } from './finished-request.ts'
import { waitForStore } from './wait-for-store.ts'
import { observeEnd, finishedOf } from './observe-end.ts'
import { informLaterRequests, reportResponse } from './inform-later-requests.ts'

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
  const hasDisconnected = exchange.cancellation.isCanceled && exchange.hasClient
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
    informLaterRequests(exchange, outcome, services)
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
    const entries = settledEntries(exchange, used, outcome, services)
    if (settlement !== undefined) return settlement.settle(reservation, used, entries)
    const settled = reservation.settle(used, entries)
    return isPromise(settled) ? settled.catch(reportUnsettled) : settled
  } catch (cause) {
    reportUnsettled(cause)
  }
}

/** A cache hit uses no tokens, because no prompt is sent. */
function usageOf(exchange: ResolvedExchange, bill: Bill): RequestUsage {
  const { resolved, route, caller, requestBody: body, request } = exchange
  const names = body?.['user'] ?? body?.['safety_identifier'] ?? body?.['metadata'] ?? request.header(SESSION_HEADER)
  const isHit = bill.cache === 'HIT'
  return {
    promptTokens: isHit ? 0 : bill.optimizedTokens,
    completionTokens: isHit ? 0 : bill.completionTokens,
    savedTokens: bill.originalTokens - bill.optimizedTokens,
    theoretical: bill.theoretical,
    actual: bill.actual,
    billed: bill.billed,
    model: resolved.name,
    ...(caller?.countsVendorCharge === true && { counted: add(bill.billed, bill.theoretical) }),
    provider: route?.provider.name,
    ...(names !== undefined && attribution(exchange)),
  }
}

const MAX_ATTRIBUTED_LENGTH = 128
const SESSION_HEADER = 'x-claude-code-session-id'

/** For usage reports only. A caller can invent these values, so no limit depends on them. */
function attribution({ requestBody, request }: Exchange): Attribution {
  const { safety_identifier: identifier, user, metadata } = requestBody ?? {}
  const shorten = (value: unknown): string | undefined =>
    typeof value === 'string' && value !== '' ? value.slice(0, MAX_ATTRIBUTED_LENGTH) : undefined
  return {
    attributedUser: shorten(identifier ?? user ?? asObject(metadata)?.['user_id']),
    attributedSession: shorten(request.header(SESSION_HEADER)),
  }
}

type Attribution = Pick<RequestUsage, 'attributedUser' | 'attributedSession'>

/** The operator pays the actual cost of a request that is not billed. */
export function unbilledUsage(model: string, actual: NanoUsd = ZERO): RequestUsage {
  return { promptTokens: 0, completionTokens: 0, savedTokens: 0, theoretical: ZERO, actual, billed: ZERO, model }
}

function settledEntries(
  exchange: Exchange,
  used: RequestUsage,
  outcome: RequestOutcome,
  services: Services,
): readonly SettlementRecord[] {
  const entries: SettlementRecord[] = []
  for (const entriesOf of services.hooks.settledEntries) {
    entries.push(...entriesOf(finishedOf(exchange, outcome, services), exchange, used))
  }
  return entries
}
