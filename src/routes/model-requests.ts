import { headersOf } from '../core/http.ts'
import { hasFlag } from '../core/steering-headers.ts'
import { anthropicFormat } from '../formats/anthropic/format.ts'
import type { Format } from '../formats/format.ts'
import { openaiFormat } from '../formats/openai/format.ts'
import { count } from '../pipeline/count.ts'
import { Exchange } from '../pipeline/exchange.ts'
import { run } from '../pipeline/run.ts'
import { runEmbedding } from '../pipeline/run-embedding.ts'
import type { Services } from '../pipeline/services.ts'
import type { Call, Handler } from './endpoint.ts'

/** POST /v1/chat/completions, /v1/messages and /v1/responses: one pipeline, three formats. */
export function completions(format: Format, services: Services): Handler {
  return (call) => {
    const exchange = exchangeOf(call, format)
    const done = run(exchange, services)
    if (exchange.isDetached && done !== undefined) {
      services.detached.add({
        end: () => exchange.cancellation.cancel(new Error('The gateway is closing.')),
        ended: done,
      })
    }
    return done
  }
}

/** POST /v1/messages/count_tokens. */
export function countTokens(services: Services): Handler {
  return (call) => count(exchangeOf(call, anthropicFormat), services)
}

/** POST /v1/embeddings. Its errors are those of the chat format. */
export function embeddings(services: Services): Handler {
  return (call) => runEmbedding(exchangeOf(call, openaiFormat), services)
}

function exchangeOf({ id, startedAt, request, sink }: Call, format: Format): Exchange {
  const isDetached = hasFlag(headersOf(request), 'X-Svc-Detach')
  return new Exchange({ id, startedAt, request, sink, format }, { isConnected: true, isDetached })
}
