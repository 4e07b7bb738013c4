import { GatewayError } from '../core/errors.ts'
import type { JsonObject } from '../core/json.ts'
import type { Model } from '../core/model.ts'
import type { Prompt, Settings } from '../core/prompt.ts'
import { parseBodyInTurns, type ParsedBody } from '../formats/parse-body.ts'
import { checkPromptLength } from '../formats/prompt-size.ts'
import type { ParseLimits } from '../formats/scan-json.ts'
import { utf8Length } from '../tokens/bound.ts'
import { checkAccess } from '../governance/access.ts'
import type { VirtualKey } from '../governance/virtual-key.ts'
import { checkSteeringNames, headersOf, type HttpRequest, maySteer, readFlag } from '../core/http.ts'
import { chain, type MaybePromise } from '../core/async.ts'
import { checkJsonHeaders, expectedBytes } from '../http/body.ts'
import { yieldToEventLoop } from '../tokens/yield.ts'
import { answeringRoutes, operatingRoutes } from './resolve.ts'
import { checkVendorWork, PromptSize } from './measure.ts'
import { LARGE_BODY } from './body-capacity.ts'
import type { Authenticated, Parsed, Resolved, Route } from './exchange.ts'
import type { Limits, RecalledBody, RequestBodyLimits, Services } from './services.ts'
import { waitForStore } from './reserve.ts'
import { readCacheDirectives } from '../cache/cache-options.ts'
import { readSteeringHeaders, type Steering } from '../savings/tier.ts'

/** Reads what the request asks for, of which model, and how large it is: 400, 403, 404 or 413. */
export function parseRequest(authenticated: Authenticated, services: Services): MaybePromise<Parsed> {
  authenticated.steering = readSteering(authenticated.request, { canExplain: true })
  return chain(readJson(authenticated, services), (given) => parsePrompt(authenticated, given, services))
}

/** Reads a prompt from a parsed body. */
export function parsePrompt(
  exchange: Authenticated,
  given: Pick<ParsedBody, 'body' | 'bytes'> & Partial<ParsedBody>,
  services: Services,
): MaybePromise<Parsed> {
  const { format, key } = exchange
  const recalled = services.turns.recall(format, key, given.body)
  return chain(waitForStore(exchange, recalled, services), ({ body: whole, narrow }) => {
    const { body, received } = given
    const isWhole = whole === body
    const read = isWhole ? format.readPrompt(body, received) : format.readPrompt(whole)
    const bytes = isWhole ? given.bytes : utf8Length(JSON.stringify(whole))
    return understand(exchange, { asked: body, read, bytes, narrow }, services)
  })
}

interface ReadBody {
  readonly asked: JsonObject
  readonly read: Prompt
  /** Size of the body in bytes, with the earlier turns that it refers to. */
  readonly bytes: number
  readonly narrow: RecalledBody['narrow']
}

function understand(exchange: Authenticated, given: ReadBody, services: Services): Parsed {
  const { key } = exchange
  const { asked, read, bytes, narrow } = given
  checkPromptLength(read, services.limits.promptBytes)
  const named = services.resolve(read.model, key)
  checkAccess(key, { prompt: read, modelName: named.name, otherNames: named.routes.map(routeName) })
  const answering = operatingRoutes(answeringRoutes(named), read)
  const resolved = narrow?.(answering) ?? answering
  checkTemperature(read, resolved, services.limits.maxTemperature)
  checkThread(read, resolved)
  const prompt = withDefaults(read, resolved.routes[0].model)
  checkVendorWork(prompt, services)
  // The vendor continues it without a reader.
  if (isInBackground(prompt)) exchange.detach()
  exchange.asked = asked
  exchange.prompt = prompt
  exchange.resolved = resolved
  exchange.size = new PromptSize(prompt, bytes, { exchange, services })
  exchange.margin = marginOf(services, key, resolved.name)
  return exchange as Parsed
}

/** True for a request of the responses format that its vendor answers in the background. */
export function isInBackground({ native, stream }: Prompt): boolean {
  return stream && native.dialect === 'responses' && native.value['background'] === true
}

/** The JSON body of a request, within the limits of the gateway. */
export function readJson(
  exchange: Authenticated,
  services: Services,
  limits: ParseLimits = services.bodyLimits.json,
): MaybePromise<ParsedBody> {
  checkJsonHeaders(exchange.request, services.bodyLimits.maxBytes)
  const turns = { pause: yieldToEventLoop, uuid: services.runtime.uuid }
  return chain(readBytes(exchange, services), (bytes) => parseBodyInTurns(bytes, limits, turns))
}

/** Returns the body of a request. A large one takes capacity of its key until the request ends. */
export function readBytes(
  exchange: Authenticated,
  { bodyLimits, bodyCapacity }: Pick<Services, 'bodyLimits' | 'bodyCapacity'>,
): MaybePromise<Uint8Array> {
  const { request, key, cancellation } = exchange
  const expected = expectedBytes(request, bodyLimits.maxBytes)
  if (expected > 0 && expected <= LARGE_BODY) return request.body(bodyLimits)
  return chain(bodyCapacity.take(key.id, expected, cancellation), (capacity) => {
    exchange.capacity = capacity
    return chain(request.body(bodyLimits), (bytes) => {
      capacity.resize(bytes.byteLength)
      return bytes
    })
  })
}

/** The limits of a request's body, and those of its JSON. */
export function bodyLimitsOf({ limits, runtime }: Pick<Services, 'limits' | 'runtime'>): RequestBodyLimits {
  const { bodyBytes: maxBytes, bodyReadMs: readMs, promptBytes: textBytes } = limits
  return { maxBytes, readMs, after: runtime.after, json: { ...parseLimits(limits), textBytes } }
}

/** The limits of every JSON body. */
export function parseLimits(limits: Limits): ParseLimits {
  const { jsonDepth: depth, jsonKeys: keys, jsonNumbers: numbers, jsonSyntaxBytes: syntaxBytes } = limits
  return { depth, keys, numbers, syntaxBytes }
}

/** An operator's function may answer anything; a bill that is no number would pass every budget. */
export function marginOf(services: Pick<Services, 'margin'>, key: VirtualKey, modelName: string): number {
  const margin = services.margin(key, modelName)
  if (Number.isFinite(margin) && margin >= 0) return margin
  throw new GatewayError('internal', 'The margin of this gateway is not a number of 0 or more. Tell its operator.')
}

/** The whole name of a route. */
export function routeName({ provider, model }: Route): string {
  return `${provider.name}/${model.id}`
}

/** The message format has a range of its own, which is also that of its models when they are asked in another format. */
function checkTemperature({ settings, native }: Prompt, { routes }: Resolved, maximum: number): void {
  const { temperature } = settings
  if (temperature === undefined || native.dialect === 'anthropic') return
  const isNarrow = routes[0].provider.dialect === 'anthropic'
  const greatest = isNarrow ? Math.min(1, maximum) : maximum
  if (temperature <= greatest) return
  const advice = isNarrow ? 'This model knows no higher one.' : 'The operator can raise it by limits.maxTemperature.'
  throw new GatewayError(
    'invalid-request',
    `temperature is ${temperature}; expected a number from 0 to ${greatest}. ${advice}`,
    { param: 'temperature' },
  )
}

/** Threads are held by an upstream of the message format; elsewhere the error code makes the official client fall back. */
function checkThread(prompt: Prompt, resolved: Resolved): void {
  if (prompt.native.value['thread'] === undefined) return
  if (resolved.routes.every((route) => route.provider.dialect === prompt.native.dialect)) return
  const details: JsonObject = { error_code: 'thread_unsupported_request' }
  throw new GatewayError(
    'invalid-request',
    'The model of this request does not support server-held threads. Send the whole conversation.',
    {
      param: 'thread',
      details,
    },
  )
}

/**
 * The defaults of a catalog entry, where the caller set nothing. A model that refuses temperature together with
 * top_p is sent temperature alone, unless the caller chose top_p alone.
 */
function withDefaults(prompt: Prompt, model: Model): Prompt {
  const { settings } = prompt
  if (model.defaults === undefined && model.refusesBothSamplers !== true) return prompt
  const filled: Settings = { ...model.defaults, ...settings }
  const chosen = model.refusesBothSamplers === true ? oneSampler(filled, settings) : filled
  return { ...prompt, settings: chosen }
}

function oneSampler(filled: Settings, asked: Settings): Settings {
  if (filled.temperature === undefined || filled.topP === undefined) return filled
  const { temperature, topP, ...others } = filled
  return asked.temperature === undefined && asked.topP !== undefined ? { ...others, topP } : { ...others, temperature }
}

/**
 * Checks all headers by which a caller steers a request and returns those for the savings tiers. Throws `invalid-request`
 * before anything is reserved or spent: an ignored `X-Svc-Explain` would bill a request that was meant to be free.
 */
export function readSteering(
  request: Pick<HttpRequest, 'header' | 'headerNames'>,
  options: { readonly canExplain: boolean },
): Steering {
  if (!maySteer(request.headerNames())) return UNSTEERED
  const headers = headersOf(request)
  checkSteeringNames(headers)
  if (readFlag(headers, 'X-Svc-Explain') && !options.canExplain) throw cannotExplain()
  readFlag(headers, 'X-Svc-Detach')
  readCacheDirectives((name) => headers.get(name))
  return readSteeringHeaders(headers)
}

const UNSTEERED: Steering = { vanishing: false, recursive: false }

function cannotExplain(): GatewayError {
  return new GatewayError(
    'invalid-request',
    'X-Svc-Explain is not available for this path. Send it with a chat completion, a message or a response.',
    { param: 'X-Svc-Explain' },
  )
}
