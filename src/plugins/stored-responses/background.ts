import type { Bill } from '../../billing/bill.ts'
import type { Completion } from '../../core/completion.ts'
import { GatewayError } from '../../core/errors.ts'
import { isJsonObject, type JsonObject } from '../../core/json.ts'
import type { StoredResponseCall } from '../../core/ports.ts'
import { upstreamError } from '../../upstream/attempts.ts'
import { billFor, billForIncomplete } from '../../kernel/charge.ts'
import { billForReservedLength, estimateHeaders } from '../../kernel/estimate.ts'
import { type Responded } from '../../kernel/exchange.ts'
import { keepResponse } from '../../kernel/respond.ts'
import { storingProvider } from './storing-provider.ts'
import type { Turns } from './turns.ts'
import { endWithoutResponse, settle } from '../../kernel/settle.ts'
import type { Services } from '../../kernel/services.ts'
import { baseHeaders, sendJson } from '../../kernel/response-headers.ts'
import { asFailure } from '../../kernel/failures.ts'

const FIRST_WAIT_MS = 250
const MAX_WAIT_MS = 5_000
/**
 * Maximum duration of one poll, in milliseconds. A wait and two polls after the deadline of the request must end before
 * its reservation expires.
 */
const POLL_TIMEOUT_MS = 25_000

export async function respondInBackground(
  responded: Responded,
  completion: Completion,
  turns: Turns,
  services: Services,
): Promise<void> {
  const { caller, sink, format } = responded
  const providerName = storingProvider(responded)
  if (providerName !== undefined) {
    const ids = format.turns?.idsOf(valueOf(completion)) ?? []
    await turns.storeProvider(caller.scope, ids, providerName).catch(reportUnregistered(services))
  }
  const body = completion.native?.text ?? JSON.stringify(valueOf(completion))
  const headers = estimateHeaders(responded, services)
  await keepResponse(responded, { headers, body, id: completion.id }, services)
  await settleInBackground(responded, { id: completion.id, completion }, turns, services)
  sendJson(sink, 200, Object.assign(baseHeaders(responded.id, responded.grant.rate), headers), body)
}

export interface BackgroundResponse {
  readonly id: string
  readonly completion?: Completion
  readonly streamedBill?: Bill | undefined
}

/**
 * Keeps the reservation while the response is generated, because background work must not exceed the budget. Cancels an
 * unfinished response upstream when the gateway closes, when it can no longer be read, or after `timeouts.totalMs`, because
 * the reservation would expire soon after.
 */
export function settleInBackground(
  responded: Responded,
  response: BackgroundResponse,
  turns: Turns,
  services: Services,
): Promise<void> {
  const work = new BackgroundWork(responded, response, turns, services)
  services.detached.add({ end: () => work.end(), ended: work.run() })
  return work.registered
}

/** A failed registration does not stop the work, because the vendor charges for the response anyway. */
function reportUnregistered({ log }: Services): (cause: unknown) => void {
  return (cause) => log.failure('a background response could not be registered', cause)
}

function valueOf({ native }: Completion): JsonObject {
  return native?.value ?? {}
}

class BackgroundWork {
  readonly registered: Promise<void>
  readonly #responded: Responded
  readonly #services: Services
  readonly #turns: Turns
  readonly #id: string
  readonly #streamedBill: Bill | undefined
  readonly #deadline: number
  #completion: Completion | undefined
  #hasFailed = false
  #isClosing = false
  #wake: () => void = () => {}

  constructor(
    responded: Responded,
    { id, completion, streamedBill }: BackgroundResponse,
    turns: Turns,
    services: Services,
  ) {
    this.#responded = responded
    this.#services = services
    this.#turns = turns
    this.#id = id
    this.#completion = completion
    this.#streamedBill = streamedBill
    this.#deadline = responded.startedAt + services.timeouts.totalMs
    this.registered = turns.setUnsettled(responded.caller.scope, id, true).catch(reportUnregistered(services))
  }

  end(): void {
    this.#isClosing = true
    this.#wake()
  }

  async run(): Promise<void> {
    await this.registered
    await this.#pollUntilComplete()
    await this.#settle()
    await this.#turns.setUnsettled(this.#responded.caller.scope, this.#id, false).catch(() => {})
  }

  get #isUnfinished(): boolean {
    const completion = this.#completion
    return completion === undefined || this.#responded.format.turns?.isUnfinished(completion) === true
  }

  async #pollUntilComplete(): Promise<void> {
    const { runtime } = this.#services
    let waitMs = FIRST_WAIT_MS
    while (this.#isUnfinished && !this.#isClosing && runtime.now() < this.#deadline) {
      await this.#pause(waitMs)
      waitMs = Math.min(MAX_WAIT_MS, 2 * waitMs)
      if (!(await this.#updateResponse('GET', ''))) break
    }
    if (this.#isUnfinished) await this.#updateResponse('POST', '/cancel')
  }

  /** Resolves with false if polling must stop. */
  async #updateResponse(method: StoredResponseCall['method'], action: string): Promise<boolean> {
    const { route, format } = this.#responded
    const { runtime, timeouts } = this.#services
    // The work continues after the request is canceled.
    const { signal } = new AbortController()
    try {
      const text = await route?.provider.storedResponse?.({
        caller: this.#responded.caller.upstream,
        method,
        path: `/${encodeURIComponent(this.#id)}${action}`,
        signal,
        runtime,
        timeouts: { ...timeouts, totalMs: Math.min(timeouts.totalMs, POLL_TIMEOUT_MS) },
      })
      const body: unknown = text === undefined ? undefined : JSON.parse(text)
      if (!isJsonObject(body)) return false
      this.#hasFailed = body['status'] === 'failed'
      this.#completion = format.turns?.readCompletion(withReadableUsage(body)) ?? this.#completion
      return true
    } catch (error) {
      return !(GatewayError.is(error) && error.kind === 'upstream-rejected')
    }
  }

  #pause(waitMs: number): Promise<void> {
    return new Promise((resolve) => {
      const cancel = this.#services.runtime.after(waitMs, resolve)
      this.#wake = () => {
        cancel()
        resolve()
      }
    })
  }

  async #settle(): Promise<void> {
    const [responded, services, completion] = [this.#responded, this.#services, this.#completion]
    try {
      if (this.#hasFailed && completion?.usage === undefined) {
        const failure = upstreamError(responded.route?.provider.name ?? '', 'failed to generate the response')
        const [outcome, bill] = [{ status: 200, failure }, this.#streamedBill]
        return await (bill === undefined
          ? endWithoutResponse(responded, outcome, services)
          : settle(responded, { ...outcome, bill }, services))
      }
      const outcome = { status: 200, bill: this.#bill() }
      const isComplete = completion !== undefined && isCompleted(completion)
      await settle(responded, isComplete ? { ...outcome, completion: () => completion } : outcome, services)
    } catch (cause) {
      services.log.failure('a background response could not be settled', asFailure(cause))
    }
  }

  /** If the end of the response is unknown, assumes the reserved length, because the vendor may charge for it. */
  #bill(): Bill {
    const [responded, completion, { meter }] = [this.#responded, this.#completion, this.#services]
    if (completion === undefined || this.#isUnfinished) return billForReservedLength(responded)
    const response = { usage: completion.usage, completion: () => completion }
    if (isCompleted(completion)) return billFor(responded, response, meter)
    const bill = billForIncomplete(responded, response, meter)
    return this.#streamedBill !== undefined && this.#streamedBill.billed > bill.billed ? this.#streamedBill : bill
  }
}

function isCompleted(completion: Completion): boolean {
  return valueOf(completion)['status'] === 'completed'
}

/** Turns a failed response into an incomplete one, because the reader throws for failed responses. */
function withReadableUsage(body: JsonObject): JsonObject {
  const { error: _error, ...others } = body
  return body['status'] === 'failed' ? { ...others, status: 'incomplete' } : body
}
