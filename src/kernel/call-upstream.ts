import type * as streaming from './stream-response.ts'
import type { ResponseSource, Completion } from '../core/completion.ts'
import { type Cancellation, lazy, type MaybePromise } from '../core/async.ts'
import type { Route, UpstreamCaller } from '../core/ports.ts'
import { type Prompt, LONG_CONTEXT_BETA } from '../core/prompt.ts'
import { upstreamWindowOf } from '../tokens/estimate.ts'
import { type Attempts, supportsDialect, type UpstreamCall } from '../upstream/attempts.ts'
import type { Called, Planned, ResolvedModel, UpstreamPlan } from './exchange.ts'
import type { Services } from './services.ts'
import type { Translate } from './translation.ts'
import { headersToForward } from './version-headers.ts'

export function callUpstream(planned: Planned, services: Services): MaybePromise<Called> {
  const { plan, prompt } = planned
  if (plan.kind === 'replay') return replay(plan.response, planned, services)
  const { planning } = plan
  if (planning !== undefined) {
    const callLater = (): Promise<Called> => planning.then((final) => callUpstream(final, services))
    return loadStreaming().then(async ({ openLater }) => ({
      response: await openLater(plan.counts, callLater),
      ...NOT_CALLED,
    }))
  }
  const { dialect } = prompt.native
  const isTranslated = planned.resolved.routes.some((route) => !supportsDialect(route.provider, dialect))
  if (!isTranslated) return call(new RoutedCall(planned, plan), planned, services)
  return import('./translation.ts')
    .then(({ createTranslation }) => createTranslation(planned, plan, services))
    .then((translate) => call(new RoutedCall(planned, plan, translate), planned, services))
}

/** For a response without a provider, or before one is known. */
const NOT_CALLED: Omit<Called, 'response'> = { route: undefined, ignoredFields: [] }

class RoutedCall implements UpstreamCall {
  readonly headers: UpstreamCall['headers']
  readonly cancellation: Cancellation
  readonly scope: string
  readonly caller: UpstreamCaller
  readonly startedAt: number
  readonly attempts: Attempts
  readonly #planned: Planned
  readonly #prompt: Prompt
  readonly #translate: Translate | undefined
  #ignoredByCall: readonly string[] | undefined
  #dropped: Map<Route['model'], readonly string[]> | undefined

  constructor(planned: Planned, plan: UpstreamPlan, translate?: Translate) {
    const headers = headersToForward(planned.request)
    this.headers = headers['anthropic-beta'] === undefined ? headers : withoutLongContext(headers, planned.resolved)
    this.cancellation = planned.cancellation
    this.scope = planned.caller.scope
    this.caller = planned.caller.upstream
    this.startedAt = planned.startedAt
    this.attempts = planned.plugins?.observeAttempts(plan.attempts) ?? plan.attempts
    this.#planned = planned
    this.#prompt = plan.prompt
    this.#translate = translate
  }

  promptFor(route: Route): Prompt {
    const planned = this.#planned
    if (this.#translate === undefined || supportsDialect(route.provider, planned.prompt.native.dialect)) {
      return withOutputLimit(this.#prompt, route, planned)
    }
    const { prompt, ignored } = this.#translate(this.#prompt, route)
    this.#dropped = (this.#dropped ?? new Map()).set(route.model, ignored)
    return withOutputLimit(prompt, route, planned)
  }

  onIgnored(route: Route, names: readonly string[]): void {
    this.#ignoredByCall = this.ignoredFor(route, names)
  }

  /** The fields that the current call drops, for headers that leave before the provider answers. */
  ignoredSoFar(route: Route): readonly string[] {
    return this.#ignoredByCall ?? this.ignoredFor(route, [])
  }

  ignoredFor({ model }: Route, ignoredByProvider: readonly string[]): readonly string[] {
    const dropped = this.#dropped?.get(model)
    return dropped === undefined ? ignoredByProvider : [...dropped, ...ignoredByProvider]
  }
}

function call(routed: RoutedCall, planned: Planned, services: Services): Promise<Called> {
  return planned.prompt.stream ? openStream(planned, routed, services) : complete(planned, routed, services)
}

function complete(planned: Planned, routed: RoutedCall, services: Services): Promise<Called> {
  return services.upstream.complete(planned.resolved.routes, routed).then(({ response, route, ignored }) => ({
    response: { kind: 'whole', completion: response },
    route,
    ignoredFields: routed.ignoredFor(route, ignored),
  }))
}

async function openStream(planned: Planned, routed: RoutedCall, services: Services): Promise<Called> {
  // The headers contain an estimated bill. A long prompt is counted while the request waits for the upstream.
  const counting = planned.plan.kind === 'upstream' ? planned.plan.counts.prepareCounts?.() : undefined
  const { createStream, waitForStream } = await loadStreaming()
  const { routes } = planned.resolved
  let opened: Called | undefined
  const opening = services.upstream
    .stream(routes, routed, (candidate, received) => createStream(planned, candidate, received, services))
    .then(({ response: stream, route, ignored }) => {
      const ignoredFields = routed.ignoredFor(route, ignored)
      opened = { response: { kind: 'streamed', stream }, route, ignoredFields }
      return { stream, route, ignoredFields }
    })
  await waitForStream(opening, planned, services.runtime)
  if (counting !== undefined) await counting
  const ignoredFields = routed.ignoredSoFar(routes[0])
  return opened ?? { response: { kind: 'opening', opening }, route: undefined, ignoredFields }
}

export const loadStreaming: () => Promise<typeof streaming> = lazy(() => import('./stream-response.ts'))

function replay(stored: Completion | ResponseSource, planned: Planned, services: Services): MaybePromise<Called> {
  if ('read' in stored) return replayStream(stored, planned, services)
  return import('./adapt-response.ts').then(({ addressToCaller }) => {
    const completion = addressToCaller(stored, planned, services.runtime)
    if (planned.prompt.stream) return replayStream(completion, planned, services)
    return { response: { kind: 'whole', completion }, ...NOT_CALLED }
  })
}

function replayStream(response: Completion | ResponseSource, planned: Planned, services: Services): Promise<Called> {
  return loadStreaming().then(({ replayAsStream }) => ({
    response: { kind: 'streamed', stream: replayAsStream(response, planned, services) },
    ...NOT_CALLED,
  }))
}

/** Ensures that the response does not exceed the reserved output. */
function withOutputLimit(prompt: Prompt, { model, provider }: Route, planned: Planned): Prompt {
  const requested = planned.prompt.settings.maxTokens
  const granted = planned.grant.outputTokens
  const grantsMaximum = granted >= model.maxOutputTokens
  const isLimitOptional = model.enforcesMaxOutput !== false && provider.dialect !== 'messages'
  if (requested === undefined ? grantsMaximum && isLimitOptional : requested <= granted) return prompt
  return { ...prompt, settings: { ...prompt.settings, maxTokens: Math.min(granted, model.maxOutputTokens) } }
}

const LONG_CONTEXT_TOKENS = 1_000_000

/**
 * Removes the beta flag for the one-million-token window if a model's entry has a smaller window. Otherwise, tokens
 * above the window of the entry would not be billed.
 */
function withoutLongContext(headers: Readonly<Record<string, string>>, { routes }: ResolvedModel): typeof headers {
  if (routes.every(({ model }) => upstreamWindowOf(model) >= LONG_CONTEXT_TOKENS)) return headers
  const { 'anthropic-beta': betas = '', ...others } = headers
  const allowed = betas.split(',').filter((beta) => !LONG_CONTEXT_BETA.test(beta))
  return allowed.length === 0 ? others : { ...others, 'anthropic-beta': allowed.join(',') }
}
