/** The calls of a provider besides that for a whole completion. Loaded with the first of them. */
import type { ResponseSource, SseEvent, StreamChunk, StreamFormat, StreamReader } from '../core/completion.ts'
import { GatewayError } from '../core/errors.ts'
import { asCount, parseObject } from '../core/json.ts'
import type {
  EmbedCall,
  EmbeddingResult,
  PassthroughCall,
  PassthroughResponse,
  ProviderCall,
  ProviderResponse,
  StoredResponseCall,
} from '../core/ports.ts'
import { redactSecrets, upstreamError } from '../upstream/attempts.ts'
import type { ResponseHeader, StreamedBody } from './http-call.ts'
import {
  bodyText,
  checkAccepted,
  isEncoded,
  type LoadedUpstream,
  readResponse,
  request,
  type RequestCall,
  throwRejection,
  type EndpointUrl,
  type LoadedTarget,
  urlFor,
  write,
  type OutgoingRequest,
  type JsonResponse,
  readJson,
} from './http-request.ts'
import { PacedStream } from './paced-stream.ts'
import { replaceModel } from '../formats/replace-model.ts'

const STREAM_TYPE = 'text/event-stream'

const EVENT_STREAM: StreamedBody = {
  accept: STREAM_TYPE,
  isStream: (status, header) => {
    const type = header('content-type') ?? ''
    return status === 200 && type.trim().toLowerCase().startsWith(STREAM_TYPE) && !isEncoded(header)
  },
  pace: (connection) => new PacedStream(connection),
}

/** The body of a passthrough response, of any type. */
const ANY_BODY: StreamedBody = {
  accept: '*/*',
  isStream: (status: number, header: ResponseHeader) => status >= 200 && status < 300 && !isEncoded(header),
  pace: EVENT_STREAM.pace,
}

export async function stream(target: LoadedTarget, call: ProviderCall): Promise<ProviderResponse<ResponseSource>> {
  const { body, ignored } = await write(target, call)
  call.onIgnored?.(ignored)
  const url = urlFor(target.create, call, true)
  const format = redactingFormat(target)
  const response = await request(target, call, { method: 'POST', url, body, streamed: EVENT_STREAM, format })
  if (response.status >= 400) return throwRejection(target, call, response)
  checkAccepted(target, call, response)
  if ('source' in response) return { response: response.source, ignored }
  throw upstreamError(target.name, 'did not answer with an event stream, although the request asked for one')
}

export async function storedResponse(target: LoadedTarget, call: StoredResponseCall, url: string): Promise<string> {
  const { method, path } = call
  const { text } = await fetchJson(target, call, { method, url: `${url}${path}` })
  return text
}

export async function passThrough(
  target: LoadedTarget,
  call: PassthroughCall,
  base: string,
): Promise<PassthroughResponse> {
  const { path, ...outgoing } = call
  const response = await request(target, call, { ...outgoing, url: `${base}${path}`, streamed: ANY_BODY })
  if ('source' in response) return response
  if (response.status >= 400) return throwRejection(target, call, response)
  checkAccepted(target, call, response)
  throw upstreamError(target.name, `answered with status ${response.status}`)
}

export async function embedTexts(
  target: LoadedTarget,
  call: EmbedCall,
  endpoint: EndpointUrl,
): Promise<EmbeddingResult> {
  const { readEmbeddings } = await import('../formats/embeddings.ts')
  const { native, received, inputs } = call.request
  const { id } = call.model
  const body = received === undefined ? JSON.stringify({ ...native, model: id }) : replaceModel(received, id)
  const { value } = await fetchJson(target, call, { method: 'POST', url: urlFor(endpoint, call), body })
  return readResponse(target, () => readEmbeddings(value, inputs.length))
}

/** Vendors reject these fields in a token-count request. */
const UNCOUNTED_FIELDS = 'max_tokens temperature top_p top_k stop_sequences stream metadata service_tier'.split(' ')

export async function countTokens(target: LoadedTarget, call: ProviderCall, url: string): Promise<number> {
  const { body } = await write(target, call)
  const fields = parseObject(bodyText(body)) ?? {}
  const counted = Object.fromEntries(Object.entries(fields).filter(([field]) => !UNCOUNTED_FIELDS.includes(field)))
  const { value } = await fetchJson(target, call, { method: 'POST', url, body: JSON.stringify(counted) })
  const tokens = asCount(value['input_tokens'])
  if (tokens === undefined) throw upstreamError(target.name, 'returned no token count')
  return tokens
}

export async function checkAvailable(target: LoadedTarget, call: RequestCall, url: string): Promise<void> {
  const { status } = await request(target, call, { method: 'GET', url })
  if (status >= 500) throw upstreamError(target.name, `answered with status ${status}`)
}

function redactingFormat({ format, secrets }: LoadedUpstream): StreamFormat {
  const { dialect, canForward } = format
  const createReader = (): StreamReader => {
    const readEvent = format.createReader()
    const read = (event: SseEvent): StreamChunk => {
      try {
        return readEvent(event)
      } catch (error) {
        throw GatewayError.is(error) ? redactSecrets(error, secrets?.() ?? []) : error
      }
    }
    return Object.assign(read, { isComplete: () => readEvent.isComplete?.() === true })
  }
  return { dialect, createReader, ...(canForward !== undefined && { canForward }) }
}

async function fetchJson(
  upstream: LoadedUpstream,
  call: RequestCall,
  outgoing: OutgoingRequest,
): Promise<JsonResponse> {
  const response = await request(upstream, call, outgoing)
  if (response.status >= 400) return throwRejection(upstream, call, response)
  return readJson(upstream, call, response)
}
