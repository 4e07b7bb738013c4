import { isPromise, type MaybePromise } from '../core/async.ts'
import { failureStatus } from '../core/errors.ts'
import { hasFlag, type HeaderRecord, type HttpRequest, type ResponseSink } from '../core/http.ts'
import { respond } from './respond.ts'
import { type Authenticated, Exchange, type Parsed } from './exchange.ts'
import { parseRequest } from './parse-request.ts'
import { plan } from './plan.ts'
import type * as hooks from '../plugins/custom/plugin-hooks.ts'
import type { Services, RequestTracker } from './services.ts'
import { asFailure, canceledError, release } from './settle.ts'
import type { JsonObject } from '../core/json.ts'
import type { ClientFormat } from '../formats/format.ts'
import type { VirtualKey } from '../governance/virtual-key.ts'
import type { PathVariables } from '../http/router.ts'
import { yieldToEventLoop } from '../tokens/event-loop.ts'
import { authenticate } from './authenticate.ts'
import { reserve } from './reserve.ts'
import { callUpstream } from './call-upstream.ts'
import { baseHeaders, sendJson } from './response-headers.ts'

type Hooks = typeof hooks

/** @param authenticateStage Batch items use the key of their batch. */
export function modelStages(
  { plugins }: Pick<Services, 'plugins'>,
  authenticateStage: Stage<Exchange, Authenticated> = authenticate,
): Stages<Exchange> {
  // The hooks are loaded with the first request of a gateway with plugins.
  const hook = <Current extends Exchange>(
    select: (loaded: Hooks) => Stage<Current, Current>,
  ): Stage<Current, Current> | undefined =>
    plugins &&
    ((exchange, services) =>
      import('../plugins/custom/plugin-hooks.ts').then((loaded) => select(loaded)(exchange, services)))
  return Stages.begin(authenticateStage) // finds the key
    .next(parseRequest) //                  reads prompt and model, checks permissions
    .nextIf(hook((loaded) => loaded.onRequest))
    .next(explain) //                       X-Svc-Explain: returns the plan without running it
    .next(deduplicate) //                   Idempotency-Key: replays the first answer
    .nextIf(hook((loaded) => loaded.transformPrompt))
    .next(reserve) //                       reserves rate limits and the worst-case cost
    .nextIf(hook((loaded) => loaded.onLookup))
    .next(plan) //                          finds a cached answer, or optimizes the prompt
    .next(callUpstream) //                  calls a provider, with retries and fallbacks
    .nextIf(hook((loaded) => loaded.transformResponse))
    .next(respond) //                       answers in the caller's format; settles once
}

/** Returns undefined if the stage has answered the request. */
type Stage<Before, After> = (exchange: Before, services: Services) => MaybePromise<After | undefined>

/** The types of `next` ensure that each stage accepts the result of the previous one. */
interface ErasedStage {
  run(exchange: Exchange, services: Services): MaybePromise<Exchange | undefined>
}

/** The stages run synchronously until one of them returns a promise. */
export class Stages<Last extends Exchange> {
  readonly #stages: readonly ErasedStage[]

  private constructor(stages: readonly ErasedStage[]) {
    this.#stages = stages
  }

  static begin<After extends Exchange>(stage: Stage<Exchange, After>): Stages<After> {
    return new Stages([{ run: stage }])
  }

  next<After extends Exchange>(stage: Stage<Last, After>): Stages<After> {
    const added: { run(exchange: Last, services: Services): MaybePromise<After | undefined> } = { run: stage }
    return new Stages<After>([...this.#stages, added])
  }

  nextIf(stage: Stage<Last, Last> | undefined): Stages<Last> {
    return stage === undefined ? this : this.next(stage)
  }

  run(exchange: Exchange, services: Services): MaybePromise<void> {
    try {
      for (let index = 0; index < this.#stages.length; index++) {
        const result = this.#stages[index]?.run(exchange, services)
        if (isPromise(result)) return this.#runAfter(result, index + 1, exchange, services)
        if (result === undefined) return undefined
      }
    } catch (error) {
      return fail(exchange, error, services)
    }
  }

  /** One async function for all remaining stages creates fewer promises than a chain. */
  async #runAfter(
    waiting: Promise<Exchange | undefined>,
    next: number,
    exchange: Exchange,
    services: Services,
  ): Promise<void> {
    try {
      let current = await waiting
      for (let index = next; current !== undefined && index < this.#stages.length; index++) {
        if (exchange.needsPauses) await yieldToEventLoop()
        const result = this.#stages[index]?.run(exchange, services)
        current = isPromise(result) ? await result : result
      }
    } catch (error) {
      await fail(exchange, error, services)
    }
  }
}

async function fail(exchange: Exchange, error: unknown, services: Services): Promise<void> {
  const failure = exchange.cancellation.isCanceled ? canceledError(error) : asFailure(error)
  // Before the import, because the gateway could close while the module is loaded.
  await release(exchange, { status: failureStatus(failure), failure }, services)
  await (await import('./send-failure.ts')).sendFailure(exchange, failure, services)
}

function explain(parsed: Parsed, services: Services): MaybePromise<Parsed | undefined> {
  if (!hasFlag(parsed.request, 'x-svc-explain')) return parsed
  return import('../plugins/explain/explain.ts')
    .then((loaded) => loaded.explain(parsed, services))
    .finally(() => parsed.capacity?.release())
}

export function deduplicate(parsed: Parsed, services: Services): MaybePromise<Parsed | undefined> {
  if (parsed.request.header('idempotency-key') === undefined) return parsed
  return import('../plugins/idempotency/deduplicate.ts').then((loaded) => loaded.deduplicate(parsed, services))
}

export interface Call {
  readonly id: string
  readonly startedAt: number
  readonly request: HttpRequest
  readonly sink: ResponseSink
  readonly query: URLSearchParams
  readonly variables: PathVariables
}

/** Parses the query string on each read of `query`, because most endpoints do not use it. */
export class IncomingCall implements Call {
  readonly id: string
  readonly startedAt: number
  readonly request: HttpRequest
  readonly sink: ResponseSink
  readonly variables: PathVariables

  constructor(start: Pick<Call, 'id' | 'startedAt' | 'request' | 'sink'>, variables: PathVariables) {
    this.id = start.id
    this.startedAt = start.startedAt
    this.request = start.request
    this.sink = start.sink
    this.variables = variables
  }

  get query(): URLSearchParams {
    return new URLSearchParams(this.request.query)
  }
}

/** Responds to a call, or throws before the response begins. */
export type Handler = (call: Call) => MaybePromise<void>

export function modelHandler(format: ClientFormat, services: Services): Handler {
  const stages = modelStages(services)
  return (call) => {
    const exchange = createExchange(call, format)
    const completion = stages.run(exchange, services)
    if (exchange.isDetached && completion !== undefined) {
      services.detached.add({
        end: () => exchange.cancellation.cancel(new Error('The gateway is closing.')),
        ended: completion,
      })
    }
    return completion
  }
}

export function createExchange({ id, startedAt, request, sink }: Call, format: ClientFormat): Exchange {
  const isDetached = hasFlag(request, 'x-svc-detach')
  return new Exchange({ id, startedAt, request, sink, format }, { isConnected: true, isDetached })
}

export function trackRequests(requestTracker: RequestTracker, handle: Handler): Handler {
  return (call) => {
    requestTracker.enter(call.id)
    const leave = (): void => requestTracker.leave(call.id)
    try {
      const completion = handle(call)
      if (!isPromise(completion)) return leave()
      void completion.then(leave, leave)
      return completion
    } catch (error) {
      leave()
      throw error
    }
  }
}

export function pathId({ variables }: Call): string {
  return variables['id'] ?? ''
}

export async function sendWithRateStatus(
  call: Call,
  key: VirtualKey,
  { ledger }: Pick<Services, 'ledger'>,
  body: JsonObject,
): Promise<void> {
  const headers = { ...noStoreHeaders(call), ...baseHeaders(call.id, await ledger.status(key)) }
  sendJson(call.sink, 200, headers, JSON.stringify(body))
}

/** Proxies do not know that `x-api-key` identifies the caller, and could send a cached response to another caller. */
export function noStoreHeaders({ id }: Pick<Call, 'id'>): HeaderRecord {
  return { 'x-request-id': id, 'request-id': id, 'cache-control': 'no-store' }
}
