/**
 * What the store has of the outbox of a plugin. A settlement appends a record to one of its logs, which are read in order.
 * The payer decides the log, so that the records of a customer stay in order. One value for each log says how far its
 * records were delivered, and who delivers the next ones.
 */
import * as z from 'zod/mini'
import { parseJson } from '../core/json.ts'
import type { Quota } from '../core/store.ts'

export const LOGS_PER_OUTBOX: number = 8

/** Stripe and others accept events of the last 35 days. */
export const RECORD_TTL_MS: number = 40 * 86_400_000

export const DEFAULT_MAX_STORED = 100_000
const MAX_LOG_BYTES = 64 * 1024 * 1024

/** Name of a log, and of the tally that counts the records appended to it. */
export function outboxLog(name: string, log: number): string {
  return `outbox:${name}:${log}`
}

export function outboxLogs(name: string): readonly string[] {
  return Array.from({ length: LOGS_PER_OUTBOX }, (_, log) => outboxLog(name, log))
}

/** Storage key of the `OutboxState` of a log. */
export function stateKeyOf(log: string): string {
  return `outbox-state:${log.slice('outbox:'.length)}`
}

/** Storage keys of dead letters are this prefix and the id of the record. */
export function deadLetterPrefix(name: string): string {
  return `outbox-dead:${name}:`
}

const MAX_DEAD_LETTERS = 10_000

/** Dead letters do not expire. */
export function deadLetterQuota(name: string): Quota {
  return { name: `dead-letter:${name}`, maxEntries: MAX_DEAD_LETTERS, maxBytes: MAX_LOG_BYTES }
}

/** Field of the tally of a log. */
export const RECORDS = 'records'

const FNV_OFFSET = 0x811c9dc5
const FNV_PRIME = 0x01000193

export function logOfPayer(payer: string): number {
  let hash = FNV_OFFSET
  for (let index = 0; index < payer.length; index += 1)
    hash = Math.imul(hash ^ payer.charCodeAt(index), FNV_PRIME) >>> 0
  return hash % LOGS_PER_OUTBOX
}

export function outboxQuota(log: string, maxStored: number): Quota {
  return { name: log, maxEntries: Math.ceil(maxStored / LOGS_PER_OUTBOX), maxBytes: MAX_LOG_BYTES }
}

/** A record as the store has it. */
export interface StoredRecord {
  readonly id: string
  readonly customer?: string
  readonly keyId: string
  /** Start of the day on which reports count the request, in days since 1970. */
  readonly day: number
  /** In nano-dollars. */
  readonly billed: number
  /** As the plugin made it. */
  readonly value: string
}

const storedSchema: z.ZodMiniType<StoredRecord> = z.object({
  id: z.string(),
  customer: z.exactOptional(z.string()),
  keyId: z.string(),
  day: z.number(),
  billed: z.number(),
  value: z.string(),
})

/** Returns undefined for a record of another version. */
export function parseStoredRecord(text: string): StoredRecord | undefined {
  return storedSchema.safeParse(parseJson(text)).data
}

/** Number of records, and their sum in nano-dollars. */
export type DaySum = readonly [number, number]

/** How far the records of a log were delivered. */
export interface OutboxState {
  /** Of the last record that was delivered or given up. @default none */
  readonly cursor?: string
  /** Number of records up to the cursor. */
  readonly count: number
  /** Records up to the cursor that were delivered, by day since 1970, for the last days. */
  readonly delivered: Readonly<Record<string, DaySum>>
  /** Records that were dropped from the full or expired log before they were delivered. */
  readonly lost: number
  /** Number of records after the cursor whose delivery was tried, and when it was first tried. */
  readonly tried: number
  readonly firstTriedAt: number
  /** Ids of tried records that were delivered. An earlier one was not. */
  readonly done: readonly string[]
  /** Number of failed attempts since the last success. */
  readonly attempts: number
  /** Since when the first record after the cursor has failed. @default it has not */
  readonly failingSince?: number
  /** When the next attempt may begin, in milliseconds since 1970. After the end of the current one, if there is one. */
  readonly nextAt: number
  /** Makes the state of each attempt unique. */
  readonly version: number
}

export const EMPTY_STATE: OutboxState = {
  count: 0,
  delivered: {},
  lost: 0,
  tried: 0,
  firstTriedAt: 0,
  done: [],
  attempts: 0,
  nextAt: 0,
  version: 0,
}

const stateSchema: z.ZodMiniType<OutboxState> = z.object({
  cursor: z.exactOptional(z.string()),
  count: z.number(),
  delivered: z.record(z.string(), z.readonly(z.tuple([z.number(), z.number()]))),
  lost: z.number(),
  tried: z.number(),
  firstTriedAt: z.number(),
  done: z.array(z.string()),
  attempts: z.number(),
  failingSince: z.exactOptional(z.number()),
  nextAt: z.number(),
  version: z.number(),
})

/** Throws for an invalid state, because to begin again would deliver all records again. */
export function parseState(value: string | undefined): OutboxState {
  return value === undefined ? EMPTY_STATE : stateSchema.parse(parseJson(value))
}

/** A record that could not be delivered. */
export interface DeadLetter {
  readonly record: StoredRecord
  readonly reason: string
  /** When it was given up, in milliseconds since 1970. */
  readonly at: number
}

const deadLetterSchema: z.ZodMiniType<DeadLetter> = z.object({
  record: storedSchema,
  reason: z.string(),
  at: z.number(),
})

export function parseDeadLetter(value: string): DeadLetter | undefined {
  return deadLetterSchema.safeParse(parseJson(value)).data
}
