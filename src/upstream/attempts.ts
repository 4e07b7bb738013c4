import type { ResponseSource, Completion, StreamChunk } from '../core/completion.ts'
import type { Cancellation } from '../core/async.ts'
import { GatewayError } from '../core/errors.ts'
import { isJsonObject, type Json, type JsonObject } from '../core/json.ts'
import { add, costOf, type NanoUsd, type Price, promptTokens, ZERO, NO_USAGE, type Usage } from '../core/money.ts'
import type {
  EmbeddingRequest,
  EmbeddingResult,
  Provider,
  ProviderResponse,
  Route,
  UpstreamCaller,
} from '../core/ports.ts'
import type { Dialect, Prompt } from '../core/prompt.ts'
import type { UpstreamStream } from './upstream-stream.ts'

/** Calls the routes in order until one answers or rejects the request. An open stream is not replaced. */
export interface Upstream {
  complete(routes: readonly Route[], call: UpstreamCall): Promise<UpstreamResponse<Completion>>
  stream(
    routes: readonly Route[],
    call: UpstreamCall,
    createStream: CreateStream,
  ): Promise<UpstreamResponse<UpstreamStream>>
  embed(routes: readonly Route[], call: UpstreamEmbeddingCall): Promise<UpstreamResponse<EmbeddingResult>>
}

/** Throws for a call whose vendor key would be that of the operator, although the customer pays. */
export function checkPayer({ name, usesCallerKeys }: Provider, { payer }: Pick<UpstreamCaller, 'payer'>): void {
  if (payer === 'operator' || usesCallerKeys === true) return
  const message = `The customer pays the vendor, but the provider "${name}" has one key for all callers. Use another provider, or let the operator pay.`
  throw new GatewayError('not-permitted', message, { code: 'customer_key_missing', isLocalFault: true })
}

export type CreateStream = (route: Route, response: AsyncIterable<StreamChunk> | ResponseSource) => UpstreamStream

export interface UpstreamRequest {
  readonly headers: Readonly<Record<string, string>>
  readonly cancellation: Cancellation
  readonly scope: string
  readonly caller: UpstreamCaller
  /** Start of `timeouts.totalMs`, in milliseconds since 1970. */
  readonly startedAt: number
  readonly attempts: Attempts
  /** Called before a request is sent, with the fields that the route's provider drops. */
  onIgnored?(route: Route, names: readonly string[]): void
}

export interface UpstreamCall extends UpstreamRequest {
  readonly promptFor: (route: Route) => Prompt
}

export interface UpstreamEmbeddingCall extends UpstreamRequest {
  readonly request: EmbeddingRequest
}

export interface UpstreamResponse<ModelResponse> extends ProviderResponse<ModelResponse> {
  readonly route: Route
}

/** The usage may increase while the response is received. */
type ResponseWithUsage = Readonly<{ usage?: Usage | undefined }>

/**
 * The vendor charges for a call that the upstream accepts, and for a sent call that the gateway ends before the response
 * because of a timeout or a cancellation.
 */
export class AttemptRecord {
  readonly route: Route
  isBillable = false
  readonly #cancellation: Cancellation
  /** True if the request was canceled before the call was sent. */
  readonly #isUnsent: boolean
  #response: ResponseWithUsage = {}

  constructor(route: Route, cancellation: Cancellation) {
    this.route = route
    this.#cancellation = cancellation
    this.#isUnsent = cancellation.isCanceled
  }

  get usage(): Usage {
    return this.#response.usage ?? NO_USAGE
  }

  recordResponse(response: ResponseWithUsage): void {
    this.isBillable = true
    this.#response = response
  }

  recordFailure(error: unknown): void {
    this.isBillable ||= !this.#isUnsent && (this.#cancellation.isCanceled || isTimeoutAfterSend(error))
  }
}

export class Attempts {
  readonly #cancellation: Cancellation
  readonly #records: AttemptRecord[] = []

  constructor(cancellation: Cancellation) {
    this.#cancellation = cancellation
  }

  begin(route: Route): AttemptRecord {
    const record = new AttemptRecord(route, this.#cancellation)
    this.#records.push(record)
    return record
  }

  get hasUnreportedPrompt(): boolean {
    return this.#records.some(({ isBillable, usage }) => isBillable && promptTokens(usage) === 0)
  }

  /** `countPrompt` supplies prompt tokens that an upstream did not report. */
  cost(countPrompt: () => number, priceOf: PriceOfCall): NanoUsd {
    return costOfBillable(this.#records, countPrompt, priceOf)
  }

  /** Excludes the last call, which is billed separately. */
  costOfUnusedCalls(countPrompt: () => number, priceOf: PriceOfCall): NanoUsd {
    return this.#records.length < 2 ? ZERO : costOfBillable(this.#records.slice(0, -1), countPrompt, priceOf)
  }

  lastIfBillable(): AttemptRecord | undefined {
    const record = this.#records.at(-1)
    return record?.isBillable === true ? record : undefined
  }
}

type PriceOfCall = (route: Route, usage: Usage) => Price

function costOfBillable(records: readonly AttemptRecord[], countPrompt: () => number, priceOf: PriceOfCall): NanoUsd {
  return records.reduce((sum, { isBillable, route, usage }) => {
    return isBillable ? add(sum, costOf(addMissingPromptTokens(usage, countPrompt), priceOf(route, usage))) : sum
  }, ZERO)
}

/** Zero means that the upstream did not report the tokens of the prompt. */
function addMissingPromptTokens(usage: Usage, countPrompt: () => number): Usage {
  return promptTokens(usage) > 0 ? usage : { ...usage, inputTokens: countPrompt() }
}

function isTimeoutAfterSend(error: unknown): boolean {
  return GatewayError.is(error) && error.kind === 'upstream-timeout' && error.details.isUnsent !== true
}

/** @param problem Completes "The provider …". */
export function upstreamError(provider: string, problem: string, cause?: unknown): GatewayError {
  return new GatewayError('upstream', `The provider "${provider}" ${problem}.`, cause === undefined ? {} : { cause })
}

export function connectError(provider: string, connectMs: number, cause: unknown): GatewayError {
  if (GatewayError.is(cause)) return cause
  const code = typeof cause === 'object' && cause !== null && 'code' in cause ? cause.code : undefined
  if (code !== 'UND_ERR_CONNECT_TIMEOUT') return upstreamError(provider, 'could not be reached', cause)
  const message = `The provider "${provider}" did not accept a connection within ${connectMs / 1000} seconds.`
  return new GatewayError('upstream-timeout', message, { isUnsent: true, cause })
}

/** Some upstreams repeat a rejected key in their errors. */
export function redactSecrets(failure: GatewayError, secrets: readonly string[]): GatewayError {
  const redact = (text: string): string =>
    secrets.reduce((redacted, secret) => redacted.replaceAll(secret, '[removed]'), text)
  const { param, upstream } = failure.details
  return new GatewayError(failure.kind, redact(failure.message), {
    ...failure.details,
    ...(param !== undefined && { param: redact(param) }),
    ...(upstream !== undefined && {
      upstream: { ...(redactJson({ ...upstream }, redact) as JsonObject), status: upstream.status },
    }),
  })
}

function redactJson(value: Json, redact: (text: string) => string): Json {
  if (typeof value === 'string') return redact(value)
  if (Array.isArray(value)) return value.map((item: Json) => redactJson(item, redact))
  if (!isJsonObject(value)) return value
  const fields = Object.entries(value).map(([name, field]) => [redact(name), redactJson(field ?? null, redact)])
  return Object.fromEntries(fields) as JsonObject
}

export function timeoutError(provider: string, ms: number): GatewayError {
  return new GatewayError('upstream-timeout', `The provider "${provider}" did not answer within ${ms / 1000} seconds.`)
}

export function supportsDialect(provider: Pick<Provider, 'dialect' | 'secondDialect'>, dialect: Dialect): boolean {
  return provider.dialect === dialect || provider.secondDialect === dialect
}

export function isResponseSource(response: AsyncIterable<StreamChunk> | ResponseSource): response is ResponseSource {
  return 'read' in response
}
