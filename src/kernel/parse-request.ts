import { checkMargin, MAX_MARGIN } from '../billing/bill.ts'
import { chain, isPromise, lazy, type MaybePromise } from '../core/async.ts'
import { GatewayError } from '../core/errors.ts'
import { checkSteeringNames, type HttpRequest, LARGE_BODY_BYTES, readFlag } from '../core/http.ts'
import type { JsonObject } from '../core/json.ts'
import type { Route } from '../core/ports.ts'
import type { Prompt, Settings } from '../core/prompt.ts'
import { parseBodyInSteps, type ParsedBody } from '../formats/parse-body.ts'
import { checkPromptLength, fieldCostsOf, isBackground } from '../formats/prompt-checks.ts'
import type { ParseLimits } from '../formats/scan-json.ts'
import type { RequestedAccess } from '../governance/access.ts'
import type { Caller } from '../governance/caller.ts'
import { isRestricted } from '../governance/virtual-key.ts'
import { checkJsonHeaders, expectedBytes } from '../http/body.ts'
import { readCacheDirectives } from '../http/cache-directives.ts'
import { utf8Length } from '../tokens/estimate.ts'
import { yieldToEventLoop } from '../tokens/event-loop.ts'
import { answeringRoutes, routeName, routesForOperation } from './resolve-model.ts'
import { type Authenticated, type Exchange, type Parsed, type ResolvedModel } from './exchange.ts'
import { PromptSize } from './measure.ts'
import type { Services } from './services.ts'
import { rejectsSampling } from './version-headers.ts'
import { waitForStore } from './wait-for-store.ts'
import type { CompletedBody } from './hooks.ts'

const loadAccess = lazy(() => import('../governance/access.ts'))

/** What parsing adds to an exchange. */
export type ParsedParts = Pick<Parsed, 'requestBody' | 'prompt' | 'resolved' | 'size' | 'margin'>

export function parseRequest(authenticated: Authenticated, services: Services): MaybePromise<ParsedParts> {
  checkHeaders(authenticated, { canExplain: true }, services)
  return readJson(authenticated, services, (parsed) => parsePrompt(authenticated, parsed, services))
}

export function parsePrompt(
  exchange: Authenticated,
  parsed: Pick<ParsedBody, 'body' | 'maxSerializedBytes'> & Partial<ParsedBody>,
  services: Services,
): MaybePromise<ParsedParts> {
  const { format, caller } = exchange
  const { turns } = format
  const completing = (turns && services.hooks.completeBody?.(turns, caller, parsed)) ?? parsed
  return chain(waitForStore<CompletedBody>(exchange, completing, services), (completed) => {
    if (exchange.needsPauses) return readWithPauses(exchange, { parsed, completed }, services)
    const receivedPrompt = format.readPrompt(completed.body, completed.received)
    return resolveAndCheck(exchange, { parsed, completed, receivedPrompt }, services)
  })
}

async function readWithPauses(
  exchange: Authenticated,
  bodies: Omit<CompletedPrompt, 'receivedPrompt'>,
  services: Services,
): Promise<ParsedParts> {
  const { body, received } = bodies.completed
  await yieldToEventLoop()
  const receivedPrompt = exchange.format.readPrompt(body, received)
  await yieldToEventLoop()
  return resolveAndCheck(exchange, { ...bodies, receivedPrompt }, services)
}

interface CompletedPrompt {
  readonly parsed: Pick<ParsedBody, 'body' | 'maxSerializedBytes'>
  /** The body with stored turns. */
  readonly completed: CompletedBody
  readonly receivedPrompt: Prompt
}

function resolveAndCheck(
  exchange: Authenticated,
  prompts: CompletedPrompt,
  services: Services,
): MaybePromise<ParsedParts> {
  const { key } = exchange
  checkPromptLength(prompts.receivedPrompt, services.limits.promptBytes)
  const requested = services.resolve(prompts.receivedPrompt.model, key)
  if (!isRestricted(key)) return chooseRoutes(exchange, prompts, requested, services)
  const access = accessTo(requested, prompts.receivedPrompt)
  return loadAccess().then(({ checkAccess }) => {
    checkAccess(key, access)
    return chooseRoutes(exchange, prompts, requested, services)
  })
}

function accessTo({ name, routes }: ResolvedModel, prompt: Prompt): RequestedAccess {
  return {
    modelName: name,
    routeNames: routes.map(routeName),
    fields: prompt.native.value,
    maxTokens: prompt.settings.maxTokens,
    prompt,
  }
}

function chooseRoutes(
  exchange: Authenticated,
  { parsed, completed, receivedPrompt }: CompletedPrompt,
  requested: ResolvedModel,
  services: Services,
): MaybePromise<ParsedParts> {
  const { key, caller } = exchange
  const smaller = caller.degradation?.modelFor(requested.routes[0], key, parsed.maxSerializedBytes)
  const candidates = smaller === undefined ? requested : { name: routeName(smaller), routes: [smaller] as const }
  const answering = routesForOperation(answeringRoutes(candidates), receivedPrompt)
  const resolved = completed.restrictRoutes?.(answering) ?? answering
  checkTemperature(receivedPrompt, resolved, services.limits.maxTemperature)
  checkThread(receivedPrompt, resolved)
  const prompt = withDefaults(receivedPrompt, resolved.routes[0], exchange.request)
  const bytes = completed.body === parsed.body ? parsed.maxSerializedBytes : utf8Length(JSON.stringify(completed.body))
  return chain(fieldCostsOf(prompt), (costs) => {
    const size = new PromptSize({ prompt, bytes, costs }, exchange, services)
    // The vendor continues background work after the caller has disconnected.
    if (isBackground(prompt)) exchange.detach()
    const margin = marginOf(services, exchange.caller, resolved.name, resolved.routes[0])
    // Set before the result of the stage, for the record of a request that the checks refuse.
    exchange.resolved = resolved
    const parts = { requestBody: parsed.body, prompt, resolved, size, margin }
    return size.checkFields(resolved)?.then(() => parts) ?? parts
  })
}

export function readJson<Result>(
  exchange: Authenticated,
  services: Services,
  proceed: (parsed: ParsedBody) => MaybePromise<Result>,
  limits: ParseLimits = services.bodyLimits.json,
): MaybePromise<Result> {
  checkJsonHeaders(exchange.request, services.bodyLimits.maxBytes)
  return chain(readBytes(exchange, services), (bytes) => {
    const stepOptions = { pause: yieldToEventLoop, uuid: services.runtime.uuid }
    const parsing = parseBodyInSteps(bytes, limits, stepOptions)
    exchange.needsPauses = isPromise(parsing)
    return chain(parsing, proceed)
  })
}

/** A large body occupies part of its key's capacity until the request ends. */
export function readBytes(
  exchange: Authenticated,
  { bodyLimits, bodyCapacity }: Pick<Services, 'bodyLimits' | 'bodyCapacity'>,
): MaybePromise<Uint8Array> {
  const { request, caller, cancellation } = exchange
  const expectedSize = expectedBytes(request, bodyLimits.maxBytes)
  if (expectedSize > 0 && expectedSize <= LARGE_BODY_BYTES) return request.body(bodyLimits)
  return chain(bodyCapacity.acquire(caller.scope, expectedSize, cancellation), (capacity) => {
    exchange.capacity = capacity
    return chain(request.body(bodyLimits), (bytes) => {
      capacity.resize(bytes.byteLength)
      return bytes
    })
  })
}

/** @param route Absent if a passthrough request names no listed model. */
export function marginOf(
  services: Pick<Services, 'margin'>,
  caller: Caller,
  modelName: string,
  route: Route | undefined,
): number {
  const margin = caller.margin ?? services.margin(caller.key, modelName, route)
  if (Number.isFinite(margin) && margin >= 0 && margin <= MAX_MARGIN) return margin
  throw new GatewayError('internal', 'The margin is out of range. Contact the operator of the gateway.', {
    cause: new Error(`margin: ${checkMargin(margin, 'margin')?.text}`),
  })
}

/** Upstreams with the messages format allow at most 1. */
function checkTemperature({ settings, native }: Prompt, { routes }: ResolvedModel, maxTemperature: number): void {
  const { temperature } = settings
  if (temperature === undefined || native.dialect === 'messages') return
  const isMessagesFormat = routes[0].provider.dialect === 'messages'
  const limit = isMessagesFormat ? Math.min(1, maxTemperature) : maxTemperature
  if (temperature <= limit) return
  const advice =
    isMessagesFormat && limit === 1
      ? 'The maximum for this model is 1.'
      : 'The operator can raise the maximum with limits.maxTemperature.'
  throw new GatewayError(
    'invalid-request',
    `temperature is ${temperature}; expected a number from 0 to ${limit}. ${advice}`,
    { param: 'temperature' },
  )
}

/** The official Anthropic client reacts to this error code by sending the full conversation. */
function checkThread({ native }: Prompt, { routes }: ResolvedModel): void {
  if (native.value['thread'] === undefined) return
  if (routes.every(({ provider }) => provider.dialect === native.dialect)) return
  const details: JsonObject = { error_code: 'thread_unsupported_request' }
  throw new GatewayError(
    'invalid-request',
    'The model of this request does not support threads stored on the server. Send the full conversation.',
    { param: 'thread', details },
  )
}

function withDefaults(prompt: Prompt, { model, provider }: Route, request: Pick<HttpRequest, 'header'>): Prompt {
  const { settings } = prompt
  if (model.defaults === undefined && model.rejectsTemperatureWithTopP !== true) return prompt
  const merged: Settings = rejectsSampling(provider, request) ? settings : { ...model.defaults, ...settings }
  const { temperature, topP, ...others } = merged
  if (model.rejectsTemperatureWithTopP !== true || temperature === undefined || topP === undefined) {
    return { ...prompt, settings: merged }
  }
  const isTopPRequested = settings.temperature === undefined && settings.topP !== undefined
  return { ...prompt, settings: isTopPRequested ? { ...others, topP } : { ...others, temperature } }
}

/** Throws for an invalid or unknown header that steers the gateway or a plugin. */
export function checkHeaders(
  exchange: Pick<Exchange, 'request' | 'isSteered'>,
  endpoint: { readonly canExplain: boolean },
  { hooks }: Pick<Services, 'hooks'>,
): void {
  const { request } = exchange
  if (!exchange.isSteered) return
  checkSteeringNames(request.headerNames())
  readFlag(request, 'X-Svc-Detach')
  readCacheDirectives((name) => request.header(name))
  for (const check of hooks.checkHeaders) check(request, endpoint)
}
