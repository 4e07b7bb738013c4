import { hasFlag } from '../core/http.ts'
import type { ClientFormat } from '../formats/format.ts'
import { Exchange } from '../pipeline/exchange.ts'
import type { Call } from './endpoint.ts'

/** The exchange of a call, as the pipeline begins with it. */
export function exchangeOf({ id, startedAt, request, sink }: Call, format: ClientFormat): Exchange {
  const isDetached = hasFlag(request, 'x-svc-detach')
  return new Exchange({ id, startedAt, request, sink, format }, { isConnected: true, isDetached })
}
