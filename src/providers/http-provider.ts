import type { ResponseSource, Completion } from '../core/completion.ts'
import { isPromise, type MaybePromise } from '../core/async.ts'
import { asCount, parseObject } from '../core/json.ts'
import type {
  EmbedCall,
  EmbeddingResult,
  StoredResponseCall,
  PassthroughResponse,
  PassthroughCall,
  Provider,
  ProviderCall,
  ProviderResponse,
  Model,
} from '../core/ports.ts'
import type { Prompt } from '../core/prompt.ts'
import { UPSTREAM_FORMATS } from '../formats/dialects.ts'
import type { UpstreamFormatModule, WrittenPrompt } from '../formats/format.ts'
import { replaceModel } from '../formats/parse-body.ts'
import { upstreamError } from '../upstream/attempts.ts'
import {
  bodyText,
  checkAccepted,
  fetchJson,
  isSuccessful,
  isEventStream,
  readResponse,
  readJson,
  redactingFormat,
  throwRejection,
  request,
  type RequestCall,
  type RequestOptions,
  type SignRequest,
  type LoadedUpstream,
} from './http-request.ts'

/** The function receives a percent-encoded id. */
export type EndpointUrl = string | ((modelId: string, isStream: boolean) => string)

export interface HttpProviderOptions extends RequestOptions {
  readonly format: UpstreamFormatModule
  readonly models: readonly Model[]
  readonly model: (id: string) => Model | undefined
  readonly urls: {
    readonly create: EndpointUrl
    readonly embed?: EndpointUrl
    readonly count?: string
    readonly ping?: string
    readonly responses?: string
    readonly base?: string
  }
}

interface LoadedTarget extends LoadedUpstream {
  readonly create: EndpointUrl
}

export function httpProvider(options: HttpProviderOptions): Provider {
  const { name, format, models, model, urls } = options
  const { headers, forwardedHeaders = [] } = options
  const { create, embed, count, ping, responses, base } = urls
  let loaded: LoadedTarget | undefined
  const load = async (): Promise<LoadedTarget> => (loaded ??= { ...options, format: await format.load(), create })
  const loadResponses = async (url: string, operation = ''): Promise<LoadedTarget> => {
    const responsesUpstream = await UPSTREAM_FORMATS.responses()
    return { ...options, format: responsesUpstream, create: operation === '' ? url : `${url}/${operation}` }
  }
  const targetFor = (prompt?: Prompt): MaybePromise<LoadedTarget> =>
    responses !== undefined && prompt?.native.dialect === 'responses'
      ? loadResponses(responses, prompt.operation)
      : (loaded ?? load())
  return {
    name,
    dialect: format.dialect,
    endsCalls: true,
    varyHeaders: Object.fromEntries(forwardedHeaders.map((header) => [header, headers[header]])),
    models,
    model,
    complete: (call) => complete(targetFor(call.prompt), call),
    stream: (call) => stream(targetFor(call.prompt), call),
    ...(embed !== undefined && { embed: async (call: EmbedCall) => embedTexts(await targetFor(), call, embed) }),
    ...(count !== undefined && {
      countTokens: async (call: ProviderCall) => countTokens(await targetFor(call.prompt), call, count),
    }),
    ...(responses !== undefined && {
      secondDialect: 'responses',
      storedResponse: async (call: StoredResponseCall) => storedResponse(await targetFor(), call, responses),
    }),
    ...(base !== undefined && {
      passThrough: async (call: PassthroughCall) => passThrough(await targetFor(), call, base),
    }),
    ...(ping !== undefined && { ping: async (call: RequestCall) => checkAvailable(await targetFor(), call, ping) }),
  }
}

/** The messages that are written at once. More are written in steps, so that other requests run between them. */
const MAX_UNPAUSED_MESSAGES = 256

async function write({ format }: LoadedTarget, { prompt, model }: ProviderCall): Promise<WrittenPrompt> {
  if (prompt.messages.length <= MAX_UNPAUSED_MESSAGES) return format.writePrompt(prompt, model.id)
  const { writeInSteps } = await import('./write-in-steps.ts')
  return writeInSteps(format, prompt, model.id)
}

function complete(
  target: MaybePromise<LoadedTarget>,
  call: ProviderCall,
  given?: WrittenPrompt,
): Promise<ProviderResponse<Completion>> {
  if (isPromise(target)) return target.then((loaded) => complete(loaded, call))
  const { format } = target
  try {
    if (given === undefined && call.prompt.messages.length > MAX_UNPAUSED_MESSAGES)
      return write(target, call).then((written) => complete(target, call, written))
    const { body, ignored } = given ?? format.writePrompt(call.prompt, call.model.id)
    const sent = request(target, call, { method: 'POST', url: urlFor(target.create, call), body })
    return sent.then((response) => {
      if (response.status >= 400) return throwRejection(target, call, response)
      const { text, value } = readJson(target, call, response)
      return { response: readResponse(target, () => format.readCompletion(value, text)), ignored }
    })
  } catch (error) {
    return Promise.reject(error)
  }
}

async function stream(
  loadingTarget: MaybePromise<LoadedTarget>,
  call: ProviderCall,
): Promise<ProviderResponse<ResponseSource>> {
  const target = isPromise(loadingTarget) ? await loadingTarget : loadingTarget
  const { body, ignored } = await write(target, call)
  call.onIgnored?.(ignored)
  const url = urlFor(target.create, call, true)
  const format = redactingFormat(target)
  const response = await request(target, call, { method: 'POST', url, body, isStream: isEventStream, format })
  if (response.status >= 400) return throwRejection(target, call, response)
  checkAccepted(target, call, response)
  if ('source' in response) return { response: response.source, ignored }
  throw upstreamError(target.name, 'did not answer with an event stream, although the request asked for one')
}

function urlFor(endpoint: EndpointUrl, { model }: { readonly model: Model }, isStream = false): string {
  return typeof endpoint === 'string' ? endpoint : endpoint(encodeURIComponent(model.id), isStream)
}

async function storedResponse(target: LoadedTarget, call: StoredResponseCall, url: string): Promise<string> {
  const { method, path } = call
  const { text } = await fetchJson(target, call, { method, url: `${url}${path}` })
  return text
}

async function passThrough(target: LoadedTarget, call: PassthroughCall, base: string): Promise<PassthroughResponse> {
  const { path, ...outgoing } = call
  const response = await request(target, call, { ...outgoing, url: `${base}${path}`, isStream: isSuccessful })
  if ('source' in response) return response
  if (response.status >= 400) return throwRejection(target, call, response)
  checkAccepted(target, call, response)
  throw upstreamError(target.name, `answered with status ${response.status}`)
}

async function embedTexts(target: LoadedTarget, call: EmbedCall, endpoint: EndpointUrl): Promise<EmbeddingResult> {
  const { readEmbeddings } = await import('../formats/embeddings.ts')
  const { native, received, inputs } = call.request
  const { id } = call.model
  const body = received === undefined ? JSON.stringify({ ...native, model: id }) : replaceModel(received, id)
  const { value } = await fetchJson(target, call, { method: 'POST', url: urlFor(endpoint, call), body })
  return readResponse(target, () => readEmbeddings(value, inputs.length))
}

/** Vendors reject these fields in a token-count request. */
const UNCOUNTED_FIELDS = 'max_tokens temperature top_p top_k stop_sequences stream metadata service_tier'.split(' ')

async function countTokens(target: LoadedTarget, call: ProviderCall, url: string): Promise<number> {
  const { body } = await write(target, call)
  const fields = parseObject(bodyText(body)) ?? {}
  const counted = Object.fromEntries(Object.entries(fields).filter(([field]) => !UNCOUNTED_FIELDS.includes(field)))
  const { value } = await fetchJson(target, call, { method: 'POST', url, body: JSON.stringify(counted) })
  const tokens = asCount(value['input_tokens'])
  if (tokens === undefined) throw upstreamError(target.name, 'returned no token count')
  return tokens
}

async function checkAvailable(target: LoadedTarget, call: RequestCall, url: string): Promise<void> {
  const { status } = await request(target, call, { method: 'GET', url })
  if (status >= 500) throw upstreamError(target.name, `answered with status ${status}`)
}

export const CHAT_FORMAT: UpstreamFormatModule = {
  dialect: 'chat',
  load: UPSTREAM_FORMATS.chat,
}

export const MESSAGES_FORMAT: UpstreamFormatModule = {
  dialect: 'messages',
  load: UPSTREAM_FORMATS.messages,
}

export const GEMINI_FORMAT: UpstreamFormatModule = {
  dialect: 'gemini',
  load: UPSTREAM_FORMATS.gemini,
}

const MIN_KEY_LENGTH = 4
/** Shorter values of configured headers, such as a version, are not redacted. */
const MIN_HEADER_VALUE_LENGTH = 8
const MAX_SIGNED_VALUES = 8

/** The longest secret comes first, because it may contain a shorter one. */
export function secretsIn(keys: readonly string[], headerValues: readonly string[]): readonly string[] {
  const secrets = [
    ...keys.filter(({ length }) => length >= MIN_KEY_LENGTH),
    ...headerValues.filter(({ length }) => length >= MIN_HEADER_VALUE_LENGTH),
  ]
  return secrets.toSorted((a, b) => b.length - a.length)
}

export function recordSignedValues(sign: SignRequest, values: string[]): SignRequest {
  return async (request) => {
    const signed = await sign(request)
    for (const [name, value] of Object.entries(signed.headers)) {
      if (value === request.headers[name]) continue
      const secret = withoutScheme(String(value))
      const index = values.indexOf(secret)
      if (index !== -1) values.splice(index, 1)
      values.unshift(secret)
    }
    values.splice(MAX_SIGNED_VALUES)
    return signed
  }
}

/** An upstream may echo only the token, so the scheme is removed. */
export function withoutScheme(value: string): string {
  return value.replace(/^(bearer|basic|token|(api-?)?key) +/i, '')
}
