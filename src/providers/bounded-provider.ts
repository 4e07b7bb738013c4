import type { AnswerSource, Step } from '../core/answer.ts'
import { Cancellation } from '../core/cancellation.ts'
import type { EmbedCall, HeldResponseCall, PassthroughCall, Provider, ProviderCall } from '../core/ports.ts'
import { tooSlow } from '../upstream/upstream-failure.ts'
import { isSource, returnQuietly } from '../upstream/upstream-stream.ts'

type Call = Partial<Pick<ProviderCall, 'cancellation'>> & Pick<ProviderCall, 'signal' | 'runtime' | 'timeouts'>

/**
 * Returns the provider with calls that end: a provider of the user's own may ignore its signal and its timeouts, and a
 * call that never ends would leave its caller waiting and its reservation unsettled. Providers that state
 * `endsCalls` are returned as they are.
 */
export function boundedProvider(provider: Provider): Provider {
  if (provider.endsCalls === true) return provider
  const { name, dialect, secondDialect, embed, countTokens, heldResponse, passThrough, ping } = provider
  return {
    name,
    dialect,
    ...(secondDialect !== undefined && { secondDialect }),
    get models() {
      return provider.models
    },
    model: (id) => provider.model(id),
    complete: (call) => bounded(name, call, async () => provider.complete(call)),
    stream: (call) =>
      bounded(
        name,
        call,
        async () => provider.stream(call),
        ({ answer }) => drop(answer),
      ),
    ...(embed !== undefined && {
      embed: (call: EmbedCall) => bounded(name, call, async () => embed.call(provider, call)),
    }),
    ...(countTokens !== undefined && {
      countTokens: (call: ProviderCall) => bounded(name, call, async () => countTokens.call(provider, call)),
    }),
    ...(heldResponse !== undefined && {
      heldResponse: (call: HeldResponseCall) => bounded(name, call, async () => heldResponse.call(provider, call)),
    }),
    ...(passThrough !== undefined && {
      passThrough: (call: PassthroughCall) =>
        bounded(
          name,
          call,
          async () => passThrough.call(provider, call),
          ({ source }) => source.abort(),
        ),
    }),
    ...(ping !== undefined && { ping: (call) => ping.call(provider, call) }),
  }
}

/** Settles like `start()`, but rejects when the call is cancelled or its time is over. A late value is given to `discard`. */
export function bounded<value>(
  name: string,
  call: Call,
  start: () => Promise<value>,
  discard: (value: value) => void = () => {},
): Promise<value> {
  const cancellation = call.cancellation ?? Cancellation.of(call.signal)
  if (cancellation.isCancelled) return Promise.reject(cancellation.reason)
  return new Promise((resolve, reject) => {
    let isOver = false
    const end = (): void => {
      isOver = true
      cancelTimer()
      unsubscribe()
    }
    const cancelTimer = call.runtime.after(call.timeouts.total, () => {
      end()
      reject(tooSlow(name, call.timeouts.total))
    })
    const unsubscribe = cancellation.onCancel(() => {
      end()
      reject(cancellation.reason)
    })
    const run = async (): Promise<void> => {
      try {
        const value = await start()
        if (isOver) return discard(value)
        end()
        resolve(value)
      } catch (error) {
        if (!isOver) end()
        reject(error)
      }
    }
    void run()
  })
}

/** Lets go of a stream that came too late. */
function drop(answer: AsyncIterable<Step> | AnswerSource): void {
  try {
    if (isSource(answer)) answer.abort()
    else returnQuietly(answer[Symbol.asyncIterator]())
  } catch {
    // A fault of the provider's, after its request has ended.
  }
}
