import type { Completion } from '../core/answer.ts'
import { GatewayError } from '../core/errors.ts'
import { isJsonObject, type JsonObject } from '../core/json.ts'
import type { StoredResponseCall } from '../core/ports.ts'
import { billFor, billForIncomplete, expectedBill } from './charge.ts'
import type { Answered } from './exchange.ts'
import { asFailure, settle } from './settle.ts'
import { answerHeaders, baseHeaders, sendJson, storingProvider } from './response.ts'
import type { Services } from './services.ts'

/** Delay before the first poll of a background response, in milliseconds. The delay doubles after each poll. */
const FIRST_WAIT_MS = 250
const MAX_WAIT_MS = 5_000
/** Maximum duration of one poll, in milliseconds. */
const POLL_TIMEOUT_MS = 30_000

/**
 * Sends the accepted response immediately, and settles the request when the response is complete. The reservation lasts
 * until then, because background work must not exceed the budget. After `timeouts.total`, the gateway cancels the
 * response upstream. Otherwise, the reservation would expire while the vendor still charges for the response.
 */
export async function respondInBackground(
  answered: Answered,
  completion: Completion,
  services: Services,
): Promise<undefined> {
  const { key, sink, idempotencyClaim, format } = answered
  const providerName = storingProvider(answered)
  if (providerName !== undefined)
    await services.turns.storeProvider(key, format.turns?.idsOf(valueOf(completion)) ?? [], providerName)
  const body = completion.native?.text ?? JSON.stringify(valueOf(completion))
  const headers = answerHeaders(expectedBill(answered), answered.ignoredFields)
  await idempotencyClaim?.remember({ status: 200, head: { ...headers, 'content-type': 'application/json' }, body })
  new BackgroundWork(answered, completion, services).begin()
  sendJson(sink, 200, Object.assign(baseHeaders(answered.id, answered.reservation.rate), headers), body)
  return undefined
}

function valueOf({ native }: Completion): JsonObject {
  return native?.value ?? {}
}

/** A background response, from its acceptance to its settlement. */
class BackgroundWork {
  readonly #answered: Answered
  readonly #services: Services
  readonly #deadline: number
  #completion: Completion
  #isClosing = false
  #wake: () => void = () => {}

  constructor(answered: Answered, accepted: Completion, services: Services) {
    this.#answered = answered
    this.#services = services
    this.#completion = accepted
    this.#deadline = answered.startedAt + services.timeouts.total
  }

  begin(): void {
    this.#services.detached.add({
      end: () => {
        this.#isClosing = true
        this.#wake()
      },
      ended: this.#pollUntilComplete(),
    })
  }

  get #isUnfinished(): boolean {
    return this.#answered.format.turns?.isUnfinished(this.#completion) === true
  }

  async #pollUntilComplete(): Promise<void> {
    const { runtime } = this.#services
    let waitMs = FIRST_WAIT_MS
    while (this.#isUnfinished && !this.#isClosing && runtime.now() < this.#deadline) {
      await this.#pause(waitMs)
      waitMs = Math.min(MAX_WAIT_MS, 2 * waitMs)
      if (!(await this.#poll('GET', ''))) break
    }
    if (this.#isUnfinished) await this.#poll('POST', '/cancel')
    await this.#settle()
  }

  /**
   * Calls the upstream and updates the response. Returns false if the upstream no longer has the response. Any other
   * failed poll is retried.
   */
  async #poll(method: StoredResponseCall['method'], action: string): Promise<boolean> {
    const { route, cancellation, format } = this.#answered
    const { runtime, timeouts } = this.#services
    try {
      const text = await route?.provider.storedResponse?.({
        method,
        path: `/${encodeURIComponent(this.#completion.id)}${action}`,
        signal: cancellation.signal,
        runtime,
        timeouts: { ...timeouts, total: Math.min(timeouts.total, POLL_TIMEOUT_MS) },
      })
      const body: unknown = text === undefined ? undefined : JSON.parse(text)
      if (!isJsonObject(body)) return false
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

  /** Bills an incomplete response for the usage that the upstream last reported. */
  async #settle(): Promise<void> {
    const [answered, services] = [this.#answered, this.#services]
    const completion = this.#completion
    const answer = { usage: completion.usage, completion: () => completion }
    try {
      const isComplete = valueOf(completion)['status'] === 'completed'
      const bill = isComplete
        ? billFor(answered, answer, services.meter)
        : billForIncomplete(answered, answer, services.meter)
      await settle(
        answered,
        isComplete ? { status: 200, bill, completion: () => completion } : { status: 200, bill },
        services,
      )
    } catch (cause) {
      services.observers.reportFailure('a background response could not be settled', asFailure(cause))
    }
  }
}

/** Replaces the status `failed` with `incomplete`, because the reader ignores the usage of failed responses. */
function withReadableUsage(body: JsonObject): JsonObject {
  const { error: _error, ...others } = body
  return body['status'] === 'failed' ? { ...others, status: 'incomplete' } : body
}
