/** Loaded with the first request in the responses format. */
import type { MaybePromise } from '../../core/async.ts'
import type { Completion } from '../../core/completion.ts'
import type { Store } from '../../core/store.ts'
import type { Endpoint } from '../../http/router.ts'
import type { Handler } from '../../kernel/call.ts'
import { type Responded } from '../../kernel/exchange.ts'
import type { Services } from '../../kernel/services.ts'
import { respondInBackground, settleInBackground } from './background.ts'
import { responseEndpoints } from './routes.ts'
import { storingProvider } from './storing-provider.ts'
import { createTurns, type Turns } from './turns.ts'
import { createWriteContext } from '../../kernel/write-context.ts'
import type { StreamObserver } from '../../kernel/hooks.ts'
import { isBackground } from '../../formats/prompt-checks.ts'

export interface StoredResponses {
  readonly turns: Turns
  endpoints(services: Services): readonly Endpoint<Handler>[]
  respondInBackground(responded: Responded, completion: Completion, services: Services): Promise<void>
  /** Never throws or rejects, because the response is sent anyway. */
  store(responded: Responded, serialized: string | undefined, services: Services): MaybePromise<void>
  follow(responded: Responded, services: Services): StreamObserver | undefined
}

export function createStoredResponses(store: Store): StoredResponses {
  const turns = createTurns(store)
  return {
    turns,
    endpoints: (services) => responseEndpoints(turns, services),
    respondInBackground: (responded, completion, services) =>
      respondInBackground(responded, completion, turns, services),
    store: (responded, serialized, services) => storeTurn(turns, responded, serialized, services),
    follow: (responded, services) => followStream(turns, responded, services),
  }
}

function storeTurn(
  turns: Turns,
  responded: Responded,
  serialized: string | undefined,
  { runtime, log }: Services,
): MaybePromise<void> {
  const { turns: format } = responded.format
  if (format === undefined || serialized === undefined) return undefined
  const logFailure = (cause: unknown): void =>
    log.failure('a response could not be stored for later requests', cause, { request_id: responded.id })
  try {
    const turn = format.turnToStore(createWriteContext(responded, runtime), serialized)
    return turn && turns.store(responded, format, turn).catch(logFailure)
  } catch (cause) {
    logFailure(cause)
  }
}

function followStream(turns: Turns, responded: Responded, services: Services): StreamObserver | undefined {
  const { format, caller, prompt } = responded
  if (format.turns === undefined) return undefined
  /** Undefined unless the vendor continues to generate the response after its stream fails. */
  const backgroundProvider = (): string | undefined => (isBackground(prompt) ? storingProvider(responded) : undefined)
  let isRegistered = false
  return {
    // Lets clients retrieve a background response before its stream ends.
    onChunk: (id) => {
      const provider = isRegistered ? undefined : backgroundProvider()
      if (provider === undefined) return
      isRegistered = true
      const report = (cause: unknown): void =>
        services.log.failure('a background response could not be registered under its id', cause)
      turns.storeProvider(caller.scope, [id], provider).catch(report)
    },
    takeOver: (id, streamedBill) => {
      if (backgroundProvider() === undefined) return false
      void settleInBackground(responded, { id, streamedBill: streamedBill() }, turns, services)
      return true
    },
    onComplete: (lastData) => void storeTurn(turns, responded, lastData, services),
  }
}
