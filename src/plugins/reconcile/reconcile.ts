/** Compares the ledger with the audit trail, the outboxes and a vendor's usage export. Loaded with the first use. */
import { checkDate, expects, listOf, numberFrom, type OptionCheck, optionsOf } from '../../core/check-options.ts'
import { isJsonObject, parseJson } from '../../core/json.ts'
import { fromDollars, toDollars, toNanoUsd } from '../../core/money.ts'
import type { LogEntry, Store } from '../../core/store.ts'
import {
  type DeadLetter,
  deadLetterPrefix,
  type OutboxState,
  outboxLogs,
  parseDeadLetter,
  parseState,
  parseStoredRecord,
  RECORDS,
  stateKeyOf,
  type StoredRecord,
} from '../../governance/outbox.ts'
import { invalidFieldError } from '../../governance/page-query.ts'
import type {
  OutboxAmounts,
  ReconcileQuery,
  Reconciliation,
  ReconciliationDifference,
  VendorComparison,
  VendorUsageRow,
} from './reconcile-api.ts'

/** The part of a usage report that is compared. */
interface ReportedRow {
  readonly group: Readonly<Record<string, string>>
  readonly tokens: { readonly prompt: number; readonly completion: number }
  readonly cost: { readonly actualNanoUsd: number; readonly billedNanoUsd: number }
}

interface ReportPage {
  readonly groupBy: readonly ('day' | 'model')[]
  readonly from: string
  readonly to: string
  readonly limit: number
  readonly after?: string
}

export interface ReconcileDependencies {
  readonly store: Pick<Store, 'get' | 'list' | 'entries' | 'tallies'>
  readonly report: (
    page: ReportPage,
  ) => Promise<{ readonly rows: readonly ReportedRow[]; readonly next: string | null }>
  readonly plugins: readonly { readonly name: string; readonly outbox?: object }[] | undefined
}

const DAY_MS = 86_400_000
const MAX_DAYS = 62
const MAX_DIFFERENCES = 1_000
const PAGE_SIZE = 1_000
const AUDIT_LOG = 'audit'
/** A key has at least as many audit records before the oldest are dropped. */
const AUDIT_RECORDS_PER_KEY = 19_000

const text = expects('a string', (value) => typeof value === 'string')

const checkQuery = optionsOf(
  {
    from: checkDate,
    to: checkDate,
    vendor: listOf(
      'a list of rows',
      optionsOf(
        {
          day: checkDate,
          model: text,
          costUsd: numberFrom(-1e9, 1e9),
          promptTokens: numberFrom(0, Number.MAX_SAFE_INTEGER),
          completionTokens: numberFrom(0, Number.MAX_SAFE_INTEGER),
        } satisfies Record<keyof VendorUsageRow, OptionCheck>,
        ['day', 'model'],
      ),
    ),
  } satisfies Record<keyof ReconcileQuery, OptionCheck>,
  ['from', 'to'],
  'an object, such as { from: "2026-11-01", to: "2026-11-30" }',
  'field',
)

export async function reconcile(query: ReconcileQuery, dependencies: ReconcileDependencies): Promise<Reconciliation> {
  const problem = checkQuery(query, '')
  if (problem !== undefined) throw invalidFieldError(problem.path || 'query', problem.text)
  const { from, to, vendor = [] } = query
  const start = Date.parse(from)
  const end = Date.parse(to) + DAY_MS
  if (end <= start || end - start > MAX_DAYS * DAY_MS)
    throw invalidFieldError('to', `expected a day from ${from} to ${dateOf(start + (MAX_DAYS - 1) * DAY_MS)}.`)
  const names = (dependencies.plugins ?? []).flatMap(({ name, outbox }) => (outbox === undefined ? [] : [name]))
  const outboxes = await Promise.all(names.map((name) => readOutbox(name, dependencies.store)))
  const audit = await readAll(dependencies.store, AUDIT_LOG, { from: start, to: end })
  const ledger = await readLedger(dependencies, { from, to })
  const auditRecords = audit.map(auditRecordOf).filter((record) => record !== undefined)
  const days = Array.from({ length: (end - start) / DAY_MS }, (_, index) => start / DAY_MS + index)
  const differences = [
    ...outboxes.flatMap((outbox) => outboxDifferences(outbox, { days, ledger })),
    ...outboxes.flatMap((outbox) => auditDifferences(outbox, auditRecords, { start, end })),
    ...(names.length === 0 ? auditTotal(ledger, auditRecords) : []),
  ]
  return {
    from,
    to,
    isEqual: differences.length === 0,
    days: days.map((day) => ({
      day: dateOf(day * DAY_MS),
      ledgerNanoUsd: ledger.billed.get(dateOf(day * DAY_MS)) ?? 0,
      auditNanoUsd: sum(auditRecords.filter(({ at }) => Math.floor(at / DAY_MS) === day).map(({ nanoUsd }) => nanoUsd)),
      outboxes: Object.fromEntries(outboxes.map((outbox) => [outbox.name, amountsOf(outbox, day)])),
    })),
    differences: differences.slice(0, MAX_DIFFERENCES),
    omitted: Math.max(0, differences.length - MAX_DIFFERENCES),
    vendor: vendor.length === 0 ? [] : compareVendor(ledger.rows, vendor),
  }
}

interface ReadOutbox {
  readonly name: string
  readonly states: readonly OutboxState[]
  readonly waiting: readonly StoredRecord[]
  readonly dead: readonly DeadLetter[]
  /** Those that the store still has, delivered ones included. */
  readonly stored: readonly (StoredRecord & { readonly at: number })[]
  /** The records of earlier requests are not complete, because the oldest were dropped. */
  readonly completeSince: number
}

async function readOutbox(name: string, store: ReconcileDependencies['store']): Promise<ReadOutbox> {
  const dead = await readDeadLetters(name, store)
  const deadIds = new Set(dead.map(({ record }) => record.id))
  const logs = await Promise.all(
    outboxLogs(name).map(async (log) => {
      const [tally] = await store.tallies([log])
      const state = parseState(await store.get(stateKeyOf(log)))
      const after = state.cursor === undefined ? {} : { after: state.cursor }
      const [waiting, stored] = [await readAll(store, log, after), await readAll(store, log, {})]
      const done = new Set(state.done)
      const isTruncated = stored.length < (tally?.[RECORDS] ?? 0)
      return {
        state,
        done: recordsOf(waiting).filter(({ id }) => done.has(id)),
        waiting: recordsOf(waiting).filter(({ id }) => !done.has(id) && !deadIds.has(id)),
        stored: recordsOf(stored),
        completeSince: isTruncated ? (stored[0]?.at ?? Infinity) : -Infinity,
      }
    }),
  )
  return {
    name,
    states: logs.flatMap(({ state, done }) => [state, stateOf(done)]),
    waiting: logs.flatMap(({ waiting }) => waiting),
    dead,
    stored: logs.flatMap(({ stored }) => stored),
    completeSince: Math.max(...logs.map(({ completeSince }) => completeSince)),
  }
}

/** Delivered records behind one that was not. */
function stateOf(done: readonly StoredRecord[]): OutboxState {
  const delivered: Record<string, [number, number]> = {}
  for (const { day, billed } of done) {
    const [count, amount] = delivered[day] ?? [0, 0]
    delivered[day] = [count + 1, amount + billed]
  }
  return { ...parseState(undefined), delivered }
}

function recordsOf(entries: readonly LogEntry[]): readonly (StoredRecord & { readonly at: number })[] {
  return entries.flatMap(({ at, value }) => {
    const record = parseStoredRecord(value)
    return record === undefined ? [] : [{ ...record, at }]
  })
}

async function readDeadLetters(name: string, store: ReconcileDependencies['store']): Promise<readonly DeadLetter[]> {
  const letters: DeadLetter[] = []
  for (let after: string | undefined; ;) {
    const keys = await store.list(deadLetterPrefix(name), { limit: PAGE_SIZE, ...(after !== undefined && { after }) })
    for (const key of keys) {
      const value = await store.get(key)
      const letter = value === undefined ? undefined : parseDeadLetter(value)
      if (letter !== undefined) letters.push(letter)
    }
    after = keys.at(-1)
    if (keys.length < PAGE_SIZE) return letters
  }
}

async function readAll(
  store: Pick<Store, 'entries'>,
  log: string,
  range: { readonly from?: number; readonly to?: number; readonly after?: string },
): Promise<readonly LogEntry[]> {
  const entries: LogEntry[] = []
  for (let query = range; ;) {
    const page = await store.entries(log, { ...query, limit: PAGE_SIZE })
    entries.push(...page)
    const last = page.at(-1)
    if (last === undefined || page.length < PAGE_SIZE) return entries
    query = { ...range, after: last.cursor }
  }
}

interface Ledger {
  /** By day. */
  readonly billed: ReadonlyMap<string, number>
  readonly rows: readonly ReportedRow[]
}

async function readLedger(
  { report }: ReconcileDependencies,
  { from, to }: Pick<ReconcileQuery, 'from' | 'to'>,
): Promise<Ledger> {
  const billed = new Map<string, number>()
  const rows: ReportedRow[] = []
  for (let after: string | undefined; ;) {
    const page = await report({
      groupBy: ['day', 'model'],
      from,
      to,
      limit: PAGE_SIZE,
      ...(after !== undefined && { after }),
    })
    for (const row of page.rows) {
      const { day = '' } = row.group
      billed.set(day, (billed.get(day) ?? 0) + row.cost.billedNanoUsd)
      rows.push(row)
    }
    if (page.next === null) return { billed, rows }
    after = page.next
  }
}

interface ComparedAudit {
  readonly id: string
  readonly keyId: string
  readonly at: number
  readonly nanoUsd: number
}

function auditRecordOf({ at, value }: LogEntry): ComparedAudit | undefined {
  const record = parseJson(value)
  if (!isJsonObject(record)) return undefined
  const { request_id: id, cost_usd: usd, key_id: keyId } = record
  if (typeof id !== 'string' || typeof usd !== 'number') return undefined
  return { id, keyId: typeof keyId === 'string' ? keyId : '', at, nanoUsd: fromDollars(usd) }
}

function amountsOf({ states, waiting, dead }: ReadOutbox, day: number): OutboxAmounts {
  const billedOn = (records: readonly StoredRecord[]): number =>
    sum(records.filter((record) => record.day === day).map(({ billed }) => billed))
  return {
    deliveredNanoUsd: sum(states.map(({ delivered }) => delivered[day]?.[1] ?? 0)),
    waitingNanoUsd: billedOn(waiting),
    deadNanoUsd: billedOn(dead.map(({ record }) => record)),
  }
}

function outboxDifferences(
  outbox: ReadOutbox,
  { days, ledger }: { readonly days: readonly number[]; readonly ledger: Ledger },
): readonly ReconciliationDifference[] {
  const { name, waiting, dead, states } = outbox
  const differences: ReconciliationDifference[] = []
  for (const number of days) {
    const day = dateOf(number * DAY_MS)
    const { deliveredNanoUsd, waitingNanoUsd, deadNanoUsd } = amountsOf(outbox, number)
    const missing = (ledger.billed.get(day) ?? 0) - deliveredNanoUsd - waitingNanoUsd - deadNanoUsd
    if (missing !== 0) differences.push({ kind: 'ledger', outbox: name, day, nanoUsd: missing })
    const records = waiting.filter((record) => record.day === number).length
    if (records > 0) differences.push({ kind: 'waiting', outbox: name, day, records, nanoUsd: waitingNanoUsd })
  }
  for (const { record, reason } of dead) {
    const { id, customer, keyId, day, billed } = record
    if (!days.includes(day)) continue
    const owner = customer === undefined ? { keyId } : { customer, keyId }
    const facts = { outbox: name, day: dateOf(day * DAY_MS), id, ...owner }
    differences.push({ kind: 'dead-letter', ...facts, nanoUsd: billed, reason })
  }
  const lost = sum(states.map((state) => state.lost))
  if (lost > 0) differences.push({ kind: 'lost', outbox: name, records: lost, nanoUsd: 0 })
  return differences
}

/** Compares requests that both should have. Free ones are not compared. */
function auditDifferences(
  { name, stored, completeSince }: ReadOutbox,
  audit: readonly ComparedAudit[],
  { start, end }: { readonly start: number; readonly end: number },
): readonly ReconciliationDifference[] {
  const records = new Map(stored.map((record) => [record.id, record]))
  const audited = new Map(audit.map((record) => [record.id, record]))
  const completeAuditSince = oldestOfFullKeys(audit)
  const differences: ReconciliationDifference[] = []
  for (const { id, keyId, at, nanoUsd } of audit) {
    const record = records.get(id)
    const facts = { outbox: name, id, keyId, day: dateOf(at) }
    if (record === undefined) {
      if (nanoUsd !== 0 && at >= completeSince) differences.push({ kind: 'not-in-events', ...facts, nanoUsd })
    } else if (fromDollars(toDollars(toNanoUsd(record.billed))) !== nanoUsd) {
      differences.push({ kind: 'amount', ...facts, nanoUsd: nanoUsd - record.billed })
    }
  }
  for (const { id, keyId, customer, at, billed } of stored) {
    if (at < start || at >= end || billed === 0 || audited.has(id)) continue
    if (at <= (completeAuditSince.get(keyId) ?? -Infinity)) continue
    const owner = customer === undefined ? { keyId } : { customer, keyId }
    differences.push({ kind: 'not-in-audit', outbox: name, id, ...owner, day: dateOf(at), nanoUsd: billed })
  }
  return differences
}

/** For keys that may have lost audit records, the time of the oldest. */
function oldestOfFullKeys(audit: readonly ComparedAudit[]): ReadonlyMap<string, number> {
  const keys = new Map<string, { readonly oldest: number; readonly count: number }>()
  for (const { keyId, at } of audit) {
    const { oldest, count } = keys.get(keyId) ?? { oldest: at, count: 0 }
    keys.set(keyId, { oldest, count: count + 1 })
  }
  const full = Array.from(keys).filter(([, { count }]) => count >= AUDIT_RECORDS_PER_KEY)
  return new Map(full.map(([keyId, { oldest }]) => [keyId, oldest]))
}

/** Records are rounded to six decimals, which is 500 nano-dollars for each. */
function auditTotal({ billed }: Ledger, audit: readonly ComparedAudit[]): readonly ReconciliationDifference[] {
  const missing = sum(Array.from(billed.values())) - sum(audit.map(({ nanoUsd }) => nanoUsd))
  return Math.abs(missing) <= 500 * audit.length ? [] : [{ kind: 'audit', nanoUsd: missing }]
}

/** The ledger names models `provider/model`, and vendors `model`. */
function compareVendor(rows: readonly ReportedRow[], vendor: readonly VendorUsageRow[]): readonly VendorComparison[] {
  const compared = new Map<string, VendorComparison>()
  const none = { prompt: 0, completion: 0 }
  const find = (day: string, model: string): VendorComparison =>
    compared.get(`${day} ${model}`) ?? {
      day,
      model,
      ledgerNanoUsd: 0,
      vendorNanoUsd: 0,
      ledgerTokens: none,
      vendorTokens: none,
    }
  for (const { day, model, costUsd = 0, promptTokens = 0, completionTokens = 0 } of vendor) {
    const found = find(day, model)
    const { prompt, completion } = found.vendorTokens
    compared.set(`${day} ${model}`, {
      ...found,
      vendorNanoUsd: found.vendorNanoUsd + fromDollars(costUsd),
      vendorTokens: { prompt: prompt + promptTokens, completion: completion + completionTokens },
    })
  }
  for (const { group, tokens, cost } of rows) {
    const { day = '', model: name = '' } = group
    if (name === '') continue
    const slash = name.indexOf('/')
    const model = slash === -1 || vendor.some((row) => row.model === name) ? name : name.slice(slash + 1)
    const found = find(day, model)
    const { prompt, completion } = found.ledgerTokens
    compared.set(`${day} ${model}`, {
      ...found,
      ledgerNanoUsd: found.ledgerNanoUsd + cost.actualNanoUsd,
      ledgerTokens: { prompt: prompt + tokens.prompt, completion: completion + tokens.completion },
    })
  }
  return Array.from(compared.values()).toSorted((left, right) =>
    `${left.day} ${left.model}` < `${right.day} ${right.model}` ? -1 : 1,
  )
}

function sum(amounts: readonly number[]): number {
  return amounts.reduce((total, amount) => total + amount, 0)
}

function dateOf(time: number): string {
  return new Date(time).toISOString().slice(0, 10)
}
