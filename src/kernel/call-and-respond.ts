import type { AnswerSource, Completion } from '../core/answer.ts'
import { type Cancellation, lazy, type MaybePromise, chain, isPromise } from '../core/async.ts'
import type { HeaderRecord } from '../core/http.ts'
import type { Route } from '../core/ports.ts'
import type { Prompt } from '../core/prompt.ts'
import { LONG_CONTEXT_BETA } from '../core/prompt.ts'
import { upstreamWindowOf } from '../tokens/estimate.ts'
import { type Attempts, supportsDialect, type UpstreamCall } from '../upstream/attempts.ts'
import {
  type Answer,
  type Answered,
  type Planned,
  type ResolvedModel,
  type UpstreamPlan,
  createWriteContext,
  requestsJsonByInstruction,
} from './exchange.ts'
import { headersToForward } from './measure.ts'
import type { Services } from './services.ts'
import type { Translate } from './translation.ts'
import type { WriteMetrics } from '../formats/format.ts'
import { billFor, metricsWriter, prepareBill } from './charge.ts'
import { answerHeaders, baseHeaders, isRecorded, sendJson, storeTurn, settle } from './settle.ts'

export function callUpstream(planned: Planned, services: Services): MaybePromise<Answered> {
  const { plan, prompt } = planned
  if (plan.kind === 'replay') return replay(plan.answer, planned, services)
  const { planning } = plan
  if (planning !== undefined) {
    const callLater = (): Promise<Answered> => planning.then((final) => callUpstream(final, services))
    return loadStreaming().then(async ({ openLater }) => setAnswer(planned, await openLater(plan.counts, callLater)))
  }
  const { dialect } = prompt.native
  const isTranslated = planned.resolved.routes.some((route) => !supportsDialect(route.provider, dialect))
  if (!isTranslated) return call(new RoutedCall(planned, plan), planned, services)
  return loadOnDemand()
    .then(({ createTranslation }) => createTranslation(planned, plan, services))
    .then((translate) => call(new RoutedCall(planned, plan, translate), planned, services))
}

const loadOnDemand = lazy(() => import('./on-demand.ts'))

class RoutedCall implements UpstreamCall {
  readonly headers: UpstreamCall['headers']
  readonly cancellation: Cancellation
  readonly keyId: string
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
    this.keyId = planned.key.id
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

function call(routed: RoutedCall, planned: Planned, services: Services): Promise<Answered> {
  return planned.prompt.stream ? openStream(planned, routed, services) : complete(planned, routed, services)
}

function complete(planned: Planned, routed: RoutedCall, services: Services): Promise<Answered> {
  return services.upstream
    .complete(planned.resolved.routes, routed)
    .then(({ answer, route, ignored }) =>
      setAnswer(planned, { kind: 'whole', completion: answer }, route, routed.ignoredFor(route, ignored)),
    )
}

async function openStream(planned: Planned, routed: RoutedCall, services: Services): Promise<Answered> {
  // The headers contain an estimated bill. A long prompt is counted while the request waits for the upstream.
  const counting = planned.plan.kind === 'upstream' ? planned.plan.counts.prepare?.() : undefined
  const { createStream, waitForStream } = await loadStreaming()
  const { routes } = planned.resolved
  const opening = services.upstream
    .stream(routes, routed, (candidate, received) => createStream(planned, candidate, received, services))
    .then(({ answer: stream, route, ignored }) => {
      setAnswer(planned, { kind: 'streamed', stream }, route, routed.ignoredFor(route, ignored))
      return stream
    })
  await waitForStream(opening, planned, services.runtime)
  if (counting !== undefined) await counting
  if (planned.answer !== undefined) return planned as Answered
  return setAnswer(planned, { kind: 'opening', opening }, undefined, routed.ignoredSoFar(routes[0]))
}

const loadStreaming = lazy(() => import('./stream-response.ts'))

function setAnswer(exchange: Planned, answer: Answer, route?: Route, ignored: readonly string[] = []): Answered {
  exchange.answer = answer
  exchange.route = route
  exchange.ignoredFields = ignored
  return exchange as Answered
}

function replay(stored: Completion | AnswerSource, planned: Planned, services: Services): MaybePromise<Answered> {
  if ('read' in stored) return replayStream(stored, planned, services)
  return loadOnDemand().then(({ addressToCaller }) => {
    const completion = addressToCaller(stored, planned, services.runtime)
    if (planned.prompt.stream) return replayStream(completion, planned, services)
    return setAnswer(planned, { kind: 'whole', completion })
  })
}

function replayStream(answer: Completion | AnswerSource, planned: Planned, services: Services): Promise<Answered> {
  return loadStreaming().then(({ replayAsStream }) =>
    setAnswer(planned, { kind: 'streamed', stream: replayAsStream(answer, planned, services) }),
  )
}

/** Ensures that the answer does not exceed the reserved output. */
function withOutputLimit(prompt: Prompt, { model, provider }: Route, planned: Planned): Prompt {
  const requested = planned.prompt.settings.maxTokens
  const granted = planned.reservation.outputTokens
  const grantsMaximum = granted >= model.maxOutputTokens
  const isLimitOptional = model.enforcesMaxOutput !== false && provider.dialect !== 'anthropic'
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

export function respond(answered: Answered, services: Services): MaybePromise<undefined> {
  const { answer } = answered
  if (answer.kind !== 'whole') {
    return loadStreaming().then(({ respondWithStream }) => respondWithStream(answered, answer, services))
  }
  const { completion } = answer
  const prepared = prepareBill(answered)
  return isPromise(prepared)
    ? prepared.then(() => respondWithCompleteAnswer(answered, completion, services))
    : respondWithCompleteAnswer(answered, completion, services)
}

function respondWithCompleteAnswer(
  answered: Answered,
  completion: Completion,
  services: Services,
): MaybePromise<undefined> {
  if (!requestsJsonByInstruction(answered)) return sendCompleteAnswer(answered, completion, services)
  return loadOnDemand().then(({ unwrapJson }) => sendCompleteAnswer(answered, unwrapJson(completion), services))
}

function sendCompleteAnswer(answered: Answered, completion: Completion, services: Services): MaybePromise<undefined> {
  const { format, sink, plugins } = answered
  if (format.turns?.isUnfinished(completion) === true) {
    return loadStreaming().then(({ respondInBackground }) => respondInBackground(answered, completion, services))
  }
  const bill = billFor(answered, { usage: completion.usage, completion: () => completion }, services.meter)
  const writeMetrics = metricsWriter(bill, services)
  const sent = plugins?.completion ?? completion
  const body = format.writeCompletion(sent, writeMetrics, createWriteContext(answered, services.runtime))
  const isNative = sent.native?.dialect === format.dialect
  const omitted = isNative ? [] : (format.omittedContent?.(sent) ?? [])
  if (omitted.length > 0) answered.ignoredFields = [...answered.ignoredFields, ...omitted]
  const headers = answerHeaders(bill, answered.ignoredFields, services)
  const settled = settle(answered, { status: 200, bill, completion: () => completion }, services)
  const stored = chain(settled, () =>
    keepAnswer(answered, { headers, body, id: completion.id, writeMetrics }, services),
  )
  return chain(stored, () => {
    sendJson(sink, 200, Object.assign(baseHeaders(answered.id, answered.reservation.rate), headers), body)
    return undefined
  })
}

interface CompleteAnswer {
  /** Headers that are repeated when the answer is replayed. */
  readonly headers: Readonly<HeaderRecord>
  readonly body: string
  readonly id: string
  readonly writeMetrics: WriteMetrics
}

function keepAnswer(answered: Answered, answer: CompleteAnswer, services: Services): MaybePromise<void> {
  const { format, key, idempotencyClaim } = answered
  const { headers, body, id, writeMetrics } = answer
  if (format.answerId !== undefined && isRecorded(answered, services)) {
    services.recordings.storeAnswer(
      { kind: 'whole', text: body, metrics: writeMetrics('summary') },
      key.id,
      format.answerId(id),
    )
  }
  const stored = storeTurn(answered, body, services)
  if (idempotencyClaim === undefined) return stored
  return chain(stored, () =>
    idempotencyClaim.remember({ status: 200, head: { ...headers, 'content-type': 'application/json' }, body }),
  )
}
