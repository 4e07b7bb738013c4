import type { StreamFormat } from '../core/completion.ts'
import { Cancellation, withTimeout, type MaybePromise } from '../core/async.ts'
import { GatewayError, withoutRetries } from '../core/errors.ts'
import { asArray, asObject, isTooDeep, type JsonObject, parseJson, parseObject } from '../core/json.ts'
import type { ProviderCall, Runtime, Transport, TransportRequest, Model, UpstreamCaller } from '../core/ports.ts'
import type { UpstreamFormat, WrittenPrompt } from '../formats/format.ts'
import { upstreamError, timeoutError, redactSecrets } from '../upstream/attempts.ts'
import {
  sendRequest,
  type ResponseHeader,
  type StreamedBody,
  type StreamResponse,
  type CompleteResponse,
} from './http-call.ts'

/** Returns the request with credentials. */
export type SignRequest = (request: TransportRequest, caller?: UpstreamCaller) => MaybePromise<TransportRequest>

export interface RequestOptions {
  readonly name: string
  /** Names are in lowercase. */
  readonly headers: Readonly<Record<string, string>>
  readonly forwardedHeaders?: readonly string[] | undefined
  readonly sign?: SignRequest | undefined
  readonly secrets?: () => readonly string[]
  readonly transport?: Transport
}

export interface LoadedUpstream extends RequestOptions {
  readonly format: UpstreamFormat
}

export interface RequestCall
  extends
    Pick<ProviderCall, 'signal' | 'timeouts'>,
    Partial<Pick<ProviderCall, 'headers' | 'cancellation' | 'onAccepted' | 'caller'>> {
  readonly runtime: Pick<Runtime, 'now' | 'after' | 'transport'>
}

export interface OutgoingRequest {
  readonly method: TransportRequest['method']
  readonly url: string
  readonly body?: string | Uint8Array
  readonly contentType?: string
  readonly streamed?: StreamedBody
  readonly format?: StreamFormat
}

type UpstreamResponse = CompleteResponse | StreamResponse

const MAX_RESPONSE_BYTES = 32 * 1024 * 1024
const MAX_ERROR_BYTES = 64 * 1024

const JSON_TYPE = 'application/json'

export function request(
  upstream: RequestOptions,
  call: RequestCall,
  outgoing: OutgoingRequest,
): Promise<UpstreamResponse> {
  const { runtime, timeouts } = call
  const { name, sign } = upstream
  const { method, url, body, streamed, format } = outgoing
  const connectMs = Math.min(timeouts.connectMs, timeouts.totalMs)
  const headers = headersFor(upstream, call, outgoing)
  const unsignedRequest =
    body === undefined ? { method, url, headers, connectMs } : { method, url, headers, body, connectMs }
  const send = (signed: TransportRequest): Promise<UpstreamResponse> =>
    sendRequest(signed, {
      provider: name,
      transport: upstream.transport ?? runtime.transport,
      runtime,
      timeouts,
      connectMs,
      cancellation: call.cancellation ?? Cancellation.of(call.signal),
      maxBytes,
      streamed,
      format,
    })
  return sign === undefined
    ? send(unsignedRequest)
    : callWithDeadline(name, call, async () => sign(unsignedRequest, call.caller)).then(send)
}

function headersFor(
  { headers, forwardedHeaders = [] }: RequestOptions,
  call: RequestCall,
  { streamed, contentType = JSON_TYPE }: OutgoingRequest,
): Record<string, string> {
  const accept = streamed?.accept ?? JSON_TYPE
  // A spread after other fields is several times slower.
  const requestHeaders: Record<string, string> = Object.assign(
    { 'content-type': contentType, accept, 'accept-encoding': 'identity' },
    headers,
  )
  for (const name of forwardedHeaders) {
    const value = call.headers?.[name]
    if (value !== undefined) requestHeaders[name] = value
  }
  return requestHeaders
}

export function bodyText(body: string | Uint8Array = ''): string {
  return typeof body === 'string' ? body : new TextDecoder().decode(body)
}

function maxBytes(status: number): number {
  return status === 200 ? MAX_RESPONSE_BYTES : MAX_ERROR_BYTES
}

export function isEncoded(header: ResponseHeader): boolean {
  const encoding = header('content-encoding')?.trim().toLowerCase()
  return encoding !== undefined && encoding !== '' && encoding !== 'identity'
}

export interface JsonResponse {
  readonly text: string
  readonly value: JsonObject
}

export function readJson(upstream: RequestOptions, call: RequestCall, response: UpstreamResponse): JsonResponse {
  const { name } = upstream
  checkAccepted(upstream, call, response)
  const text = 'text' in response ? response.text : undefined
  if (text === undefined) throw withoutRetries(upstreamError(name, 'sent a response larger than 32 MiB'))
  const value = parseObject(text)
  if (value === undefined)
    throw isTooDeep(text) ? tooDeepError(name) : upstreamError(name, 'sent a response that is not a JSON object')
  return { text, value }
}

/** A caller can request a tool input that is nested too deeply. */
function tooDeepError(provider: string): GatewayError {
  const message = `The provider "${provider}" sent a response that is nested more than 128 levels deep. Request a flatter response.`
  return withoutRetries(new GatewayError('upstream', message, { isLocalFault: true }))
}

export function checkAccepted({ name }: RequestOptions, call: RequestCall, { status, header }: UpstreamResponse): void {
  if (status !== 200) {
    const isRedirect = status >= 300 && status < 400 && status !== 304
    throw upstreamError(
      name,
      isRedirect ? 'answered with a redirect, which is not followed' : `answered with status ${status}`,
    )
  }
  call.onAccepted?.()
  if (isEncoded(header)) throw upstreamError(name, 'sent a compressed answer, which the gateway did not accept')
}

export async function throwRejection(
  upstream: LoadedUpstream,
  { runtime }: RequestCall,
  response: UpstreamResponse,
): Promise<never> {
  const { name, format } = upstream
  const { status, header } = response
  if (status >= 600) throw upstreamError(name, `answered with status ${status}`)
  const { addRetryAdvice } = await import('./retry.ts')
  const text = 'text' in response ? response.text : undefined
  return readResponse(upstream, () => {
    throw addRetryAdvice(format.readFailure(status, parseErrorBody(text ?? '')), header, runtime.now())
  })
}

/** Some endpoints of Google send the error in an array. */
function parseErrorBody(text: string): JsonObject | undefined {
  const isArray = text.trimStart().startsWith('[') && !isTooDeep(text)
  return isArray ? asObject(asArray(parseJson(text))[0]) : parseObject(text)
}

export function readResponse<T>({ name, secrets }: RequestOptions, read: () => T): T {
  try {
    return read()
  } catch (error) {
    if (GatewayError.is(error)) throw redactSecrets(error, secrets?.() ?? [])
    throw upstreamError(name, 'sent a response that cannot be read', error)
  }
}

export function callWithDeadline<T>(
  name: string,
  call: RequestCall,
  start: () => Promise<T>,
  discard?: (value: T) => void,
): Promise<T> {
  const cancellation = call.cancellation ?? Cancellation.of(call.signal)
  if (cancellation.isCanceled) return Promise.reject(cancellation.reason)
  const { runtime, timeouts } = call
  const ms = timeouts.totalMs
  const createError = (): GatewayError => timeoutError(name, ms)
  return withTimeout(start(), { ms, after: runtime.after, createError, cancellation }, discard)
}

/** The function receives a percent-encoded id. */
export type EndpointUrl = string | ((modelId: string, isStream: boolean) => string)

export interface LoadedTarget extends LoadedUpstream {
  readonly create: EndpointUrl
}

/** The messages that are written at once. More are written in steps, so that other requests run between them. */
export const MAX_UNPAUSED_MESSAGES = 256

export async function write({ format }: LoadedTarget, { prompt, model }: ProviderCall): Promise<WrittenPrompt> {
  if (prompt.messages.length <= MAX_UNPAUSED_MESSAGES) return format.writePrompt(prompt, model.id)
  const { writeInSteps } = await import('./write-in-steps.ts')
  return writeInSteps(format, prompt, model.id)
}

export function urlFor(endpoint: EndpointUrl, { model }: { readonly model: Model }, isStream = false): string {
  return typeof endpoint === 'string' ? endpoint : endpoint(encodeURIComponent(model.id), isStream)
}
