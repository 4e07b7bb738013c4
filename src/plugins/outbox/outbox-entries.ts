/** The entries that a settlement appends to the outboxes of plugins. */
import { toNanoUsd } from '../../core/money.ts'
import { periodOf } from '../../core/store.ts'
import {
  DEFAULT_MAX_STORED,
  logOfPayer,
  outboxLog,
  outboxQuota,
  RECORD_TTL_MS,
  RECORDS,
  type StoredRecord,
} from '../../governance/outbox.ts'
import type { RequestUsage, Reservation, SettlementRecord } from '../../governance/reservation.ts'
import { sanitizeUsage } from '../../governance/settlements.ts'
import type { Exchange } from '../../kernel/exchange.ts'
import type { FinishedRequest } from '../../kernel/finished-request.ts'
import type { Outbox, SettledRequest } from '../../kernel/plugin.ts'

/** A plugin with an outbox. */
export interface OutboxPlugin {
  readonly name: string
  readonly outbox: Outbox
}

export const DAY_MS = 86_400_000
const MAX_RECORD_LENGTH = 16_384

export function settledRequest(
  finished: FinishedRequest,
  { caller }: Pick<Exchange, 'caller'>,
  reservation: Pick<Reservation, 'reservedAt' | 'grantedCost'>,
  used: RequestUsage,
): SettledRequest {
  const { requestId, at, keyId = '', status, bill, model } = finished
  const { context = {} } = caller ?? {}
  const usage = sanitizeUsage(used, reservation.grantedCost)
  const { customer, user = usage.attributedUser, session = usage.attributedSession, tags } = context
  const { provider } = usage
  return {
    id: requestId,
    at,
    day: new Date(reservation.reservedAt).toISOString().slice(0, 10),
    keyId,
    ...(customer !== undefined && { customer }),
    ...(user !== undefined && { user }),
    ...(session !== undefined && { session }),
    ...(tags !== undefined && { tags }),
    model: model ?? usage.model,
    ...(provider !== undefined && { provider }),
    status,
    billed: usage.billed,
    theoretical: usage.theoretical,
    actual: usage.actual,
    ...(bill?.vendorCharge !== undefined && { vendorCharge: toNanoUsd(bill.vendorCharge) }),
    tokens: { prompt: usage.promptTokens, completion: usage.completionTokens, saved: usage.savedTokens },
    isCacheHit: bill?.cache === 'HIT',
  }
}

/** Throws what `record` throws. Returns undefined if the plugin wants no record. */
export function entryFor(
  { name, outbox }: OutboxPlugin,
  request: SettledRequest,
  reservedAt: number,
): SettlementRecord | undefined {
  const value: unknown = outbox.record(request)
  if (value === undefined) return undefined
  if (typeof value !== 'string' || value.length > MAX_RECORD_LENGTH)
    throw new Error(`record: expected a string of at most ${MAX_RECORD_LENGTH} characters.`)
  const { id, at, keyId, customer, billed } = request
  const log = outboxLog(name, logOfPayer(customer === undefined ? `key:${keyId}` : `customer:${customer}`))
  const day = periodOf(reservedAt, '1d').start / DAY_MS
  const stored: StoredRecord = { id, ...(customer !== undefined && { customer }), keyId, day, billed, value }
  return {
    log,
    at,
    value: JSON.stringify(stored),
    ttlMs: RECORD_TTL_MS,
    quota: outboxQuota(log, outbox.maxStored ?? DEFAULT_MAX_STORED),
    tally: { name: log, amounts: { [RECORDS]: 1 } },
  }
}
