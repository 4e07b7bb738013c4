import { GatewayError } from '../core/errors.ts'
import type { HttpRequest } from '../core/http.ts'
import { asArray, asCount, asString, type JsonObject } from '../core/json.ts'
import { isSafeModelName, splitModelName, type Model } from '../core/model.ts'
import { usd, ZERO, type NanoUsd } from '../core/money.ts'
import type { PassthroughCall, Provider } from '../core/ports.ts'
import { boundaryOf, readForm, replaceFormModel } from '../formats/multipart.ts'
import { parseBodyInTurns, replaceModel } from '../formats/parse-body.ts'
import { checkAccess, servesModel } from '../governance/access.ts'
import type { ProviderConfig, VirtualKey } from '../governance/virtual-key.ts'
import { checkJsonHeaders } from '../http/body.ts'
import { yieldToEventLoop } from '../tokens/yield.ts'
import type { Authenticated, Resolved } from './exchange.ts'
import { readBytes, readSteering } from './parse-request.ts'
import type { PassthroughEndpoint, PassthroughName, PassthroughRequest } from './passthrough-options.ts'
import type { Services } from './services.ts'

/** One action of an endpoint, for one request. */
export interface PassTarget {
  readonly name: PassthroughName
  /** Undefined: the operator has not opened the endpoint. */
  readonly endpoint: PassthroughEndpoint | undefined
  readonly method: 'GET' | 'POST' | 'DELETE'
  /** Follows the vendor's base address: `/images/generations`. */
  readonly path: string
  /** Finds the provider that holds what the path names. Absent: the model or the option decides. */
  readonly holder?: (key: VirtualKey) => Promise<string>
  /** Keeps what later requests need of the JSON answer, before the caller gets it. */
  readonly keep?: (key: VirtualKey, provider: Provider, answer: JsonObject) => Promise<void>
  /** Called when the vendor has nothing at this path. */
  readonly forget?: (key: VirtualKey) => Promise<void>
}

/** A permitted request to a vendor's endpoint. */
export interface PassRequest {
  readonly provider: Provider
  readonly resolved: Resolved
  readonly endpoint: PassthroughEndpoint
  readonly priced: PassthroughRequest
  /** The most that the vendor charges. */
  readonly price: NanoUsd
  /** The caller asked for an event stream. */
  readonly isStreamed: boolean
  readonly call: Pick<PassthroughCall, 'method' | 'path' | 'body' | 'contentType'>
}

/** The body, as far as the gateway reads it. */
interface PassedBody {
  readonly fields: JsonObject
  readonly bytes: number
  readonly contentType?: string
  /** Returns the body with this model, or as received. */
  readonly withModel: (model: string | undefined) => string | Uint8Array | undefined
}

/** Reads which model and provider a request is for, and what it may cost: 400, 403, 404 or 413. */
export async function parsePassthrough(
  exchange: Authenticated,
  target: PassTarget,
  services: Services,
): Promise<PassRequest> {
  const { endpoint, method, path } = target
  if (endpoint === undefined) throw notOpen(target.name)
  exchange.steering = readSteering(exchange.request, { canExplain: false })
  const { key } = exchange
  const body = method === 'POST' ? await readBody(exchange, services) : NO_BODY
  const asked = asString(body.fields['model'])
  const { provider, model } = await chooseProvider({ key, target, endpoint, asked }, services)
  if (provider.passThrough === undefined) throw cannotPass(provider, path)
  const name = asked ?? path.slice(1)
  checkPermissions(key, { name, model, provider, target, fields: body.fields })
  const priced: PassthroughRequest = {
    path: `/v1${path}`,
    provider: provider.name,
    ...(model !== undefined && { model }),
    fields: body.fields,
    bytes: body.bytes,
  }
  const sent = body.withModel(model === asked ? undefined : model)
  return {
    provider,
    resolved: { name, routes: [{ provider, model: provider.model(model ?? '') ?? unlisted(name, provider) }] },
    endpoint,
    priced,
    price: priceOf(key, target, priced),
    isStreamed: String(body.fields['stream']) === 'true',
    call: {
      method,
      path,
      ...(sent !== undefined && { body: sent }),
      ...(body.contentType !== undefined && { contentType: body.contentType }),
    },
  }
}

const NO_BODY: PassedBody = { fields: {}, bytes: 0, withModel: () => undefined }

async function readBody(exchange: Authenticated, services: Services): Promise<PassedBody> {
  const { request } = exchange
  const boundary = boundaryOf(request.header('content-type') ?? '')
  // A form is announced by its own content type; everything else about the headers is the same.
  checkJsonHeaders(boundary === undefined ? request : asJson(request), services.bodyLimits.maxBytes)
  const bytes = await readBytes(exchange, services)
  if (boundary !== undefined) {
    const form = readForm(bytes, boundary)
    return {
      fields: form.fields,
      bytes: bytes.byteLength,
      contentType: request.header('content-type') ?? '',
      withModel: (model) => (model === undefined ? bytes : replaceFormModel(form, model)),
    }
  }
  const turns = { pause: yieldToEventLoop, uuid: services.runtime.uuid }
  const { body, hasRepeatedKeys, received } = await parseBodyInTurns(bytes, services.bodyLimits.json, turns)
  if (body['model'] !== undefined && asString(body['model']) === undefined) throw unusableModel()
  return {
    fields: body,
    bytes: bytes.byteLength,
    withModel: (model) => {
      if (model === undefined) return hasRepeatedKeys ? JSON.stringify(body) : bytes
      return received === undefined ? JSON.stringify({ ...body, model }) : replaceModel(received, model)
    },
  }
}

function asJson(request: Pick<HttpRequest, 'header'>): Pick<HttpRequest, 'header'> {
  return { header: (name) => (name === 'content-type' ? 'application/json' : request.header(name)) }
}

interface Choosing {
  readonly key: VirtualKey
  readonly target: PassTarget
  readonly endpoint: PassthroughEndpoint
  /** The model as the caller wrote it. */
  readonly asked: string | undefined
}

/** The holder of what the path names, else the option's provider, else the provider in the model's name or of the model. */
async function chooseProvider(
  { key, target, endpoint, asked }: Choosing,
  services: Services,
): Promise<{ readonly provider: Provider; readonly model: string | undefined }> {
  if (asked !== undefined && !isSafeModelName(asked)) throw unusableModel()
  const parts = asked === undefined ? undefined : splitModelName(asked)
  const named = parts === undefined ? undefined : services.provider(parts.provider)
  const fixed = (await target.holder?.(key)) ?? endpoint.provider
  if (fixed === undefined && named === undefined) {
    if (asked === undefined) throw unnamed(target)
    const [{ provider, model }] = services.resolve(asked, key).routes
    return { provider, model: model.id }
  }
  const provider = fixed === undefined ? named : services.provider(fixed)
  if (provider === undefined) throw new GatewayError('internal', NO_PROVIDER, { cause: new Error(`${fixed}`) })
  if (named !== undefined && named !== provider) throw elsewhere(target, provider)
  return { provider, model: named === undefined ? asked : parts?.id }
}

const NO_PROVIDER = 'The provider of this endpoint is not configured. Tell the operator of the gateway.'

interface Permitting {
  readonly name: string
  readonly model: string | undefined
  readonly provider: Provider
  readonly target: PassTarget
  readonly fields: JsonObject
}

/** A request without a model could reach any model, so a key with permitted models must name one. Files reach none. */
function checkPermissions(key: VirtualKey, { name, model, provider, target, fields }: Permitting): void {
  const { allowedModels, maxTokens, disableTools } = key.permissions
  const isModelMissing = model === undefined && target.name !== 'files' && allowedModels !== undefined
  if (isModelMissing || !mayUseProvider(key, { provider, model, target })) throw notPermitted(provider, target)
  const asked = asCount(fields['max_tokens'] ?? undefined)
  checkAccess(model === undefined ? withoutModels(key) : key, {
    modelName: name,
    otherNames: [`${provider.name}/${model}`],
    prompt: {
      native: { dialect: 'openai', value: fields },
      model: name,
      messages: [],
      settings: asked === undefined ? {} : { maxTokens: asked },
      tools: [],
      stream: false,
    },
  })
  if (disableTools === true && asArray(fields['tools']).length > 0) throw toolsDisabled()
  if (maxTokens !== undefined && target.name === 'completions' && asked === undefined) throw unlimited(maxTokens)
}

/** By the model that the vendor gets: of a bare name, `checkAccess` asks only `allowed_models`. */
function mayUseProvider(
  { providers }: VirtualKey,
  { provider, model, target }: Pick<Permitting, 'provider' | 'model' | 'target'>,
): boolean {
  const serves = (config: ProviderConfig): boolean =>
    target.name === 'files' || (model === undefined ? config.allowedModels.length === 0 : servesModel(config, model))
  return providers.length === 0 || providers.some((config) => config.provider === provider.name && serves(config))
}

/** The key with the permissions that concern no model. */
function withoutModels(key: VirtualKey): VirtualKey {
  const { allowedModels: _, ...permissions } = key.permissions
  return { ...key, providers: [], permissions }
}

/** Reading and deleting cost nothing. */
function priceOf(key: VirtualKey, { name, endpoint, method }: PassTarget, priced: PassthroughRequest): NanoUsd {
  if (endpoint?.free === true) return ZERO
  const hasBudget = key.budget !== undefined || key.budgetId !== undefined
  if (endpoint?.price === undefined && hasBudget) throw unpriced(name)
  if (endpoint?.price === undefined || method !== 'POST') return ZERO
  const dollars = endpoint.price(priced)
  if (Number.isFinite(dollars) && dollars >= 0) return usd(dollars)
  throw new GatewayError('internal', `passthrough.${name}.price did not return dollars. Tell the gateway's operator.`)
}

/** What the vendor charged, by its answer: at most the price that was reserved. */
export function priceByAnswer({ endpoint, priced, price }: PassRequest, answer: JsonObject): NanoUsd {
  const dollars = endpoint.finalPrice?.(priced, answer) ?? NaN
  const charged = Number.isFinite(dollars) && dollars >= 0 ? usd(dollars) : price
  return charged < price ? charged : price
}

/** The model in the records of a request, if the catalog does not contain it. */
function unlisted(id: string, { name }: Provider): Model {
  return { id, family: name, contextWindow: 1, maxOutputTokens: 1, price: { input: 0, output: 0 } }
}

export function notOpen(name: PassthroughName): GatewayError {
  return new GatewayError(
    'not-found',
    `/v1/${name} is not open on this gateway. Its operator opens it by the option passthrough.${name}.`,
  )
}

function cannotPass({ name }: Provider, path: string): GatewayError {
  return new GatewayError('not-found', `The provider "${name}" has no ${path}. Choose a model of another provider.`, {
    param: 'model',
  })
}

function unusableModel(): GatewayError {
  return new GatewayError(
    'invalid-request',
    'model is not a model name: expected at most 200 letters, digits and . _ : @ + - /.',
    { param: 'model' },
  )
}

function unnamed({ name }: PassTarget): GatewayError {
  return new GatewayError(
    'invalid-request',
    `The request names no model, and passthrough.${name}.provider is not set. Send model as <provider>/<model_id>.`,
    { param: 'model' },
  )
}

function elsewhere({ name }: PassTarget, provider: Provider): GatewayError {
  return new GatewayError(
    'invalid-model',
    `/v1/${name} reaches the provider "${provider.name}" only. Choose one of its models.`,
    { param: 'model' },
  )
}

function notPermitted({ name }: Provider, target: PassTarget): GatewayError {
  return new GatewayError(
    'model-not-allowed',
    `This key is restricted and may not use /v1/${target.name} of the provider "${name}" in this way. Name a model that it may use.`,
    { param: 'model' },
  )
}

function toolsDisabled(): GatewayError {
  return new GatewayError('tools-disabled', 'This key may not use tools. Send the request without them.', {
    param: 'tools',
  })
}

function unlimited(permitted: number): GatewayError {
  return new GatewayError(
    'max-tokens-exceeded',
    `max_tokens is missing; this key may ask for at most ${permitted}. Send max_tokens.`,
    { param: 'max_tokens' },
  )
}

function unpriced(name: string): GatewayError {
  return new GatewayError(
    'model-not-allowed',
    `This key has a budget, and /v1/${name} has no price. Use a key without a budget, or have the operator set passthrough.${name}.price or free.`,
    { code: 'price_unknown' },
  )
}
