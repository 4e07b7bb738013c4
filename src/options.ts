import { after, defaultTransport } from '#transport'
import { checkMargin } from './billing/bill.ts'
import { checkCache, type SemanticCacheOptions } from './plugins/cache/cache-options.ts'
import {
  checkFlag,
  functionCheck,
  checkOptions,
  expects,
  listOf,
  numberFrom,
  objectWith,
  falseOr,
  firstProblem,
  oneOf,
  optionsOf,
  type OptionCheck,
  unchecked,
  integerFrom,
} from './core/check-options.ts'
import { GatewayError } from './core/errors.ts'
import type { WireForm } from './core/field-names.ts'
import type { Provider, Runtime, Timeouts, TransportCall } from './core/ports.ts'
import type { Store } from './core/store.ts'
import type { Plugin } from './kernel/plugin.ts'
import {
  checkCustomers,
  checkDefaultPlan,
  checkPlans,
  checkShares,
  type CustomerPlan,
  type CustomersOptions,
} from './plugins/customers/options.ts'
import type { KeyConfiguration } from './plugins/admin/admin-api.ts'
import type { ConfiguredCustomer } from './plugins/customers/customer-api.ts'
import { fetchTransport } from './http/transport-fetch.ts'
import type {
  PassthroughEndpoint,
  PassthroughName,
  PassthroughOptions,
} from './plugins/passthrough/parse-passthrough.ts'
import type { Limits } from './kernel/limits.ts'
import type { CatalogOptions } from './providers/catalog.ts'
import { checkCircuitBreaker, type CircuitBreakerOptions } from './providers/circuit-breaker.ts'
import type { LogRecord } from './plugins/request-log/request-log.ts'
import type { BatchOptions } from './plugins/batches/batch-worker.ts'
import { checkSavings, type SavingsOptions } from './plugins/savings/options.ts'
import { checkStreams, type StreamsOptions } from './plugins/recordings/options.ts'
import type { AdminOptions } from './kernel/admin-access.ts'
import type { Policies } from './kernel/policies.ts'

/** The request for which a margin is computed. */
export interface MarginRequest {
  readonly keyId: string
  readonly keyName: string
  /**
   * `<provider>/<model_id>` of the first route, without `-latest` and without a date at the end. The same for each
   * alias and spelling of a model. The name in the request if a passthrough request names a model that the provider
   * does not list, and the path below `/v1/` if it names none.
   */
  readonly model: string
}

/** Options for the theoretical cost, on which bills and budgets are based. */
export interface BillingOptions {
  /**
   * Price of prompt tokens that the vendor's own prompt cache serves or stores. `vendor` uses the vendor's cache
   * prices, so that the theoretical cost of an unchanged prompt is the vendor's charge. `list` uses the input price for
   * every token of the prompt. Discounts that the gateway's own markers and rewrites earn are savings in both cases.
   * @default 'vendor'
   */
  readonly cachedTokens?: 'vendor' | 'list'
}

/** Replaces platform functions, for tests and unusual platforms. */
export interface RuntimeOptions {
  /** Returns the current time in milliseconds since 1970. @default Date.now */
  readonly now?: () => number
  /** Returns a number from 0 (inclusive) to 1 (exclusive). @default Math.random */
  readonly random?: () => number
  /** Returns a version 4 UUID. @default crypto.randomUUID */
  readonly uuid?: () => string
  /** Sends upstream calls. Called as `fetch(url, init)`. @default undici on Node, the global fetch elsewhere */
  readonly fetch?: typeof globalThis.fetch
  /**
   * Writes a line about an internal error. Called only if the gateway has no `log`, at most 10 times per minute.
   * @default console.error
   */
  readonly stderr?: (line: string) => void
}

export const DEFAULT_LIMITS: Limits = {
  bodyBytes: 32 * 1024 * 1024,
  bodyBytesPerKey: 128 * 1024 * 1024,
  bodyReadMs: 15_000,
  jsonDepth: 64,
  jsonKeys: 100_000,
  jsonObjectKeys: 10_000,
  jsonNumbers: 500_000,
  jsonSyntaxBytes: 4 * 1024 * 1024,
  promptBytes: 8 * 1024 * 1024,
  maxTemperature: 1,
  heartbeatMs: 15_000,
}

export function policiesOf(options: Partial<Policies>): Policies {
  const { vendorTools = 'reserve', surcharges = 'bill' } = options
  const { onUntranslatable = 'refuse', onStoreFailure = 'refuse' } = options
  return { vendorTools, surcharges, onUntranslatable, onStoreFailure }
}

export const DEFAULT_TIMEOUTS: Timeouts = { connectMs: 10_000, firstByteMs: 120_000, idleMs: 60_000, totalMs: 600_000 }

/**
 * Customers, keys, budgets and rate limits that are created or updated at startup, at most 100,000 of each. Each field may
 * have its name in the HTTP API instead (`WireForm`), as in a JSON file with records of the admin API.
 */
export interface GovernanceConfiguration extends KeyConfiguration {
  readonly customers?: readonly ConfiguredCustomer[] | undefined
}

/** Options for `createGateway()`. Unknown options are rejected. */
export interface GatewayOptions extends Partial<Policies> {
  /** The upstreams, such as `openai()`. At least one. */
  readonly providers: readonly Provider[]
  /** Stores keys, budgets, usage and audit records. @default memoryStore(), which keeps them in memory only */
  readonly store?: Store | undefined
  /**
   * Maximum total time that one request waits for the store to find its key and earlier turns, to reserve, and to
   * settle, in milliseconds. Every single call to the store may take at most 40% of this time. @default 5,000
   */
  readonly storeTimeoutMs?: number
  /**
   * How long a process caches keys, shared budgets and rate limits, in milliseconds, from 0 to 5,000. Changes by other
   * processes take effect within this time while the store is available. Changes by this process take effect immediately.
   * @default 2,000
   */
  readonly keyCacheMs?: number
  /**
   * Factor in billed = theoretical cost × margin, from 0 to 10, or a function of the key and the model that returns it.
   * If the function returns another value, the request is refused with 500. @default 1.5
   */
  readonly margin?: number | ((request: MarginRequest) => number)
  /** What the theoretical cost contains. */
  readonly billing?: BillingOptions
  /**
   * `margin: false` leaves the margin, the theoretical cost, the actual cost and the savings out of each response to a
   * virtual key. The billed amount remains. The admin API, the log and the metrics are unchanged. @default { margin: true }
   */
  readonly headers?: { readonly margin?: boolean }
  /** Guardrails, redactors and observers of requests, in order. See docs/guides/write-a-plugin.md. @default none */
  readonly plugins?: readonly Plugin[]
  /**
   * Shares of the budgets of keys, and of budgets that keys share, at which `onBudget` of plugins is called. Plans have
   * `warnAt`. An empty list switches the events off. @default [0.5, 0.8, 0.95, 1]
   */
  readonly budgetWarnings?: readonly number[]
  /** Custom models, prices and aliases. */
  readonly catalog?: CatalogOptions
  /** Options for tiers 2 to 5 and the prompt cache. `false` switches all of them off. @default on, where they save money */
  readonly savings?: false | SavingsOptions
  /** Options for tier 1, the semantic cache. `false` switches it off. @default on, in memory, separate for each key */
  readonly cache?: false | CacheOptions
  /** Keys, budgets and rate limits that are created or updated at startup. */
  readonly governance?: GovernanceConfiguration | WireForm<GovernanceConfiguration>
  /** What customers of each plan may spend, by the name of the plan. See docs/customers.md. @default no plans */
  readonly plans?: Readonly<Record<string, CustomerPlan>>
  /** How customers are created. */
  readonly customers?: CustomersOptions
  /** Authorization of the admin API. @default no request is authorized */
  readonly admin?: AdminOptions | undefined
  /** Recordings that let clients resume a stream. `false` switches them off. @default on, for one hour */
  readonly streams?: false | StreamsOptions
  /** Options of message batches. With `false`, their paths respond with 404, and no worker runs. @default on */
  readonly batches?: false | BatchOptions
  /** The path under which the gateway is mounted, such as `/ai`. @default '' */
  readonly basePath?: string | undefined
  /**
   * The base URL of the gateway for its clients, such as `https://example.com/ai`, for absolute URLs in responses. Must
   * include the mount path. Set it behind a proxy that terminates TLS, changes the host or strips a prefix.
   * @default the origin of the request, and `basePath`
   */
  readonly publicUrl?: string | undefined
  /** Limits on requests. */
  readonly limits?: Partial<Limits>
  /** Vendor endpoints to forward without translation. See docs/passthrough.md. @default none */
  readonly passthrough?: PassthroughOptions
  /** In milliseconds. @default { connectMs: 10_000, firstByteMs: 120_000, idleMs: 60_000, totalMs: 600_000 } */
  readonly timeouts?: Partial<Timeouts>
  /** Options of the circuit breaker, which skips a provider's failing models. `false` switches it off. See docs/operating.md. @default on */
  readonly circuitBreaker?: false | CircuitBreakerOptions
  /** Receives each log record. Its errors are ignored. @default no log */
  readonly log?: ((record: LogRecord) => void) | undefined
  /** Replaces platform functions: the clock, random numbers, UUIDs and `fetch`. */
  readonly runtime?: RuntimeOptions
}

/** Options for the semantic cache; see docs/tiers/1-semantic-cache.md. */
export type CacheOptions = Omit<SemanticCacheOptions, 'runtime' | 'pause'>

/** At most one day, because the amount of an abandoned request stays reserved for longer than `timeouts.totalMs`. */
const milliseconds = integerFrom(1, 86_400_000, 'milliseconds')

const positiveInteger = integerFrom(1)

const checkEndpointFields = optionsOf({
  provider: expects('the name of a provider', (value) => typeof value === 'string'),
  priceUsd: functionCheck('priceUsd(request) that returns dollars'),
  finalPriceUsd: functionCheck('finalPriceUsd(request, response) that returns dollars'),
  free: checkFlag,
})

const checkEndpoint: OptionCheck = (value, path) => {
  const problem = checkEndpointFields(value, path)
  if (problem !== undefined) return problem
  const { priceUsd, finalPriceUsd, free } = value as PassthroughEndpoint
  const isConsistent = priceUsd === undefined ? finalPriceUsd === undefined : free !== true
  return isConsistent
    ? undefined
    : { path, text: 'expected priceUsd or free, not both; finalPriceUsd requires priceUsd.' }
}

const checkPassthrough: OptionCheck = optionsOf({
  images: checkEndpoint,
  audio: checkEndpoint,
  moderations: checkEndpoint,
  completions: checkEndpoint,
  files: checkEndpoint,
  rerank: checkEndpoint,
} satisfies Record<PassthroughName, OptionCheck>)

const hook = expects('a function', (value) => typeof value === 'function')

const checkPlugin = optionsOf(
  {
    name: expects(
      'up to 64 letters, digits and . _ / @ -',
      (value) => typeof value === 'string' && /^[\w./@-]{1,64}$/.test(value),
    ),
    onFailure: oneOf('reject', 'skip'),
    timeoutMs: integerFrom(1, 30_000, 'milliseconds'),
    onRequest: hook,
    onLookup: hook,
    transformPrompt: hook,
    transformResponse: hook,
    onAttempt: hook,
    onEnd: hook,
    onBudget: hook,
    outbox: objectWith('an object with record and deliver', ['record', 'deliver']),
    close: hook,
  },
  ['name'],
)

const checkPlugins: OptionCheck = (value, path) => {
  const problem = listOf('a list of plugins', checkPlugin)(value, path)
  if (problem !== undefined) return problem
  const plugins = value as readonly Plugin[]
  const hasUniqueNames = new Set(plugins.map(({ name }) => name)).size === plugins.length
  return hasUniqueNames ? undefined : { path, text: 'expected unique names.' }
}

const checkGateway = optionsOf(
  {
    providers: listOf(
      'a list of at least one provider, such as [openai()]',
      objectWith('a provider, such as openai()', ['name', 'dialect', 'model', 'complete', 'stream']),
      1,
    ),
    store: objectWith('a store, such as memoryStore()', ['get', 'set', 'swap', 'reserve', 'settle']),
    storeTimeoutMs: milliseconds,
    keyCacheMs: integerFrom(0, 5_000, 'milliseconds'),
    margin: (value, path) => (typeof value === 'function' ? undefined : checkMargin(value, path)),
    billing: optionsOf({ cachedTokens: oneOf('vendor', 'list') }),
    headers: optionsOf({ margin: checkFlag }),
    plugins: checkPlugins,
    budgetWarnings: checkShares,
    catalog: unchecked,
    savings: falseOr(checkSavings),
    cache: falseOr(checkCache),
    governance: unchecked,
    plans: checkPlans,
    customers: checkCustomers,
    admin: optionsOf({
      key: expects('a string of at least 16 characters', (value) => typeof value === 'string' && value.length >= 16),
      authorize: functionCheck('authorize(request)'),
    }),
    batches: falseOr(
      optionsOf({
        concurrency: integerFrom(0, 1000),
        leaseMs: integerFrom(1000),
        waitUntil: functionCheck('waitUntil(promise)'),
      }),
    ),
    streams: falseOr(checkStreams),
    basePath: expects(
      'a path such as /ai, without a trailing slash',
      (value) => typeof value === 'string' && /^(\/[\w.~-]+)*$/.test(value),
    ),
    publicUrl: expects(
      'an absolute URL such as https://example.com/ai, without credentials, query and fragment',
      (value) => typeof value === 'string' && /^https?:\/\/[^\s?#@\\]+$/.test(value) && URL.canParse(value),
    ),
    limits: optionsOf({
      bodyBytes: positiveInteger,
      bodyBytesPerKey: positiveInteger,
      bodyReadMs: positiveInteger,
      jsonDepth: positiveInteger,
      jsonKeys: positiveInteger,
      jsonObjectKeys: positiveInteger,
      jsonNumbers: positiveInteger,
      jsonSyntaxBytes: positiveInteger,
      promptBytes: positiveInteger,
      maxTemperature: numberFrom(0, 2),
      heartbeatMs: positiveInteger,
    }),
    vendorTools: oneOf('reserve', 'refuse', 'allow'),
    surcharges: oneOf('bill', 'refuse', 'allow'),
    onUntranslatable: oneOf('refuse', 'drop'),
    onStoreFailure: oneOf('refuse', 'allow'),
    passthrough: checkPassthrough,
    timeouts: optionsOf({
      connectMs: milliseconds,
      firstByteMs: milliseconds,
      idleMs: milliseconds,
      totalMs: milliseconds,
    }),
    circuitBreaker: falseOr(checkCircuitBreaker),
    log: functionCheck('log(record)'),
    runtime: optionsOf({
      now: functionCheck('now()'),
      random: functionCheck('random()'),
      uuid: functionCheck('uuid()'),
      fetch: functionCheck('fetch(url, init)'),
      stderr: functionCheck('stderr(line)'),
    }),
  } satisfies Record<keyof GatewayOptions, OptionCheck>,
  ['providers'],
  'an object with at least one provider: createGateway({ providers: [openai()] })',
)

const checkGatewayWithPlans = firstProblem(checkGateway, (value) => {
  const { plans = {}, customers = {} } = value as GatewayOptions
  return checkDefaultPlan(customers, plans)
})

export function checkGatewayOptions(options: unknown): void {
  checkOptions('createGateway', options, checkGatewayWithPlans)
}

const CLOSED_CALL: TransportCall = { pause: () => {}, resume: () => {}, abort: () => {} }

export function createRuntime(options: RuntimeOptions = {}): Runtime & { readonly close: () => Promise<void> } {
  const transport = options.fetch === undefined ? defaultTransport() : fetchTransport(options.fetch)
  let isClosed = false
  return {
    now: options.now ?? Date.now,
    random: options.random ?? Math.random,
    uuid: options.uuid ?? (() => crypto.randomUUID()),
    transport: (request, handler) => {
      if (!isClosed) return transport(request, handler)
      // A call after `close` would open a connection that is never closed.
      const message = 'The gateway was closed before the request was answered. Send the request again.'
      handler.onError(new GatewayError('overloaded', message))
      return CLOSED_CALL
    },
    after,
    close: () => {
      isClosed = true
      return transport.close()
    },
  }
}
