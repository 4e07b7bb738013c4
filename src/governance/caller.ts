import type { CallerContext, Payer } from '../core/caller-context.ts'
import type { Route, UpstreamCaller } from '../core/ports.ts'
import type { Limit } from './limits.ts'
import type { VirtualKey } from './virtual-key.ts'
import type { LevelWindows } from './windows.ts'

export type { CallerContext, Payer }

/** What is known about the maker of a request: a key, a context, or both. */
export interface Caller {
  /** With the permissions that the key and the customer have in common. */
  readonly key: VirtualKey
  /**
   * Separates what is stored for callers: responses, turns, batches, quotas. The id of the key, followed by the paying
   * customer, or by the user if there is no customer.
   */
  readonly scope: string
  readonly context: CallerContext
  /** The caller as providers see it. */
  readonly upstream: UpstreamCaller
  /** Limits in addition to those of the key. */
  readonly levels: readonly LimitLevel[]
  /** Replaces the margin of the gateway. @default the margin of the gateway */
  readonly margin?: number | undefined
  /** Set near the end of a budget, if the plan says what happens then. */
  readonly degradation?: Degradation | undefined
  /** True if budgets count what the vendor bills the customer. @default false */
  readonly countsVendorCharge?: boolean
}

/** Limits of one level. Compared by identity, because its windows are cached. */
export interface LimitLevel extends LevelWindows {
  /** Owner of the counters, such as `customer:acme`. */
  readonly owner: string
  readonly hasBudget: boolean
  /** Shares of a budget from 0 to 1 at which an event is recorded. */
  readonly warnAt: readonly number[]
  readonly limitCount: number
  /** @param maxRequestMs As in `LevelContext`. */
  limitsAt(now: number, maxRequestMs: number): readonly Limit[]
  /** Returns when the maximum of a limit changes next, in milliseconds since 1970. Infinity if it does not. */
  changesAt(now: number): number
}

/** What a plan does to a request before it refuses further ones. */
export interface Degradation {
  /** What was done, such as `savings=med`. Undefined if nothing was. */
  readonly text: string | undefined
  /** Returns the savings level of a request that names none. */
  savingsLevel(): string | undefined
  /** Returns the route of the small model that replaces the requested one, or undefined if it cannot. */
  modelFor(route: Route, key: VirtualKey, promptBytes: number): Route | undefined
}

/** What callers without a context have in common. */
export const PLAIN_CALLER: Pick<Caller, 'context' | 'levels'> = { context: {}, levels: [] }

/** The caller of work that is stored for later, such as a batch. */
export interface StoredCaller {
  readonly keyId: string
  readonly context: CallerContext
}

export function callerOfKey(key: VirtualKey): Caller {
  return { ...PLAIN_CALLER, key, scope: key.id, upstream: { keyId: key.id, payer: 'operator' } }
}

/** The key of requests in process that have a context and no key. No record has its id, and no secret has its hash. */
export const APPLICATION_KEY: VirtualKey = {
  id: 'application',
  name: 'application',
  description: 'Requests in process without a virtual key',
  hash: '',
  prefix: '',
  createdAt: 0,
  active: true,
  providers: [],
  permissions: {},
}

/** Escapes an id, so that it can be part of the name of a counter and of a storage key. */
export function escapeId(id: string): string {
  return id.replace(/[^\w.-]/g, (character) => `%${character.charCodeAt(0).toString(16).padStart(2, '0')}`)
}

/** The tilde and the percent sign cannot be part of an id of a key or customer. */
export function scopeOf(keyId: string, { customer, user }: CallerContext): string {
  if (customer !== undefined) return `${keyId}~${customer}`
  return user === undefined ? keyId : `${keyId}~~${escapeId(user)}`
}
