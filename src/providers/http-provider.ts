import type { Completion, Frame, Step } from '../core/answer.ts'
import { GatewayError } from '../core/errors.ts'
import { asCount, type JsonObject } from '../core/json.ts'
import type { Model } from '../core/model.ts'
import type {
  EmbedCall,
  Embedded,
  Provider,
  ProviderCall,
  Sent,
  Transport,
  TransportRequest,
  TransportResponse,
} from '../core/ports.ts'
import { readEmbeddings } from '../formats/embeddings.ts'
import type { Format, StepReader } from '../formats/format.ts'
import { MAX_ANSWER_BYTES, readSteps, readText, type Opened } from './read-answer.ts'
import {
  brokenUpstream,
  parseObject,
  hideSecrets,
  readAdvice,
  unreachable,
  withoutSecrets,
} from './upstream-failure.ts'
import { watchCall } from './watch-call.ts'

export interface HttpProviderOptions {
  readonly name: string
  readonly format: Format
  readonly models: readonly Model[]
  readonly model: (id: string) => Model | undefined
  /** Whole addresses: nothing of a request is ever part of them. */
  readonly urls: {
    readonly create: string
    /** Where the upstream embeds texts, when it can. */
    readonly embed?: string
    /** Where the upstream counts a prompt's tokens, when it can. */
    readonly count?: string
    /** An address that answers a GET when the upstream is up. */
    readonly ping?: string
  }
  /** The provider's own headers, credentials included; names in lower case. */
  readonly headers: Readonly<Record<string, string>>
  /** Names of caller headers that the upstream understands; they win over `headers`. @default none */
  readonly passes?: readonly string[]
  /** What must not appear in any message: the keys. @default none */
  readonly secrets?: readonly string[]
  /** @default the transport of the call's runtime */
  readonly transport?: Transport
}

/** The largest error that is read; of a larger one only the status counts. */
const ERROR_BYTES = 64 * 1024

/** One provider for any format: the same deadlines, bounds and failures for every upstream. */
export function httpProvider(options: HttpProviderOptions): Provider {
  const { name, format, models, model, urls } = options
  const { embed, count, ping } = urls
  return {
    name,
    dialect: format.dialect,
    models,
    model,
    complete: (call) => complete(options, call),
    stream: (call) => stream(options, call),
    ...(embed !== undefined && { embed: (call: EmbedCall) => embedTexts(options, call, embed) }),
    ...(count !== undefined && { countTokens: (call: ProviderCall) => countTokens(options, call, count) }),
    ...(ping !== undefined && { ping: (call: OpenCall) => answersAtAll(options, call, ping) }),
  }
}

async function complete(options: HttpProviderOptions, call: ProviderCall): Promise<Sent<Completion>> {
  const { body, ignored } = options.format.writePrompt(call.prompt, call.model.id)
  const { opened } = await open(options, call, { method: 'POST', url: options.urls.create, body, accept: JSON_TYPE })
  const { text, value } = await readJson(opened)
  return { answer: readable(opened, () => options.format.readCompletion(value, text)), ignored }
}

async function stream(options: HttpProviderOptions, call: ProviderCall): Promise<Sent<AsyncIterable<Step>>> {
  const { body, ignored } = options.format.writePrompt(call.prompt, call.model.id)
  const request = { method: 'POST', url: options.urls.create, body, accept: STREAM_TYPE } as const
  const { opened, response } = await open(options, call, request)
  const type = response.header('content-type') ?? ''
  if (!type.trim().toLowerCase().startsWith(STREAM_TYPE)) {
    opened.watch.leave()
    throw brokenUpstream(options.name, 'answered with something other than the event stream that was asked for')
  }
  return { answer: readSteps(opened, guardedReader(options)), ignored }
}

/** An error event may repeat credentials as well as an error response may. */
function guardedReader({ format, secrets = [] }: HttpProviderOptions): StepReader {
  const readStep = format.stepReader()
  const read = (frame: Frame): Step => {
    try {
      return readStep(frame)
    } catch (error) {
      throw GatewayError.is(error) ? withoutSecrets(error, secrets) : error
    }
  }
  return Object.assign(read, { isWhole: () => readStep.isWhole?.() === true })
}

async function embedTexts(options: HttpProviderOptions, call: EmbedCall, url: string): Promise<Embedded> {
  const body = JSON.stringify({ ...call.request.native, model: call.model.id })
  const { opened } = await open(options, call, { method: 'POST', url, body, accept: JSON_TYPE })
  const { value } = await readJson(opened)
  return readable(opened, () => readEmbeddings(value, call.request.inputs.length))
}

/** What a token count must not be told: it is about the prompt, and vendors refuse everything else. */
const NOT_COUNTED = [
  'max_tokens',
  'temperature',
  'top_p',
  'top_k',
  'stop_sequences',
  'stream',
  'metadata',
  'service_tier',
]

async function countTokens(options: HttpProviderOptions, call: ProviderCall, url: string): Promise<number> {
  const written = parseObject(options.format.writePrompt(call.prompt, call.model.id).body) ?? {}
  const counted = Object.fromEntries(Object.entries(written).filter(([field]) => !NOT_COUNTED.includes(field)))
  const request = { method: 'POST', url, body: JSON.stringify(counted), accept: JSON_TYPE } as const
  const { opened } = await open(options, call, request)
  const tokens = asCount((await readJson(opened)).value['input_tokens'])
  if (tokens === undefined) throw brokenUpstream(options.name, 'did not say how many tokens it counted')
  return tokens
}

type OpenCall = Pick<ProviderCall, 'signal' | 'runtime' | 'timeouts'> &
  Partial<Pick<ProviderCall, 'headers' | 'onAccepted'>>

/** Any answer but a fault of its own shows that the upstream can be reached. */
async function answersAtAll(options: HttpProviderOptions, call: OpenCall, url: string): Promise<void> {
  const { opened, response } = await request(options, call, { method: 'GET', url, accept: JSON_TYPE })
  opened.watch.leave()
  if (response.status >= 500) throw brokenUpstream(options.name, `answered with status ${response.status}`)
}

const JSON_TYPE = 'application/json'
const STREAM_TYPE = 'text/event-stream'

interface Outgoing {
  readonly method: TransportRequest['method']
  readonly url: string
  readonly body?: string
  readonly accept: string
}

interface Response {
  readonly opened: Opened
  readonly response: TransportResponse
}

/** Sends a request and resolves when the upstream has accepted it; every other answer is a failure. */
async function open(options: HttpProviderOptions, call: OpenCall, outgoing: Outgoing): Promise<Response> {
  const { opened, response } = await request(options, call, outgoing)
  const { status } = response
  if (status >= 400 && status < 600) throw await readRefusal(options, call, { opened, response })
  if (status !== 200) {
    opened.watch.leave()
    const redirected = status >= 300 && status < 400 && status !== 304
    const what = redirected ? 'answered with a redirect, which is not followed' : `answered with status ${status}`
    throw brokenUpstream(options.name, what)
  }
  call.onAccepted?.()
  const encoding = response.header('content-encoding')?.trim().toLowerCase()
  if (encoding !== undefined && encoding !== '' && encoding !== 'identity') {
    opened.watch.leave()
    throw brokenUpstream(options.name, 'compressed its answer although it was asked not to')
  }
  return { opened, response }
}

/** Sends a request and resolves with the head of whatever comes back. */
async function request(options: HttpProviderOptions, call: OpenCall, outgoing: Outgoing): Promise<Response> {
  const transport = options.transport ?? call.runtime.transport
  const { method, url, body, accept } = outgoing
  const { signal, runtime, timeouts } = call
  const kind = accept === STREAM_TYPE ? 'stream' : 'whole'
  const watch = watchCall({ signal, runtime, timeouts, provider: options.name, kind })
  const connectMs = Math.min(timeouts.connect, timeouts.total)
  try {
    const response = await transport({
      method,
      url,
      headers: headersFor(options, call, accept),
      ...(body !== undefined && { body }),
      connectMs,
      signal: watch.signal,
    })
    watch.begun()
    return { opened: { provider: options.name, pieces: response.body[Symbol.asyncIterator](), watch }, response }
  } catch (error) {
    const stopped = watch.stopped()
    watch.leave()
    throw stopped === undefined ? unreachable(options.name, connectMs, error) : stopped.reason
  }
}

/** Built afresh for each call: nothing of the caller's but the headers that the format itself knows. */
function headersFor(options: HttpProviderOptions, call: OpenCall, accept: string): Record<string, string> {
  const headers: Record<string, string> = {
    'content-type': JSON_TYPE,
    accept,
    'accept-encoding': 'identity',
    ...options.headers,
  }
  for (const name of options.passes ?? []) {
    const value = call.headers?.[name]
    if (value !== undefined) headers[name] = value
  }
  return headers
}

/** What an error status means. A body that cannot be read, or says nothing, leaves the status. */
async function readRefusal(options: HttpProviderOptions, call: OpenCall, from: Response): Promise<unknown> {
  const { opened, response } = from
  const text = await readText(opened, ERROR_BYTES).catch((error: unknown) => {
    if (opened.watch.stopped() !== undefined) throw error
    return undefined
  })
  const secrets = options.secrets ?? []
  // Hidden also before the format reads the body: a text that the format shortens may end within a secret.
  const body = hideSecrets(parseObject(text ?? ''), secrets)
  const failure = readable(opened, () => options.format.readFailure(response.status, body))
  const told = readAdvice(response, call.runtime.now())
  const advised = new GatewayError(failure.kind, failure.message, {
    ...failure.details,
    ...told,
    ...(refusesUs(response.status) && { advice: { ...told.advice, shouldRetry: 'false' } }),
    ...(response.status < 500 && { isCallerSide: true }),
  })
  return withoutSecrets(advised, secrets)
}

/** Our own credentials or rights are refused: asking again changes nothing, and the upstream is well. */
function refusesUs(status: number): boolean {
  return status === 401 || status === 402 || status === 403
}

async function readJson(opened: Opened): Promise<{ readonly text: string; readonly value: JsonObject }> {
  const text = await readText(opened, MAX_ANSWER_BYTES)
  if (text === undefined) throw brokenUpstream(opened.provider, 'sent an answer of more than 32 MiB')
  const value = parseObject(text)
  if (value === undefined) throw brokenUpstream(opened.provider, 'sent an answer that is no JSON object')
  return { text, value }
}

/** Whatever goes wrong while an upstream's answer is read is the upstream's fault. */
function readable<value>(opened: Opened, read: () => value): value {
  try {
    return read()
  } catch (error) {
    throw GatewayError.is(error) ? error : brokenUpstream(opened.provider, 'sent an answer that cannot be read', error)
  }
}
