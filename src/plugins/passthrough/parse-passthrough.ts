import { GatewayError, type FailureKind } from '../../core/errors.ts'
import type { HttpRequest } from '../../core/http.ts'
import { asCount, asString, normalizeName, type JsonObject } from '../../core/json.ts'
import { isSafeModelName, splitModelName } from '../../core/prompt.ts'
import { fromDollars, ZERO, type NanoUsd } from '../../core/money.ts'
import type { Model, PassthroughCall, Provider } from '../../core/ports.ts'
import { modelNameError, parseBodyInSteps } from '../../formats/parse-body.ts'
import { boundaryOf, readForm, replaceFormModel } from '../../formats/large-bodies.ts'
import type { Caller } from '../../governance/caller.ts'
import { checkAccess } from '../../governance/access.ts'
import { servesModel, type ProviderConfig, type VirtualKey } from '../../governance/virtual-key.ts'
import { checkJsonHeaders } from '../../http/body.ts'
import { yieldToEventLoop } from '../../tokens/event-loop.ts'
import type { Authenticated, ResolvedModel } from '../../kernel/exchange.ts'
import { readBytes, checkHeaders } from '../../kernel/parse-request.ts'
import type { Services } from '../../kernel/services.ts'
import { replaceModel } from '../../formats/replace-model.ts'

/** The request as passed to `priceUsd` and `finalPriceUsd`. */
export interface PassthroughRequest {
  /** The path, such as `/v1/images/generations`. */
  readonly path: string
  /** The name of the provider that receives the request. */
  readonly provider: string
  /** The vendor's name for the model. Undefined if the request has no model. */
  readonly model?: string
  /** The fields of the JSON body, or the text fields of a form. */
  readonly fields: JsonObject
  /** Size of the body in bytes. */
  readonly bytes: number
}

/** Options of one endpoint. */
export interface PassthroughEndpoint {
  /**
   * The only provider of the endpoint. Exception: requests for a stored file go to the provider that stores it.
   * @default the provider of the request's model
   */
  readonly provider?: string
  /**
   * Returns the maximum price of a POST request, in dollars. Other requests are not billed. The price times the margin
   * is reserved before the request is sent, and is billed after the response unless `finalPriceUsd` returns less. If the
   * price is not a finite number above 0, the request is rejected with 400. Return NaN to refuse a request.
   */
  readonly priceUsd?: (request: PassthroughRequest) => number
  /**
   * Returns the price of a request from its JSON response, in dollars. Amounts above `priceUsd` are not billed. Other responses
   * are billed at `priceUsd`. @default `priceUsd`
   */
  readonly finalPriceUsd?: (request: PassthroughRequest, response: JsonObject) => number
  /** True if the vendor charges nothing. Without `free` and `priceUsd`, keys with a budget are rejected. @default false */
  readonly free?: boolean
}

/** An endpoint that is forwarded without being translated. */
export type PassthroughName = 'images' | 'audio' | 'moderations' | 'completions' | 'files' | 'rerank'

/** Options of the enabled endpoints. Requests to other endpoints are rejected with 404. */
export type PassthroughOptions = { readonly [name in PassthroughName]?: PassthroughEndpoint }

export interface PassthroughTarget {
  readonly name: PassthroughName
  readonly endpoint: PassthroughEndpoint | undefined
  readonly method: 'GET' | 'POST' | 'DELETE'
  /** Path below the vendor's base URL, such as `/images/generations`. */
  readonly path: string
  /** Returns the name of the provider that stores the file. @default `endpoint.provider`, or the provider of the model */
  readonly findProvider?: (scope: string) => Promise<string>
  /** Called before the response is sent. */
  readonly onResponse?: (scope: string, provider: Provider, response: JsonObject) => Promise<void>
  readonly onNotFound?: (scope: string) => Promise<void>
}

export interface ParsedPassthrough {
  readonly provider: Provider
  readonly resolved: ResolvedModel
  readonly endpoint: PassthroughEndpoint
  readonly request: PassthroughRequest
  /** Maximum price, before the margin. */
  readonly maxPrice: NanoUsd
  readonly isStreamed: boolean
  readonly call: Pick<PassthroughCall, 'method' | 'path' | 'body' | 'contentType'>
}

interface PassthroughBody {
  readonly fields: JsonObject
  /** The names of the fields and files. */
  readonly names: readonly string[]
  readonly bytes: number
  readonly contentType?: string
  /** Replaces the model name if `model` is set. Returns undefined if there is no body. */
  readonly withModel: (model: string | undefined) => string | Uint8Array | undefined
}

export async function parsePassthrough(
  exchange: Authenticated,
  target: PassthroughTarget,
  services: Services,
): Promise<ParsedPassthrough> {
  const { endpoint, method, path } = target
  if (endpoint === undefined) throw notEnabled(target.name)
  checkHeaders(exchange, { canExplain: false }, services)
  const { key, caller } = exchange
  const body = method === 'POST' ? await readBody(exchange, services) : NO_BODY
  const requestedModel = asString(body.fields['model'])
  const { provider, model } = await chooseProvider(caller, target, requestedModel, services)
  if (provider.passThrough === undefined) {
    const message = `The provider "${provider.name}" does not support /v1${path}. Choose a model of another provider, or contact the operator of the gateway.`
    throw modelError('not-found', message)
  }
  const modelName = requestedModel ?? path.slice(1)
  const request: PassthroughRequest = {
    path: `/v1${path}`,
    provider: provider.name,
    ...(model !== undefined && { model }),
    fields: body.fields,
    bytes: body.bytes,
  }
  checkPermissions(key, modelName, target, request)
  checkFieldNames(body.names)
  const sentBody = body.withModel(model === requestedModel ? undefined : model)
  return {
    provider,
    resolved: {
      name: modelName,
      routes: [{ provider, model: provider.model(model ?? '') ?? unlistedModel(modelName, provider) }],
    },
    endpoint,
    request,
    maxPrice: maxPriceOf(caller, target, request, services),
    isStreamed: String(body.fields['stream']) === 'true',
    call: {
      method,
      path,
      ...(sentBody !== undefined && { body: sentBody }),
      ...(body.contentType !== undefined && { contentType: body.contentType }),
    },
  }
}

const NO_BODY: PassthroughBody = { fields: {}, names: [], bytes: 0, withModel: () => undefined }

async function readBody(exchange: Authenticated, services: Services): Promise<PassthroughBody> {
  const { request } = exchange
  const boundary = boundaryOf(request.header('content-type') ?? '')
  // `boundaryOf` has checked the content type of a form. The other header checks are the same as for JSON.
  checkJsonHeaders(boundary === undefined ? request : withJsonContentType(request), services.bodyLimits.maxBytes)
  const bytes = await readBytes(exchange, services)
  if (boundary !== undefined) {
    const form = readForm(bytes, boundary)
    return {
      fields: form.fields,
      names: form.names,
      bytes: bytes.byteLength,
      contentType: request.header('content-type') ?? '',
      withModel: (model) => (model === undefined ? bytes : replaceFormModel(form, model)),
    }
  }
  const stepOptions = { pause: yieldToEventLoop, uuid: services.runtime.uuid }
  const { body, hasRepeatedKeys, received } = await parseBodyInSteps(bytes, services.bodyLimits.json, stepOptions)
  if (body['model'] !== undefined && asString(body['model']) === undefined) throw modelNameError()
  return {
    fields: body,
    names: Object.keys(body),
    bytes: bytes.byteLength,
    withModel: (model) => {
      if (model === undefined) return hasRepeatedKeys ? JSON.stringify(body) : bytes
      return received === undefined ? JSON.stringify({ ...body, model }) : replaceModel(received, model)
    },
  }
}

const INVISIBLE_OR_SPACE = /[\s\p{C}]/u

/** A lenient vendor could read another field than the gateway authorized and priced, such as `Model` or `model[]`. */
function checkFieldNames(names: readonly string[]): void {
  const nameByNormalized = new Map([['model', 'model']])
  for (const name of names) {
    const normalized = normalizeName(name.normalize('NFKC')).replace(/\[\d*\]$/, '')
    const known = nameByNormalized.get(normalized) ?? name
    if (INVISIBLE_OR_SPACE.test(name)) throw fieldNameError(name, 'contains white space or invisible characters')
    if (known !== name) throw fieldNameError(name, `differs from ${known} only in spelling`)
    nameByNormalized.set(normalized, name)
  }
}

function fieldNameError(name: string, problem: string): GatewayError {
  const param = name.slice(0, MAX_SHOWN_LENGTH)
  const message = `The field name ${JSON.stringify(param)} ${problem}. Send each field once, with the name that the vendor documents.`
  return new GatewayError('invalid-request', message, { param })
}

const MAX_SHOWN_LENGTH = 100

function withJsonContentType(request: Pick<HttpRequest, 'header'>): Pick<HttpRequest, 'header'> {
  return { header: (name) => (name === 'content-type' ? 'application/json' : request.header(name)) }
}

async function chooseProvider(
  caller: Caller,
  target: PassthroughTarget,
  requestedModel: string | undefined,
  services: Services,
): Promise<{ readonly provider: Provider; readonly model: string | undefined }> {
  if (requestedModel !== undefined && !isSafeModelName(requestedModel)) throw modelNameError()
  const modelName = requestedModel === undefined ? undefined : splitModelName(requestedModel)
  const namedProvider = modelName === undefined ? undefined : services.provider(modelName.provider)
  const fixedProvider = (await target.findProvider?.(caller.scope)) ?? target.endpoint?.provider
  if (fixedProvider === undefined && namedProvider === undefined) {
    if (requestedModel === undefined) {
      const message = `The request has no model, and passthrough.${target.name}.provider is not set. Send model as <provider>/<model_id>.`
      throw modelError('invalid-request', message)
    }
    const [{ provider, model }] = services.resolve(requestedModel, caller.key).routes
    return { provider, model: model.id }
  }
  const provider = fixedProvider === undefined ? namedProvider : services.provider(fixedProvider)
  if (provider === undefined)
    throw new GatewayError('internal', PROVIDER_NOT_CONFIGURED, { cause: new Error(`No provider "${fixedProvider}"`) })
  if (namedProvider !== undefined && namedProvider !== provider) {
    const message = `/v1/${target.name} supports only the provider "${provider.name}". Choose one of its models.`
    throw modelError('invalid-model', message)
  }
  return { provider, model: namedProvider === undefined ? requestedModel : modelName?.id }
}

const PROVIDER_NOT_CONFIGURED = 'The provider for this request is not configured. Contact the operator of the gateway.'

/**
 * The vendor chooses the model of a request without one. A key that is limited to certain models must therefore send
 * one, except for files.
 */
function checkPermissions(
  key: VirtualKey,
  modelName: string,
  target: PassthroughTarget,
  request: PassthroughRequest,
): void {
  const { allowedModels, maxTokens } = key.permissions
  const { provider, model, fields } = request
  const isModelMissing = model === undefined && target.name !== 'files' && allowedModels !== undefined
  if (isModelMissing || !mayUseProvider(key, target, request)) {
    const message = `This key may not send this request to the provider "${provider}". Send a permitted model, or use another key.`
    throw modelError('model-not-allowed', message)
  }
  const maxTokensSent = asCount(fields['max_tokens'] ?? undefined)
  checkAccess(model === undefined ? withoutModels(key) : key, {
    modelName,
    routeNames: [`${provider}/${model}`],
    fields,
    maxTokens: maxTokensSent,
  })
  if (maxTokens !== undefined && target.name === 'completions' && maxTokensSent === undefined) {
    const message = `max_tokens is missing or invalid; expected a number of at most ${maxTokens}, the limit of this key. Send max_tokens.`
    throw new GatewayError('max-tokens-exceeded', message, { param: 'max_tokens' })
  }
}

function mayUseProvider(
  { providers }: VirtualKey,
  target: PassthroughTarget,
  { provider, model }: PassthroughRequest,
): boolean {
  const serves = (config: ProviderConfig): boolean =>
    target.name === 'files' || (model === undefined ? config.allowedModels.length === 0 : servesModel(config, model))
  return providers.length === 0 || providers.some((config) => config.provider === provider && serves(config))
}

function withoutModels(key: VirtualKey): VirtualKey {
  const { allowedModels: _, customerModels: __, ...permissions } = key.permissions
  return { ...key, providers: [], permissions }
}

function maxPriceOf(
  { key, levels }: Caller,
  { name, endpoint, method }: PassthroughTarget,
  request: PassthroughRequest,
  { log }: Services,
): NanoUsd {
  if (endpoint?.free === true) return ZERO
  const isLimited = levels.some((level) => level.hasBudget)
  const hasBudget = isLimited || key.budget !== undefined || key.budgetId !== undefined
  if (endpoint?.priceUsd === undefined && hasBudget) {
    const message = `This key has a budget, and /v1/${name} has no price. Use a key without a budget, or ask the operator to set passthrough.${name}.priceUsd or free.`
    throw new GatewayError('model-not-allowed', message, { code: 'price_unknown' })
  }
  if (endpoint?.priceUsd === undefined || method !== 'POST') return ZERO
  const price = priceOf(name, endpoint.priceUsd, request, log)
  if (price > ZERO) return price
  throw new GatewayError(
    'invalid-request',
    `The price of this request cannot be determined, so the request was not sent. Check the fields that change the price, such as model and n, or ask the operator to check passthrough.${name}.priceUsd.`,
    { code: 'price_unknown' },
  )
}

/** Returns 0 if the price is not a finite number above 0. Fields such as `n: 0` must not make a paid request free. */
function priceOf(
  name: PassthroughName,
  price: NonNullable<PassthroughEndpoint['priceUsd']>,
  request: PassthroughRequest,
  log: Services['log'],
): NanoUsd {
  try {
    const dollars = price(request)
    return Number.isFinite(dollars) && dollars > 0 ? fromDollars(dollars) : ZERO
  } catch (cause) {
    log.failure(`passthrough.${name}.priceUsd failed; the request was refused`, cause)
    return ZERO
  }
}

function unlistedModel(id: string, { name }: Provider): Model {
  return { id, family: name, contextWindowTokens: 1, maxOutputTokens: 1, price: { input: 0, output: 0 } }
}

export function notEnabled(name: PassthroughName): GatewayError {
  return new GatewayError(
    'not-found',
    `/v1/${name} is not enabled on this gateway. The operator can enable it with the passthrough.${name} option.`,
  )
}

function modelError(kind: FailureKind, message: string): GatewayError {
  return new GatewayError(kind, message, { param: 'model' })
}
