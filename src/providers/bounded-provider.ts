import { Cancellation, withTimeout } from '../core/async.ts'
import type { AnswerSource, Step } from '../core/answer.ts'
import type { Provider, ProviderCall } from '../core/ports.ts'
import { tooSlow } from '../upstream/upstream-failure.ts'
import { isSource, returnQuietly } from '../upstream/upstream-stream.ts'

type Call = Partial<Pick<ProviderCall, 'cancellation'>> & Pick<ProviderCall, 'signal' | 'runtime' | 'timeouts'>

/**
 * Returns the provider with calls that end when they are cancelled or their time is over. A custom provider may ignore
 * its signal and timeouts, and a call that never ends would leave its reservation unsettled. Providers that set
 * `endsCalls` are returned unchanged.
 */
export function boundedProvider(provider: Provider): Provider {
  if (provider.endsCalls === true) return provider
  const { name, dialect, secondDialect, embed, countTokens, heldResponse, passThrough, ping } = provider
  const bound =
    <call extends Call, value>(method: (call: call) => Promise<value>, discard?: (value: value) => void) =>
    (call: call): Promise<value> =>
      bounded(name, call, async () => method.call(provider, call), discard)
  return {
    name,
    dialect,
    ...(secondDialect !== undefined && { secondDialect }),
    get models() {
      return provider.models
    },
    model: (id) => provider.model(id),
    complete: bound((call) => provider.complete(call)),
    stream: bound(
      (call) => provider.stream(call),
      ({ answer }) => discardStream(answer),
    ),
    ...(embed !== undefined && { embed: bound(embed) }),
    ...(countTokens !== undefined && { countTokens: bound(countTokens) }),
    ...(heldResponse !== undefined && { heldResponse: bound(heldResponse) }),
    ...(passThrough !== undefined && { passThrough: bound(passThrough, ({ source }) => source.abort()) }),
    ...(ping !== undefined && { ping: (call) => ping.call(provider, call) }),
  }
}

/** Settles like `start()`, but rejects when the call is cancelled or its time is over. Passes a late value to `discard`. */
export function bounded<value>(
  name: string,
  call: Call,
  start: () => Promise<value>,
  discard?: (value: value) => void,
): Promise<value> {
  const cancellation = call.cancellation ?? Cancellation.of(call.signal)
  if (cancellation.isCancelled) return Promise.reject(cancellation.reason)
  const { runtime, timeouts } = call
  const limit = { ms: timeouts.total, after: runtime.after, late: () => tooSlow(name, timeouts.total), cancellation }
  return withTimeout(start(), limit, discard)
}

/** Ends a stream that arrived too late. */
function discardStream(answer: AsyncIterable<Step> | AnswerSource): void {
  try {
    if (isSource(answer)) answer.abort()
    else returnQuietly(answer[Symbol.asyncIterator]())
  } catch {
    // The request has already failed.
  }
}
