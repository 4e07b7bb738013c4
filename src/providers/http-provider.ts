import { lazy, isPromise, type MaybePromise } from '../core/async.ts'
import type { Completion, Frame, Step, AnswerSource, StepReader, StreamFormat } from '../core/answer.ts'
import { Cancellation } from '../core/cancellation.ts'
import { GatewayError } from '../core/errors.ts'
import { asCount, type JsonObject } from '../core/json.ts'
import type { Model } from '../core/model.ts'
import type {
  EmbedCall,
  Embedded,
  HeldResponseCall,
  PassedAnswer,
  PassthroughCall,
  Provider,
  ProviderCall,
  Sent,
  Transport,
  TransportRequest,
} from '../core/ports.ts'
import type { Dialect, Prompt } from '../core/prompt.ts'
import type { UpstreamFormat, UpstreamFormatModule } from '../formats/format.ts'
import { replaceModel } from '../formats/parse-body.ts'
import { bounded } from './bounded-provider.ts'
import { sendRequest, type ResponseHeader, type StreamResponse, type WholeResponse } from './http-call.ts'
import { brokenUpstream, parseObject, withoutSecrets } from '../upstream/upstream-failure.ts'

/** Loaded on demand, because most requests are sent to a vendor of the same format and need no translation. */
const loadTranslation = lazy(async () => (await import('../formats/translators.ts')).enableTranslation())

/** Adds credentials to a request. */
export type SignRequest = (request: TransportRequest) => MaybePromise<TransportRequest>

/** A URL, or a function that returns the URL for a model; the id is percent-encoded. */
export type Address = string | ((modelId: string, isStream: boolean) => string)

/** A second format of an upstream. */
export interface SecondFormat extends UpstreamFormatModule {
  readonly dialect: Dialect
  /** The URLs of its endpoints. */
  readonly create: string
}

export interface HttpProviderOptions {
  readonly name: string
  readonly format: UpstreamFormatModule
  /** Requests in this format are not translated. @default none */
  readonly second?: SecondFormat
  readonly models: readonly Model[]
  readonly model: (id: string) => Model | undefined
  /** Full URLs. Of a request, they contain only the id of its model. */
  readonly urls: {
    readonly create: Address
    /** The embeddings endpoint, if the upstream has one. */
    readonly embed?: Address
    /** The endpoint that counts tokens, if the upstream has one. */
    readonly count?: string
    /** A URL that answers GET when the upstream is available. */
    readonly ping?: string
    /** The endpoint of stored responses, if the upstream has one. */
    readonly responses?: string
    /** The base URL of all other endpoints. */
    readonly base?: string
  }
  /** The headers of the provider, credentials included. Names are in lower case. */
  readonly headers: Readonly<Record<string, string>>
  /** Names of caller headers that are forwarded. They override `headers`. @default none */
  readonly passes?: readonly string[]
  /** Called for each request with its final headers and body. @default the request is not changed */
  readonly sign?: SignRequest | undefined
  /** Secrets that must not appear in messages. @default none */
  readonly secrets?: readonly string[] | (() => readonly string[])
  /** @default the transport of the call's runtime */
  readonly transport?: Transport
}

/** Maximum size of a whole answer in bytes. */
export const MAX_ANSWER_BYTES: number = 32 * 1024 * 1024
/** Maximum size of an error body in bytes. Of a larger one only the status is used. */
const MAX_ERROR_BYTES = 64 * 1024

/** The options and the loaded code of the format. */
type LoadedOptions = Omit<HttpProviderOptions, 'format'> & { readonly format: UpstreamFormat }

/** Creates a provider for any format, with the same timeouts, bounds and failures for every upstream. */
export function httpProvider(options: HttpProviderOptions): Provider {
  const { name, format, second, models, model, urls } = options
  const { embed, count, ping, responses, base } = urls
  let loaded: LoadedOptions | undefined
  const load = async (prompt: Prompt | undefined): Promise<LoadedOptions> => {
    const dialect = prompt?.native.dialect
    if (second !== undefined && prompt !== undefined && second.dialect === dialect) {
      return inSecondFormat(options, second, prompt)
    }
    if (dialect !== undefined && dialect !== format.dialect) await loadTranslation()
    return (loaded ??= { ...options, format: await format.load() })
  }
  /** Returns the options synchronously, unless a module must be loaded for this prompt. */
  const optionsFor = (prompt?: Prompt): MaybePromise<LoadedOptions> =>
    loaded === undefined || (prompt !== undefined && prompt.native.dialect !== format.dialect) ? load(prompt) : loaded
  return {
    name,
    dialect: format.dialect,
    ...(second !== undefined && { secondDialect: second.dialect }),
    endsCalls: true,
    models,
    model,
    complete: (call) => complete(optionsFor(call.prompt), call),
    stream: (call) => stream(optionsFor(call.prompt), call),
    ...(embed !== undefined && { embed: async (call: EmbedCall) => embedTexts(await optionsFor(), call, embed) }),
    ...(count !== undefined && {
      countTokens: async (call: ProviderCall) => countTokens(await optionsFor(call.prompt), call, count),
    }),
    ...(responses !== undefined && {
      heldResponse: async (call: HeldResponseCall) => heldResponse(await optionsFor(), call, responses),
    }),
    ...(base !== undefined && {
      passThrough: async (call: PassthroughCall) => passThrough(await optionsFor(), call, base),
    }),
    ...(ping !== undefined && { ping: async (call: OpenCall) => answersAtAll(await optionsFor(), call, ping) }),
  }
}

/** Returns the same upstream with its second format, which is that of the prompt. */
async function inSecondFormat(
  options: HttpProviderOptions,
  second: SecondFormat,
  { operation }: Prompt,
): Promise<LoadedOptions> {
  const create = operation === undefined ? second.create : `${second.create}/${operation}`
  return { ...options, format: await second.load(), urls: { ...options.urls, create } }
}

async function complete(given: MaybePromise<LoadedOptions>, call: ProviderCall): Promise<Sent<Completion>> {
  const options = isPromise(given) ? await given : given
  const { body, ignored } = options.format.writePrompt(call.prompt, call.model.id)
  const response = await request(options, call, { method: 'POST', url: writeAddress(options.urls.create, call), body })
  if (response.status >= 400) throw await refusalOf(options, call, response)
  const { text, value } = readJson(options, call, response)
  return { answer: readable(options.name, () => options.format.readCompletion(value, text)), ignored }
}

function writeAddress(address: Address, { model }: { readonly model: Model }, isStream = false): string {
  return typeof address === 'string' ? address : address(encodeURIComponent(model.id), isStream)
}

/** The status and the content type of the answer are checked before any part of it is forwarded. */
async function stream(given: MaybePromise<LoadedOptions>, call: ProviderCall): Promise<Sent<AnswerSource>> {
  const options = isPromise(given) ? await given : given
  const { body, ignored } = options.format.writePrompt(call.prompt, call.model.id)
  const response = await request(options, call, {
    method: 'POST',
    url: writeAddress(options.urls.create, call, true),
    body,
    isStream: isEventStream,
  })
  if (response.status >= 400) throw await refusalOf(options, call, response)
  checkAccepted(options, call, response)
  if ('source' in response) return { answer: response.source, ignored }
  throw brokenUpstream(options.name, 'answered with something other than the event stream that was asked for')
}

async function heldResponse(options: LoadedOptions, call: HeldResponseCall, url: string): Promise<string> {
  const { method, path } = call
  const { text } = await fetchJson(options, call, { method, url: `${url}${path}` })
  return text
}

async function passThrough(options: LoadedOptions, call: PassthroughCall, base: string): Promise<PassedAnswer> {
  const { path, ...outgoing } = call
  const response = await request(options, call, { ...outgoing, url: `${base}${path}`, isStream: isAccepted })
  if ('source' in response) return response
  if (response.status >= 400) throw await refusalOf(options, call, response)
  checkAccepted(options, call, response)
  throw brokenUpstream(options.name, `answered with status ${response.status}`)
}

async function embedTexts(options: LoadedOptions, call: EmbedCall, address: Address): Promise<Embedded> {
  const { readEmbeddings } = await import('../formats/translators.ts')
  const { native, received } = call.request
  const { id } = call.model
  const body = received === undefined ? JSON.stringify({ ...native, model: id }) : replaceModel(received, id)
  const { value } = await fetchJson(options, call, { method: 'POST', url: writeAddress(address, call), body })
  return readable(options.name, () => readEmbeddings(value, call.request.inputs.length))
}

/** Error events may contain credentials, as error responses may. */
function guardedFormat({ format, secrets }: LoadedOptions): StreamFormat {
  const { dialect, isPlain } = format
  const stepReader = (): StepReader => {
    const readStep = format.stepReader()
    const read = (frame: Frame): Step => {
      try {
        return readStep(frame)
      } catch (error) {
        throw GatewayError.is(error) ? withoutSecrets(error, listOf(secrets)) : error
      }
    }
    return Object.assign(read, { isWhole: () => readStep.isWhole?.() === true })
  }
  return { dialect, stepReader, ...(isPlain !== undefined && { isPlain }) }
}

/** Fields that are removed for a token count, because vendors refuse fields that are not part of the prompt. */
const NOT_COUNTED = 'max_tokens temperature top_p top_k stop_sequences stream metadata service_tier'.split(' ')

async function countTokens(options: LoadedOptions, call: ProviderCall, url: string): Promise<number> {
  const written = parseObject(textOf(options.format.writePrompt(call.prompt, call.model.id).body)) ?? {}
  const counted = Object.fromEntries(Object.entries(written).filter(([field]) => !NOT_COUNTED.includes(field)))
  const { value } = await fetchJson(options, call, { method: 'POST', url, body: JSON.stringify(counted) })
  const tokens = asCount(value['input_tokens'])
  if (tokens === undefined) throw brokenUpstream(options.name, 'did not say how many tokens it counted')
  return tokens
}

type OpenCall = Pick<ProviderCall, 'signal' | 'runtime' | 'timeouts'> &
  Partial<Pick<ProviderCall, 'headers' | 'cancellation' | 'onAccepted'>>

/** Every answer except a server error shows that the upstream is available. */
async function answersAtAll(options: LoadedOptions, call: OpenCall, url: string): Promise<void> {
  const { status } = await request(options, call, { method: 'GET', url })
  if (status >= 500) throw brokenUpstream(options.name, `answered with status ${status}`)
}

const JSON_TYPE = 'application/json'
const STREAM_TYPE = 'text/event-stream'

interface Outgoing {
  readonly method: TransportRequest['method']
  readonly url: string
  readonly body?: string | Uint8Array
  readonly contentType?: string
  /** Returns true for an answer that is streamed to the receiver. @default never */
  readonly isStream?: IsStream
}

type IsStream = (status: number, header: ResponseHeader) => boolean

type UpstreamResponse = WholeResponse | StreamResponse

interface JsonAnswer {
  readonly text: string
  readonly value: JsonObject
}

/** Sends a request and resolves when the upstream has accepted it. Rejects for every other answer. */
async function fetchJson(options: LoadedOptions, call: OpenCall, outgoing: Outgoing): Promise<JsonAnswer> {
  const response = await request(options, call, outgoing)
  if (response.status >= 400) throw await refusalOf(options, call, response)
  return readJson(options, call, response)
}

function readJson(options: LoadedOptions, call: OpenCall, response: UpstreamResponse): JsonAnswer {
  checkAccepted(options, call, response)
  const text = 'text' in response ? response.text : undefined
  if (text === undefined) throw brokenUpstream(options.name, 'sent an answer of more than 32 MiB')
  const value = parseObject(text)
  if (value === undefined) throw brokenUpstream(options.name, 'sent an answer that is not a JSON object')
  return { text, value }
}

function checkAccepted(options: LoadedOptions, call: OpenCall, response: UpstreamResponse): void {
  const { status, header } = response
  if (status !== 200) {
    const isRedirect = status >= 300 && status < 400 && status !== 304
    const what = isRedirect ? 'answered with a redirect, which is not followed' : `answered with status ${status}`
    throw brokenUpstream(options.name, what)
  }
  call.onAccepted?.()
  if (isEncoded(header)) throw brokenUpstream(options.name, 'compressed its answer although it was asked not to')
}

function isEncoded(header: ResponseHeader): boolean {
  const encoding = header('content-encoding')?.trim().toLowerCase()
  return encoding !== undefined && encoding !== '' && encoding !== 'identity'
}

function request(options: LoadedOptions, call: OpenCall, outgoing: Outgoing): Promise<UpstreamResponse> {
  const { runtime, timeouts } = call
  const { sign } = options
  const { method, url, body, isStream } = outgoing
  const connectMs = Math.min(timeouts.connect, timeouts.total)
  const headers = headersFor(options, call, outgoing)
  const unsigned = body === undefined ? { method, url, headers, connectMs } : { method, url, headers, body, connectMs }
  const send = (signed: TransportRequest): Promise<UpstreamResponse> =>
    sendRequest(signed, {
      provider: options.name,
      transport: options.transport ?? runtime.transport,
      runtime,
      timeouts,
      connectMs,
      cancellation: call.cancellation ?? Cancellation.of(call.signal),
      maxBytes,
      isStream,
      format: isStream === isEventStream ? guardedFormat(options) : undefined,
    })
  return sign === undefined ? send(unsigned) : bounded(options.name, call, async () => sign(unsigned)).then(send)
}

function maxBytes(status: number): number {
  return status === 200 ? MAX_ANSWER_BYTES : MAX_ERROR_BYTES
}

function isEventStream(status: number, header: ResponseHeader): boolean {
  const type = header('content-type') ?? ''
  return status === 200 && type.trim().toLowerCase().startsWith(STREAM_TYPE) && !isEncoded(header)
}

function isAccepted(status: number, header: ResponseHeader): boolean {
  return status >= 200 && status < 300 && !isEncoded(header)
}

/** Returns a new record. Of the caller's headers, it contains only those that the format defines. */
function headersFor(
  options: LoadedOptions,
  call: OpenCall,
  { isStream, contentType = JSON_TYPE }: Outgoing,
): Record<string, string> {
  const headers: Record<string, string> = {
    'content-type': contentType,
    accept: isStream === undefined ? JSON_TYPE : isStream === isAccepted ? '*/*' : STREAM_TYPE,
    'accept-encoding': 'identity',
    ...options.headers,
  }
  for (const name of options.passes ?? []) {
    const value = call.headers?.[name]
    if (value !== undefined) headers[name] = value
  }
  return headers
}

/** Returns the failure for an error status. If the body cannot be parsed or is empty, only the status is used. */
async function refusalOf(
  options: LoadedOptions,
  { runtime }: OpenCall,
  response: UpstreamResponse,
): Promise<GatewayError> {
  const { name, format, secrets } = options
  if (response.status >= 600) return brokenUpstream(name, `answered with status ${response.status}`)
  const { readRefusal } = await import('../upstream/refusal.ts')
  const text = 'text' in response ? response.text : undefined
  const failure = readable(name, () => format.readFailure(response.status, parseObject(text ?? '')))
  return readRefusal(failure, { response, now: runtime.now(), secrets: listOf(secrets) })
}

function listOf(secrets: HttpProviderOptions['secrets'] = []): readonly string[] {
  return typeof secrets === 'function' ? secrets() : secrets
}

/** Errors while an answer is parsed are attributed to the upstream. */
function readable<value>(provider: string, read: () => value): value {
  try {
    return read()
  } catch (error) {
    throw GatewayError.is(error) ? error : brokenUpstream(provider, 'sent an answer that cannot be read', error)
  }
}

const decoder = new TextDecoder()

function textOf(body: string | Uint8Array): string {
  return typeof body === 'string' ? body : decoder.decode(body)
}
