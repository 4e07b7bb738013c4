import { NO_USAGE, promptTokens, type Usage, type StreamReader } from '../core/answer.ts'
import type { Cancellation } from '../core/async.ts'
import { GatewayError } from '../core/errors.ts'
import { add, costOf, ZERO, type NanoUsd } from '../core/money.ts'
import type { Route } from '../core/ports.ts'
import { Collector } from '../core/stream-chunks.ts'
import { createSseParser, type SseParser } from '../http/sse.ts'
import { isJsonObject, type Json, type JsonObject } from '../core/json.ts'

/** The usage may increase while the answer is received. */
type AnswerWithUsage = Readonly<{ usage?: Usage | undefined }>

/**
 * One upstream call. The vendor charges for a call that the upstream accepts (status 200), and for a call that the
 * gateway ends before the answer because of a timeout or a disconnected client. Calls that are rejected or do not reach
 * the upstream are free.
 */
export class AttemptRecord {
  readonly route: Route
  isBillable = false
  readonly #cancellation: Cancellation
  /** True if the client disconnected before the call was sent. */
  readonly #isUnsent: boolean
  #answer: AnswerWithUsage = {}

  constructor(route: Route, cancellation: Cancellation) {
    this.route = route
    this.#cancellation = cancellation
    this.#isUnsent = cancellation.isCanceled
  }

  get usage(): Usage {
    return this.#answer.usage ?? NO_USAGE
  }

  recordAnswer(answer: AnswerWithUsage): void {
    this.isBillable = true
    this.#answer = answer
  }

  recordFailure(error: unknown): void {
    this.isBillable ||= !this.#isUnsent && (this.#cancellation.isCanceled || isTimeoutAfterSend(error))
  }
}

/** The upstream calls of one request, including retries and fallbacks. */
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

  /** True if at least one billable call has no reported prompt tokens. */
  get hasUnreportedPrompt(): boolean {
    return this.#records.some(({ isBillable, usage }) => isBillable && promptTokens(usage) === 0)
  }

  /** Returns the cost of all billable calls. `countPrompt` supplies prompt tokens that an upstream did not report. */
  cost(countPrompt: () => number): NanoUsd {
    return costOfBillable(this.#records, countPrompt)
  }

  /** Returns the cost of all billable calls except the last, which produced the answer. */
  costOfUnusedCalls(countPrompt: () => number): NanoUsd {
    return this.#records.length < 2 ? ZERO : costOfBillable(this.#records.slice(0, -1), countPrompt)
  }

  /** Returns the last call if it is billable. */
  lastIfBillable(): AttemptRecord | undefined {
    const record = this.#records.at(-1)
    return record?.isBillable === true ? record : undefined
  }
}

function costOfBillable(records: readonly AttemptRecord[], countPrompt: () => number): NanoUsd {
  return records.reduce((sum, { isBillable, route, usage }) => {
    return isBillable ? add(sum, costOf(addMissingPromptTokens(usage, countPrompt), route.model.price)) : sum
  }, ZERO)
}

/**
 * Adds the local count of the prompt to usage that lacks prompt tokens. A prompt is never empty, so 0 means that the
 * upstream did not count it.
 */
export function addMissingPromptTokens(usage: Usage, countPrompt: () => number): Usage {
  return promptTokens(usage) > 0 ? usage : { ...usage, inputTokens: countPrompt() }
}

function isTimeoutAfterSend(error: unknown): boolean {
  return GatewayError.is(error) && error.kind === 'upstream-timeout' && error.details.isUnsent !== true
}

const INITIAL_BUFFER_BYTES = 16 * 1024
/** Number of unparsed bytes at which the next `add` parses them. Parsing short events of this size takes about 20 ms. */
const MAX_UNREAD_BYTES = 256 * 1024

/**
 * Collects an answer from its bytes, because events that are forwarded unparsed reach no other collector. A short answer
 * is parsed only when its completion is read. A long answer is parsed while it arrives, because parsing 32 MiB at once
 * would block the event loop for seconds.
 *
 * The bytes are copied into one buffer. Thousands of small retained chunks would survive minor garbage collections and
 * slow them down.
 */
export class ReceivedAnswer {
  readonly #collector = new Collector()
  #parser: SseParser | undefined
  #reader: StreamReader
  #buffer = new Uint8Array(INITIAL_BUFFER_BYTES)
  #unreadBytes = 0

  constructor(reader: StreamReader) {
    this.#reader = reader
  }

  add(bytes: Uint8Array): void {
    if (this.#unreadBytes >= MAX_UNREAD_BYTES) this.read()
    const size = this.#unreadBytes + bytes.length
    if (size > this.#buffer.length) {
      const larger = new Uint8Array(2 * size)
      larger.set(this.#buffer)
      this.#buffer = larger
    }
    this.#buffer.set(bytes, this.#unreadBytes)
    this.#unreadBytes = size
  }

  /** Parses all unparsed bytes. If `isEndOfStream` is true, also parses a last event that no blank line follows. */
  read(isEndOfStream: boolean = false): Collector {
    // The translator limits the size of the answer.
    const parser = (this.#parser ??= createSseParser(Infinity))
    const bytes = this.#buffer.subarray(0, this.#unreadBytes)
    this.#unreadBytes = 0
    try {
      for (const event of parser.read(bytes)) this.#collector.add(this.#reader(event))
      if (isEndOfStream) for (const event of parser.end()) this.#collector.add(this.#reader(event))
    } catch {
      // The answer consists of the events before the faulty event.
      this.#reader = () => ({ parts: [] })
    }
    return this.#collector
  }
}

/** `problem` completes "The provider …". The message does not contain the provider's address. */
export function upstreamError(provider: string, problem: string, cause?: unknown): GatewayError {
  return new GatewayError('upstream', `The provider "${provider}" ${problem}.`, cause === undefined ? {} : { cause })
}

/**
 * Returns the error of a call that received no response: connection refused or reset, unknown host, too many headers, or
 * connect timeout.
 */
export function connectError(provider: string, connectMs: number, cause: unknown): GatewayError {
  if (GatewayError.is(cause)) return cause
  const code = typeof cause === 'object' && cause !== null && 'code' in cause ? cause.code : undefined
  if (code !== 'UND_ERR_CONNECT_TIMEOUT') return upstreamError(provider, 'could not be reached', cause)
  const message = `The provider "${provider}" did not accept a connection within ${connectMs / 1000} seconds.`
  return new GatewayError('upstream-timeout', message, { isUnsent: true, cause })
}

/** Removes the provider's secrets from a failure, because some upstreams repeat a rejected key in their errors. */
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
