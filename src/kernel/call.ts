import type { MaybePromise } from '../core/async.ts'
import type { HttpRequest, ResponseSink } from '../core/http.ts'
import type { CallerContext } from '../governance/caller.ts'
import type { PathVariables } from '../http/router.ts'

/**
 * Returns what the application says about the caller of a request. Called only by endpoints that need a caller. Its result
 * is checked, and the request is refused with 401 if it fails.
 */
export type FindContext = () => unknown

/** A request to an endpoint. */
export interface Call {
  readonly id: string
  readonly startedAt: number
  readonly request: HttpRequest
  readonly sink: ResponseSink
  readonly query: URLSearchParams
  readonly variables: PathVariables
  /** What the application says about the caller. */
  readonly context: CallerContext | FindContext | undefined
}

/** Parses the query string on each read of `query`, because most endpoints do not use it. */
export class IncomingCall implements Call {
  readonly id: string
  readonly startedAt: number
  readonly request: HttpRequest
  readonly sink: ResponseSink
  readonly variables: PathVariables
  readonly context: CallerContext | FindContext | undefined

  constructor(start: Pick<Call, 'id' | 'startedAt' | 'request' | 'sink' | 'context'>, variables: PathVariables) {
    this.id = start.id
    this.startedAt = start.startedAt
    this.request = start.request
    this.sink = start.sink
    this.variables = variables
    this.context = start.context
  }

  get query(): URLSearchParams {
    return new URLSearchParams(this.request.query)
  }
}

/** Responds to a call, or throws before the response begins. */
export type Handler = (call: Call) => MaybePromise<void>

export function pathId({ variables }: Call): string {
  return variables['id'] ?? ''
}
