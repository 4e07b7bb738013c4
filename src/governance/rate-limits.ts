import type { DurationCode } from '../core/period.ts'
import { UNLIMITED } from './field-schema.ts'
import { createSharedRecords } from './shared-records.ts'
import {
  changeRateLimit,
  parseRateLimit,
  parseRateLimitChange,
  type NewRateLimit,
  type RateLimitChange,
} from './shared-schema.ts'
import type { SharedLimits } from './shared-limits.ts'
import type { RateLimit } from './virtual-key.ts'

/** Shared rate limits as the admin API writes them. Where there is no limit: 9007199254740991, and no duration. */
export interface RateLimitRecord {
  readonly id: string
  readonly object: 'rate_limit'
  readonly name: string
  readonly request_max_limit: number
  readonly request_reset_duration: DurationCode | null
  readonly token_max_limit: number
  readonly token_reset_duration: DurationCode | null
}

/** A page of a list, in ascending order of ids. */
export interface RateLimitPage {
  readonly rate_limits: readonly RateLimitRecord[]
  readonly has_more: boolean
}

/**
 * Rate limits that several keys share by `rate_limit_id`, in process: the same fields, checks and answers as the admin
 * API under `/api/governance/rate-limits`. Errors as those of `Keys`; `conflict` for an id that is taken.
 */
export interface RateLimits {
  create(fields: NewRateLimit): Promise<RateLimitRecord>
  get(id: string): Promise<RateLimitRecord>
  /** @param query `limit` 1 to 1,000, default 100; `after` the last id of the page before. */
  list(query?: { readonly limit?: number; readonly after?: string }): Promise<RateLimitPage>
  update(id: string, change: RateLimitChange): Promise<RateLimitRecord>
  /** Keys that still refer to it are refused with 429 until their `rate_limit_id` changes. */
  delete(id: string): Promise<{ readonly id: string; readonly object: 'rate_limit'; readonly deleted: true }>
}

/** The same for bodies that are not checked yet. */
export interface RateLimitDesk extends RateLimits {
  create(fields: unknown): Promise<RateLimitRecord>
  update(id: string, change: unknown): Promise<RateLimitRecord>
}

export function createRateLimits(parts: { readonly shared: SharedLimits; readonly uuid: () => string }): RateLimitDesk {
  const records = createSharedRecords<RateLimit, RateLimitRecord>({
    table: parts.shared.rateLimits,
    label: 'rate limit',
    uuid: parts.uuid,
    parse: parseRateLimit,
    parseChange: (body) => {
      const change = parseRateLimitChange(body)
      return (rateLimit) => changeRateLimit(rateLimit, change)
    },
    show: async (rateLimits) => rateLimits.map(publicRateLimit),
  })
  return {
    create: records.create,
    get: records.get,
    list: async (query = {}) => {
      const { shown, has_more } = await records.page(query)
      return { rate_limits: shown, has_more }
    },
    update: records.update,
    delete: async (id) => {
      await records.remove(id)
      return { id, object: 'rate_limit', deleted: true }
    },
  }
}

function publicRateLimit({ id, name, requests, tokens }: RateLimit): RateLimitRecord {
  return {
    id,
    object: 'rate_limit',
    name,
    request_max_limit: requests?.max ?? UNLIMITED,
    request_reset_duration: requests?.every ?? null,
    token_max_limit: tokens?.max ?? UNLIMITED,
    token_reset_duration: tokens?.every ?? null,
  }
}
