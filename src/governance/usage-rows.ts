/**
 * The sums for usage reports. Each day of a customer, or of a key without customers, has up to eight tallies, whose fields
 * are `<amount> <row>`. A row is one combination of user, session, key, model, provider and tags. Rows with a user or a
 * session are divided among the last seven tallies, because a database rewrites a whole tally for each settlement.
 */
import { RecentMap } from '../core/recent-map.ts'
import { OTHER } from '../core/store.ts'
import type { CallerContext } from '../core/caller-context.ts'

/** One combination of what a report can be grouped by. An empty string: none. */
export interface UsageRow {
  readonly user: string
  readonly session: string
  readonly key: string
  readonly model: string
  readonly provider: string
  /** `<name>=<value>`, in the order of the names. */
  readonly tags: readonly string[]
}

/** How long the sums of a day are kept after its end, in milliseconds. */
export const DAILY_RETENTION_MS: number = 400 * 86_400_000

const SHARDS = 8

export function rowTallyName(owner: string, day: number, shard: number): string {
  return `usage-rows:${owner}:${shard}:${day}`
}

export function rowTallyNames(owner: string, day: number): readonly string[] {
  return Array.from({ length: SHARDS }, (_, shard) => rowTallyName(owner, day, shard))
}

/** Returns undefined for the sum of rows that did not fit in a tally of the store. */
export function parseRow(text: string): UsageRow | undefined {
  if (text === OTHER) return undefined
  const [user = '', session = '', key = '', model = '', provider = '', ...tags] = JSON.parse(text) as string[]
  return { user, session, key, model, provider, tags }
}

function writeRow({ user, session, key, model, provider, tags }: UsageRow): string {
  return JSON.stringify([user, session, key, model, provider, ...tags])
}

export function tagList({ tags = {} }: CallerContext): readonly string[] {
  const names = Object.keys(tags)
  return names.length === 0 ? NO_TAGS : names.toSorted().map((name) => `${name}=${tags[name]}`)
}

const NO_TAGS: readonly string[] = []
const MAX_REMEMBERED_TALLIES = 2_000

/**
 * Rows of one tally in this process, after which new sessions, then users, then tags, then models are counted as `OTHER`.
 * A tally has at most 4,096 fields, seven for each row, so two processes never fill one.
 */
const MAX_ROWS = [120, 160, 200, 240] as const

interface UsageDay {
  readonly owner: string
  /** Start of the day, in milliseconds since 1970. */
  readonly day: number
}

type FoundRow = Omit<UsageRow, 'user' | 'session'> & {
  readonly user: string | undefined
  readonly session: string | undefined
}

/** Bounds the rows that this process adds to each tally. */
export class UsageRows {
  readonly #rowsByTally = new RecentMap<string, Set<string>>(MAX_REMEMBERED_TALLIES)

  place({ owner, day }: UsageDay, found: FoundRow): { readonly name: string; readonly row: string } {
    const row = { ...found, user: found.user ?? '', session: found.session ?? '' }
    const shard = row.user === '' && row.session === '' ? 0 : 1 + (hash(`${row.user} ${row.session}`) % (SHARDS - 1))
    const name = rowTallyName(owner, day, shard)
    const rows = this.#rowsByTally.get(name) ?? new Set()
    if (rows.size === 0) this.#rowsByTally.set(name, rows)
    let text = writeRow(row)
    if (!rows.has(text)) rows.add((text = this.#fit(rows, row)))
    return { name, row: text }
  }

  #fit(rows: ReadonlySet<string>, row: UsageRow): string {
    let text = writeRow(row)
    let fitting = row
    for (const [index, max] of MAX_ROWS.entries()) {
      if (rows.has(text) || rows.size < max) return text
      fitting = REDUCTIONS[index]?.(fitting) ?? fitting
      text = writeRow(fitting)
    }
    return text
  }
}

const REDUCTIONS: readonly ((row: UsageRow) => UsageRow)[] = [
  (row) => ({ ...row, session: OTHER }),
  (row) => ({ ...row, user: OTHER }),
  (row) => ({ ...row, tags: [OTHER] }),
  (row) => ({ ...row, model: OTHER, provider: OTHER }),
]

/** FNV-1a. */
function hash(text: string): number {
  let value = 0x811c9dc5
  for (let index = 0; index < text.length; index++) value = Math.imul(value ^ text.charCodeAt(index), 0x01000193)
  return value >>> 0
}
