import * as z from 'zod/mini'
import type { SemanticCacheOptions } from './cache/cache-options.ts'
import type { GovernanceConfiguration } from './governance/configuration.ts'
import type { CatalogOptions } from './providers/catalog.ts'
import { circuitBreakerSchema, type CircuitBreakerOptions } from './providers/circuit-breaker.ts'
import type { BatchOptions } from './wiring/batches.ts'
import type { StreamsOptions } from './wiring/replay.ts'
import { GatewayError } from './core/errors.ts'
import { batchSchema } from './wiring/batches.ts'
import { streamsSchema } from './wiring/replay.ts'
import { passthroughSchema, type PassthroughOptions } from './pipeline/passthrough-options.ts'
import type { Limits } from './pipeline/services.ts'
import { savingsSchema, type SavingsOptions } from './wiring/savings.ts'
import type { Provider, Store, Timeouts } from './core/ports.ts'
import type { RuntimeOptions } from './http/runtime.ts'
import type { AdminOptions } from './routes/authorize.ts'

/** Who asks for what, for a margin that depends on it. */
export interface MarginCall {
  readonly keyId: string
  readonly keyName: string
  /** The model's name as the caller wrote it. */
  readonly model: string
}

export const DEFAULT_LIMITS: Limits = {
  bodyBytes: 32 * 1024 * 1024,
  bodyBytesPerKey: 128 * 1024 * 1024,
  bodyReadMs: 15_000,
  jsonDepth: 64,
  jsonKeys: 100_000,
  jsonNumbers: 500_000,
  jsonSyntaxBytes: 4 * 1024 * 1024,
  promptBytes: 8 * 1024 * 1024,
  maxTemperature: 1,
  vendorTools: 'reserve',
  heartbeatMs: 15_000,
}

export const DEFAULT_TIMEOUTS: Timeouts = { connect: 10_000, firstByte: 120_000, idle: 60_000, total: 600_000 }

/** Milliseconds that one request waits for the store, over all its calls. */
export const DEFAULT_STORE_TIMEOUT_MS = 5_000

export const DEFAULT_MARGIN = 1.5

/** The options of a gateway. Unknown options are refused at the start. */
export interface GatewayOptions {
  /** Who answers: `openai(…)`, `anthropic(…)`, `openaiCompatible(…)`, `extractive()`. At least one. */
  readonly providers: readonly Provider[]
  /** Keys, budgets and what must outlive a request. @default memoryStore(), which lives as long as the process */
  readonly store?: Store
  /**
   * What happens to a request whose key, limits or budget cannot be checked because the store fails. `refuse`: 503, and no
   * upstream is called. `allow`: a key that this process has seen before is served without limits, and billed when the
   * store is back. @default 'refuse'
   */
  readonly onStoreFailure?: 'refuse' | 'allow'
  /**
   * Maximum time that one request waits for the store, over all its calls, in milliseconds. One call takes at most two
   * fifths of it. @default 5,000
   */
  readonly storeTimeoutMs?: number
  /**
   * How long a process remembers keys, shared budgets and rate limits, in milliseconds, 0 to 5,000: changes by another
   * process take effect after it, those by the process itself at once. @default 2,000
   */
  readonly keyCacheMs?: number
  /** billed = theoretical cost × margin: a number, or a function of key and model. @default 1.5 */
  readonly margin?: number | ((call: MarginCall) => number)
  /** Models, prices and aliases of your own. */
  readonly catalog?: CatalogOptions
  /** Tiers 2 to 5. @default on, where they pay */
  readonly savings?: SavingsOptions
  /** Tier 1; `false` stores no answers. @default on, in memory, within each key, from similarity 0.95 */
  readonly cache?: false | CacheOptions
  /** Keys, budgets and rate limits that exist from the start. */
  readonly governance?: GovernanceConfiguration
  /** Decides which requests may use the admin API. @default none */
  readonly admin?: AdminOptions
  /** Messages that can be streamed again; `false` keeps none. @default on, for an hour */
  readonly streams?: false | StreamsOptions
  /** How this process works off message batches. */
  readonly batches?: BatchOptions
  /** The path under which the gateway is mounted, such as `/ai`. @default '' */
  readonly basePath?: string
  readonly limits?: Partial<Limits>
  /**
   * What happens to a request whose model is reached in another format that cannot say all of it: `refuse` answers 400 and
   * names the field, `drop` leaves it out and names it in `X-Svc-Ignored`. @default 'refuse'
   */
  readonly onUntranslatable?: 'refuse' | 'drop'
  /** Endpoints of the vendors that are open besides the model calls; see docs/passthrough.md. @default none */
  readonly passthrough?: PassthroughOptions
  /** Milliseconds. @default { connect: 10_000, firstByte: 120_000, idle: 60_000, total: 600_000 } */
  readonly timeouts?: Partial<Timeouts>
  /** When a model of a provider that fails is skipped; see docs/operating.md. */
  readonly circuitBreaker?: CircuitBreakerOptions
  /** Gets each line of the request log. @default none is written */
  readonly log?: (record: LogRecord) => void
  readonly runtime?: RuntimeOptions
}

/** Tier 1; see docs/tiers/1-semantic-cache.md. */
export type CacheOptions = Omit<SemanticCacheOptions, 'runtime' | 'pause'>

/** One line of the request log. */
export type LogRecord = Readonly<Record<string, unknown>>

function functionFor<signature extends (...given: never[]) => unknown>(purpose: string): z.ZodMiniType<signature> {
  return z.custom<signature>((value) => typeof value === 'function', { error: `a function was expected: ${purpose}` })
}

function objectWith<port>(purpose: string, methods: readonly string[]): z.ZodMiniType<port> {
  return z.custom<port>(
    (value) => typeof value === 'object' && value !== null && methods.every((method) => method in value),
    { error: `${purpose} was expected` },
  )
}

const whole = z.int({ error: 'a whole number of at least 1 was expected' }).check(z.minimum(1))

/** Money is held for `timeouts.total` and a minute when a process dies, and timers overflow after 24 days. */
const MAX_TIMEOUT_MS = 86_400_000

const milliseconds = z
  .int({ error: 'a whole number of milliseconds was expected' })
  .check(
    z.minimum(1, { error: 'at least 1 millisecond was expected' }),
    z.maximum(MAX_TIMEOUT_MS, { error: `at most ${MAX_TIMEOUT_MS} milliseconds (24 hours) were expected` }),
  )

const KEY_CACHE = 'milliseconds from 0 to 5,000 were expected'

/** The values are checked by the room; that no other name is there is checked here. */
const CACHE_OPTIONS = [
  'enabled',
  'ttlSeconds',
  'freshTtlSeconds',
  'similarityThreshold',
  'scope',
  'maxEntries',
  'maxBytes',
  'embedder',
  'index',
  'answers',
  'verifyHit',
  'timeoutMs',
]

function anyOf(names: readonly string[]): Record<string, z.ZodMiniType> {
  return Object.fromEntries(names.map((name) => [name, z.optional(z.unknown())]))
}

/** Checks of the options that belong to the gateway itself; those of a room are parsed by that room. */
const schema = z.strictObject({
  providers: z
    .array(
      objectWith<Provider>('a provider, such as openai({ … })', ['name', 'dialect', 'model', 'complete', 'stream']),
      {
        error: 'a list of providers was expected, such as [openai({ … })]',
      },
    )
    .check(z.minLength(1, { error: 'at least one provider was expected' })),
  store: z.optional(objectWith<Store>('a store, such as memoryStore()', ['get', 'set', 'swap', 'reserve', 'settle'])),
  onStoreFailure: z.optional(z.enum(['refuse', 'allow'], { error: 'refuse or allow was expected' })),
  storeTimeoutMs: z.optional(milliseconds),
  keyCacheMs: z.optional(
    z.int({ error: KEY_CACHE }).check(z.minimum(0, { error: KEY_CACHE }), z.maximum(5_000, { error: KEY_CACHE })),
  ),
  margin: z.optional(
    z.union([z.number().check(z.minimum(0), z.maximum(1000)), functionFor<(call: MarginCall) => number>('margin')], {
      error: 'a number from 0 to 1000, or a function that answers one, was expected',
    }),
  ),
  catalog: z.optional(z.unknown()),
  savings: z.optional(savingsSchema),
  cache: z.optional(
    z.union([z.literal(false), z.strictObject(anyOf(CACHE_OPTIONS))], {
      error: `false, or an object of ${CACHE_OPTIONS.join(', ')}, was expected`,
    }),
  ),
  governance: z.optional(z.unknown()),
  admin: z.optional(
    z.strictObject({
      key: z.optional(z.string().check(z.minLength(16, { error: 'at least 16 characters were expected' }))),
      authorize: z.optional(functionFor<NonNullable<AdminOptions['authorize']>>('authorize(request)')),
    }),
  ),
  batches: z.optional(batchSchema),
  streams: z.optional(streamsSchema),
  basePath: z.optional(
    z
      .string()
      .check(z.regex(/^(\/[\w.~-]+)*$/, { error: 'a path such as /ai was expected, without a slash at its end' })),
  ),
  limits: z.optional(
    z.strictObject({
      bodyBytes: z.optional(whole),
      bodyBytesPerKey: z.optional(whole),
      bodyReadMs: z.optional(whole),
      jsonDepth: z.optional(whole),
      jsonKeys: z.optional(whole),
      jsonNumbers: z.optional(whole),
      jsonSyntaxBytes: z.optional(whole),
      promptBytes: z.optional(whole),
      maxTemperature: z.optional(z.number().check(z.minimum(0), z.maximum(2))),
      vendorTools: z.optional(
        z.enum(['reserve', 'refuse', 'allow'], { error: 'reserve, refuse or allow was expected' }),
      ),
      heartbeatMs: z.optional(whole),
    }),
  ),
  onUntranslatable: z.optional(z.enum(['refuse', 'drop'], { error: 'refuse or drop was expected' })),
  passthrough: z.optional(passthroughSchema),
  timeouts: z.optional(
    z.strictObject({
      connect: z.optional(milliseconds),
      firstByte: z.optional(milliseconds),
      idle: z.optional(milliseconds),
      total: z.optional(milliseconds),
    }),
  ),
  circuitBreaker: z.optional(circuitBreakerSchema),
  log: z.optional(functionFor<(record: LogRecord) => void>('log(record)')),
  runtime: z.optional(
    z.strictObject({
      now: z.optional(functionFor<NonNullable<RuntimeOptions['now']>>('now()')),
      random: z.optional(functionFor<NonNullable<RuntimeOptions['random']>>('random()')),
      uuid: z.optional(functionFor<NonNullable<RuntimeOptions['uuid']>>('uuid()')),
      fetch: z.optional(functionFor<NonNullable<RuntimeOptions['fetch']>>('fetch(url, init)')),
    }),
  ),
})

/** Throws `invalid-request` that names the first wrong option by its path and says what was expected. */
export function checkOptions(options: unknown): void {
  const result = schema.safeParse(options)
  if (result.success) return
  const [issue] = result.error.issues
  const path = issue?.path.map(String).join('.') ?? ''
  const what = issue?.code === 'unrecognized_keys' ? `there is no option ${issue.keys.join(', ')}` : issue?.message
  throw new GatewayError('invalid-request', `createGateway: ${path === '' ? '' : `${path}: `}${what}.`, { param: path })
}
