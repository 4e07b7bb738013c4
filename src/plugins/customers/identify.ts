/** Finds the customer of a request, and everything that limits it. Loaded with the first request that has a context. */
import { GatewayError } from '../../core/errors.ts'
import { fromDollars } from '../../core/money.ts'
import { RecentMap } from '../../core/recent-map.ts'
import type { Store } from '../../core/store.ts'
import {
  APPLICATION_KEY,
  type Caller,
  type CallerContext,
  escapeId,
  type LimitLevel,
  scopeOf,
} from '../../governance/caller.ts'
import { ContextLevel, type LevelLimit } from '../../governance/levels.ts'
import { isSafeId, RecordTable } from '../../governance/record-table.ts'
import type { VirtualKey } from '../../governance/virtual-key.ts'
import type { LevelContext } from '../../governance/windows.ts'
import type { Identify } from '../../kernel/services.ts'
import { joinContexts, readContextHeaders } from './join-contexts.ts'
import { CustomerIndex, entriesOf } from './customer-index.ts'
import { CustomerScopes } from './customer-scopes.ts'
import { CUSTOMER_PREFIX, customerSchema, type Customer } from './customer.ts'
import { degradationOf } from './degrade.ts'
import type {
  BudgetOptions,
  CustomerPermissions,
  CustomerPlan,
  CustomersOptions,
  RateLimitOptions,
  SessionLimitOptions,
} from './options.ts'

export interface IdentifyOptions {
  readonly store: Store
  readonly now: () => number
  readonly uuid: () => string
  readonly cacheMs: number | undefined
  readonly servesStale: boolean
  readonly plans: Readonly<Record<string, CustomerPlan>>
  readonly customers: CustomersOptions
  readonly levelContext: () => LevelContext
}

/** Selects the levels of a customer, its user and its session. */
export type CustomerLevels = Pick<CallerContext, 'user' | 'session'> & { readonly customer: string }

/** A customer, and then its parents from the nearest one. */
export const MAX_LEVELS = 4
/** Of a request: of its key, customer, parents, user and session. */
export const MAX_LIMITS = 24
export const MAX_LIMITS_OF_KEY = 6
const DEFAULT_WARNINGS: readonly number[] = [0.5, 0.8, 0.95, 1]

const NO_PLAN: CustomerPlan = {}
const DEFAULT_IDLE_MINUTES = 60
const MAX_CACHED = 10_000
const DEFAULT_MAX_CREATED = 1_000_000
/** Of one customer record, in bytes, for the quota of created customers. */
const MAX_CREATED_BYTES = 4_096

/** What requests and the API of customers have in common. */
export interface CustomerTables {
  readonly table: RecordTable<Customer>
  readonly scopes: CustomerScopes
}

export function createCustomerTables({ store, now, cacheMs, servesStale }: IdentifyOptions): CustomerTables {
  const table = new RecordTable({
    store,
    now,
    cacheMs,
    servesStale,
    prefix: CUSTOMER_PREFIX,
    hasUsage: true,
    label: 'customer',
    schema: customerSchema,
  })
  return { table, scopes: new CustomerScopes(store) }
}

/** The identity and the limits of requests with a context. */
export class Identification {
  readonly #options: IdentifyOptions
  readonly #table: RecordTable<Customer>
  readonly #scopes: CustomerScopes
  readonly #levelOf = new WeakMap<Customer, Map<'customer' | 'parent', LimitLevel>>()
  readonly #userLevels = new RecentMap<string, { readonly plan: CustomerPlan; readonly level: LimitLevel }>(MAX_CACHED)
  /** Keys with the permissions of a customer, so that their windows are cached. */
  readonly #restrictedKeys = new WeakMap<
    VirtualKey,
    RecentMap<string, { readonly from: unknown; readonly key: VirtualKey }>
  >()

  constructor(options: IdentifyOptions, { table, scopes }: CustomerTables) {
    this.#options = options
    this.#table = table
    this.#scopes = scopes
  }

  readonly identify: Identify = async ({ key: ownKey, context: application, request }) => {
    const headers = request === undefined ? {} : readContextHeaders(request, ownKey)
    const context = joinContexts(application, ownKey, headers)
    const { customer: id, user } = context
    if (ownKey === undefined && id === undefined && user === undefined) throw unidentifiedError()
    const chain = id === undefined ? [] : await this.#chainOf(id)
    const [customer] = chain
    const plan = this.#planOf(customer)
    const key = this.#restrict(ownKey ?? APPLICATION_KEY, chain)
    // The default plan limits users and sessions without a customer, but says nothing about who pays for them, and how much.
    const terms = customer === undefined ? NO_PLAN : plan
    const payer = context.payer ?? customer?.payer ?? terms.payer
    const scope = scopeOf(key.id, context)
    const levels = this.#levels(chain, { plan, scope, context, key })
    const limitCount = levels.reduce((sum, level) => sum + level.limitCount, MAX_LIMITS_OF_KEY)
    if (limitCount > MAX_LIMITS) throw tooManyLimitsError(limitCount)
    await this.#tolerate(customer && this.#scopes.add(customer, key.id))
    const degradation = await this.#tolerate(terms.at && degradationOf(terms.at, levels, this.#options))
    return {
      key,
      scope,
      context: payer === undefined ? context : { ...context, payer },
      upstream: {
        keyId: key.id,
        customer: id,
        user,
        payer: payer ?? 'operator',
      },
      levels,
      degradation,
      ...marginOf(terms, payer),
      ...(payer === 'customer' && terms.countsVendorCharge === true && { countsVendorCharge: true }),
    }
  }

  /** Resolves with undefined if the store fails and requests are served without it. */
  #tolerate<Value>(call: Promise<Value> | undefined): Promise<Value | undefined> | undefined {
    return this.#options.servesStale ? call?.catch(() => undefined) : call
  }

  /** The limits of a customer without its parents, which other customers share. Rejects with `not-found`. */
  async findLevels({ customer: id, user, session }: CustomerLevels): Promise<{
    readonly levels: readonly LimitLevel[]
    readonly createdAt: number
  }> {
    const customer = (await this.#table.find(id)) ?? (await this.#table.read(id))
    const context = { customer: id, user, session }
    const plan = this.#planOf(customer)
    const levels = this.#levels([customer], { plan, scope: '', context, key: APPLICATION_KEY })
    return { levels, createdAt: customer.createdAt }
  }

  /** The customer and its parents, all of which must be active. */
  async #chainOf(id: string): Promise<readonly Customer[]> {
    const chain = [await this.#findOrCreate(id)]
    for (let parent = chain[0]?.parent; parent !== undefined; parent = chain.at(-1)?.parent) {
      const found = isSafeId(parent) ? await this.#table.find(parent) : undefined
      if (found === undefined || chain.includes(found) || chain.length === MAX_LEVELS) throw brokenChainError(id)
      chain.push(found)
    }
    const now = this.#options.now()
    const ended = chain.find(({ active, expiresAt }) => !active || (expiresAt !== undefined && now >= expiresAt))
    if (ended !== undefined) throw inactiveError(id, ended.id === id)
    return chain
  }

  async #findOrCreate(id: string): Promise<Customer> {
    const found = await this.#table.find(id)
    if (found !== undefined) return found
    const { autoCreate = true, maxCreated = DEFAULT_MAX_CREATED } = this.#options.customers
    if (!autoCreate) throw unknownCustomerError(id)
    const customer: Customer = {
      id,
      name: id,
      metadata: {},
      raises: [],
      permissions: {},
      active: true,
      createdAt: this.#options.now(),
    }
    const quota = { name: 'created-customers', maxEntries: maxCreated, maxBytes: maxCreated * MAX_CREATED_BYTES }
    const index = new CustomerIndex(this.#options.store, this.#options.uuid)
    try {
      await index.write(entriesOf(customer))
      // A concurrent request may have created it.
      await this.#table.insert(id, customer, { quota })
    } catch (error) {
      if (!GatewayError.is(error) || error.kind !== 'quota-exceeded') throw error
      await this.#removeEntries(customer, index)
      throw tooManyCustomersError(error)
    }
    return this.#table.read(id)
  }

  /** Otherwise, requests of customers that are not created would fill the store with entries. */
  async #removeEntries(customer: Customer, index: CustomerIndex): Promise<void> {
    const remove = await index.removal(entriesOf(customer))
    await remove()
    const [created] = await this.#table.readAll([customer.id])
    if (created !== undefined) await index.write(entriesOf(created))
  }

  #planOf(customer: Customer | undefined): CustomerPlan {
    const name = customer?.plan ?? this.#options.customers.defaultPlan
    if (name === undefined) return NO_PLAN
    const plan = Object.hasOwn(this.#options.plans, name) ? this.#options.plans[name] : undefined
    // A removed plan must not lift the limits of its customers.
    if (plan === undefined) throw unknownPlanError(name)
    return plan
  }

  #levels(
    chain: readonly Customer[],
    {
      plan,
      scope,
      context,
      key,
    }: {
      readonly plan: CustomerPlan
      readonly scope: string
      readonly context: CallerContext
      readonly key: VirtualKey
    },
  ): readonly LimitLevel[] {
    const levels: LimitLevel[] = chain.map((customer, index) =>
      this.#levelOfCustomer(customer, index === 0 ? 'customer' : 'parent'),
    )
    const owner = context.customer ?? `~${key.id}`
    if (context.user !== undefined) levels.push(this.#levelOfUser(`user:${owner}/${escapeId(context.user)}`, plan))
    const session = context.session
    if (session !== undefined && plan.perSession !== undefined) {
      const of = context.customer ?? `~${scope}`
      const limits = sessionLimits(plan.perSession)
      const warnAt = plan.warnAt ?? DEFAULT_WARNINGS
      levels.push(new ContextLevel({ name: 'session', owner: `session:${of}/${escapeId(session)}`, limits, warnAt }))
    }
    return levels
  }

  #levelOfCustomer(customer: Customer, name: 'customer' | 'parent'): LimitLevel {
    const known = this.#levelOf.get(customer) ?? new Map<'customer' | 'parent', LimitLevel>()
    this.#levelOf.set(customer, known)
    const cached = known.get(name)
    if (cached !== undefined) return cached
    const plan = this.#planOf(customer)
    const { budgets = plan.budgets ?? [], rateLimits = plan.rateLimits ?? [], raises } = customer
    const level = new ContextLevel({
      name,
      owner: `customer:${customer.id}`,
      warnAt: plan.warnAt ?? DEFAULT_WARNINGS,
      limits: [
        ...rateLimits.flatMap(rateLimitsOf),
        ...budgets.map((budget) => ({
          ...budgetOf(budget),
          raises: raises
            .filter(({ window }) => window === budget.window)
            .map(({ addUsd, until }) => ({ amount: fromDollars(addUsd), until })),
        })),
      ],
    })
    known.set(name, level)
    return level
  }

  #levelOfUser(owner: string, plan: CustomerPlan): LimitLevel {
    const cached = this.#userLevels.get(owner)
    if (cached?.plan === plan) return cached.level
    const limits = (plan.perUser ?? []).flatMap((limit) =>
      'limitUsd' in limit ? [budgetOf(limit)] : rateLimitsOf(limit),
    )
    const level = new ContextLevel({ name: 'user', owner, limits, warnAt: plan.warnAt ?? DEFAULT_WARNINGS })
    this.#userLevels.set(owner, { plan, level })
    return level
  }

  #restrict(key: VirtualKey, chain: readonly Customer[]): VirtualKey {
    const sets = chain.flatMap((customer) => [this.#planOf(customer).permissions ?? {}, customer.permissions])
    const restrictions = sets.filter((set) => Object.keys(set).length > 0)
    const [customer] = chain
    if (customer === undefined || restrictions.length === 0) return key
    const ofKey = this.#restrictedKeys.get(key) ?? new RecentMap(MAX_CACHED)
    this.#restrictedKeys.set(key, ofKey)
    const from = JSON.stringify(restrictions)
    const cached = ofKey.get(customer.id)
    if (cached?.from === from) return cached.key
    const restricted = restrictions.reduce(restrictKey, key)
    ofKey.set(customer.id, { from, key: restricted })
    return restricted
  }
}

function restrictKey(
  key: VirtualKey,
  { allowedModels, maxTokens = Infinity, disableTools }: CustomerPermissions,
): VirtualKey {
  const { permissions } = key
  const limit = Math.min(maxTokens, permissions.maxTokens ?? Infinity)
  return {
    ...key,
    permissions: {
      ...permissions,
      ...(allowedModels !== undefined && {
        allowedModels: permissions.allowedModels ?? ['*'],
        customerModels: [...(permissions.customerModels ?? []), allowedModels],
      }),
      ...(limit !== Infinity && { maxTokens: limit }),
      ...(disableTools === true && { disableTools }),
    },
  }
}

function marginOf({ margin }: CustomerPlan, payer: CallerContext['payer']): Pick<Caller, 'margin'> {
  if (margin !== undefined) return { margin }
  // The vendor bills the customer, so there is nothing to bill, unless the plan has a margin of its own.
  return payer === 'customer' ? { margin: 0 } : {}
}

function budgetOf({ limitUsd, window: every, rolling, models }: BudgetOptions): LevelLimit {
  return {
    kind: 'budget',
    max: fromDollars(limitUsd),
    window: { type: rolling === true ? 'rolling' : 'calendar', every },
    ...(models !== undefined && { models }),
  }
}

function rateLimitsOf({ requests, tokens, window: every, rolling, models }: RateLimitOptions): readonly LevelLimit[] {
  const window = { type: rolling === true ? 'rolling' : 'calendar', every } as const
  const parts = { window, ...(models !== undefined && { models }) }
  return [
    ...(requests === undefined ? [] : [{ kind: 'requests' as const, max: requests, ...parts }]),
    ...(tokens === undefined ? [] : [{ kind: 'tokens' as const, max: tokens, ...parts }]),
  ]
}

/** Repetitions soon follow each other, so their counters need not live as long as the session. */
const MAX_TURN_IDLE_MS = 10 * 60_000

function sessionLimits({
  limitUsd,
  requests,
  sameTurn,
  idleMinutes = DEFAULT_IDLE_MINUTES,
}: SessionLimitOptions): readonly LevelLimit[] {
  const idleMs = idleMinutes * 60_000
  const window = { type: 'idle', idleMs } as const
  const turnWindow = { type: 'idle', idleMs: Math.min(idleMs, MAX_TURN_IDLE_MS) } as const
  return [
    ...(requests === undefined ? [] : [{ kind: 'requests' as const, max: requests, window }]),
    ...(sameTurn === undefined
      ? []
      : [{ kind: 'requests' as const, max: sameTurn, window: turnWindow, isPerTurn: true }]),
    ...(limitUsd === undefined ? [] : [{ kind: 'budget' as const, max: fromDollars(limitUsd), window }]),
  ]
}

function unidentifiedError(): GatewayError {
  return new GatewayError(
    'unauthenticated',
    'The request has no key, and its context names neither a customer nor a user. Send a key, or name one of them in gateway.with().',
  )
}

function unknownCustomerError(id: string): GatewayError {
  return new GatewayError(
    'not-permitted',
    `There is no customer ${JSON.stringify(id)}, and customers are not created by requests.`,
    {
      code: 'unknown_customer',
    },
  )
}

function tooManyCustomersError(cause: unknown): GatewayError {
  const message =
    'The maximum number of customers that requests may create has been reached. Create the customer, or raise customers.maxCreated.'
  return new GatewayError('not-permitted', message, { code: 'too_many_customers', cause })
}

function inactiveError(id: string, isOwn: boolean): GatewayError {
  const subject = isOwn ? `The customer ${JSON.stringify(id)}` : `A parent of the customer ${JSON.stringify(id)}`
  return new GatewayError('not-permitted', `${subject} is inactive or has expired.`, { code: 'customer_inactive' })
}

function tooManyLimitsError(count: number): GatewayError {
  const message = `Requests of this customer would have ${count} limits, of which ${MAX_LIMITS_OF_KEY} are those that a key may have; at most ${MAX_LIMITS} are possible. Requests are refused until the plan has fewer.`
  return new GatewayError('not-permitted', message, { code: 'customer_invalid' })
}

function brokenChainError(id: string): GatewayError {
  const message = `The parents of the customer ${JSON.stringify(id)} are incomplete, form a circle, or have more than ${MAX_LEVELS - 1} levels. Requests are refused until they are corrected.`
  return new GatewayError('not-permitted', message, { code: 'customer_invalid' })
}

function unknownPlanError(name: string): GatewayError {
  const message = `The plan ${JSON.stringify(name)} of this customer is not configured. Requests are refused until it is.`
  return new GatewayError('not-permitted', message, { code: 'unknown_plan' })
}
