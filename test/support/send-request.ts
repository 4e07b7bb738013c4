import { request, type IncomingHttpHeaders } from 'node:http'
import { connect } from 'node:net'
import { expect } from 'vitest'
import type { JsonObject } from '../../src/core/json.ts'
import { CHAT_MODEL, MESSAGE_MODEL, type Stage } from './stage.ts'

/** An endpoint of the gateway, with a valid request body. */
export interface Endpoint {
  readonly name: string
  readonly path: string
  readonly model: string
  readonly body: JsonObject
}

const question = { messages: [{ role: 'user', content: 'Hello?' }], max_tokens: 20 }

export const CHAT: Endpoint = {
  name: 'chat',
  path: '/v1/chat/completions',
  model: CHAT_MODEL,
  body: { model: CHAT_MODEL, ...question },
}

export const MESSAGE: Endpoint = {
  name: 'message',
  path: '/v1/messages',
  model: MESSAGE_MODEL,
  body: { model: MESSAGE_MODEL, ...question },
}

export const ENDPOINTS: readonly Endpoint[] = [CHAT, MESSAGE]

/** Both endpoints, each with an upstream of either format. */
export const FORMAT_PAIRS: readonly Endpoint[] = ENDPOINTS.flatMap((endpoint) =>
  ENDPOINTS.map((other) => ({
    ...endpoint,
    name: `${endpoint.name} endpoint, ${other.name} upstream`,
    model: other.model,
    body: { ...endpoint.body, model: other.model },
  })),
)

/** The responses endpoint with an upstream of either format. */
export const RESPONSES_FORMAT_PAIRS: readonly Endpoint[] = ENDPOINTS.map(({ name, model }) => ({
  name: `responses endpoint, ${name} upstream`,
  path: '/v1/responses',
  model,
  body: { model, input: 'Hello?', max_output_tokens: 20 },
}))

export interface SendOptions {
  /** @default '/v1/chat/completions' */
  readonly path?: string
  /** @default POST */
  readonly method?: string
  /** Added to content-type; `undefined` omits a header. */
  readonly headers?: Readonly<Record<string, string | readonly string[] | undefined>>
  /** `null` sends no key. @default the key of the stage */
  readonly secret?: string | null
  readonly signal?: AbortSignal
}

export interface Reply {
  readonly status: number
  readonly headers: IncomingHttpHeaders
  readonly text: string
  /** The parsed body, or an empty object if it is not a JSON object. */
  readonly body: JsonObject
  readonly error: { readonly [field: string]: unknown }
}

/** An object is sent as JSON, a string or bytes unchanged. */
export type RequestBody = JsonObject | string | Uint8Array

/** Sends a request with `node:http`, which allows headers that `fetch` forbids. Rejects when the connection breaks. */
export function sendRequest(
  stage: Pick<Stage, 'url' | 'secret'>,
  body: RequestBody | undefined,
  options: SendOptions = {},
): Promise<Reply> {
  const { path = CHAT.path, method = 'POST', secret = stage.secret, signal } = options
  const given = { 'content-type': 'application/json', ...options.headers }
  const headers: Record<string, string | string[]> = secret === null ? {} : { authorization: `Bearer ${secret}` }
  for (const [name, value] of Object.entries(given)) {
    if (value !== undefined) headers[name] = typeof value === 'string' ? value : [...value]
  }
  const bytes = body === undefined ? undefined : encodeBody(body)
  if (bytes !== undefined && headers['transfer-encoding'] === undefined)
    headers['content-length'] = String(bytes.length)
  return new Promise((resolve, reject) => {
    const { hostname, port } = new URL(stage.url)
    const outgoing = request({ hostname, port, path, method, headers, signal }, (incoming) => {
      const pieces: Buffer[] = []
      incoming.on('data', (piece: Buffer) => pieces.push(piece))
      incoming.on('error', reject)
      incoming.on('end', () => {
        const text = Buffer.concat(pieces).toString('utf8')
        const parsed = parse(text)
        const error = (parsed['error'] ?? {}) as Reply['error']
        resolve({ status: incoming.statusCode ?? 0, headers: incoming.headers, text, body: parsed, error })
      })
    })
    outgoing.on('error', reject)
    outgoing.end(bytes)
  })
}

/** Returns the authorization header of the stage's key as a line of a raw request. */
export function authorizationLine(stage: Pick<Stage, 'secret'>): string {
  return `authorization: Bearer ${stage.secret}\r\n`
}

/**
 * Writes bytes to a socket, and resolves with all received text when the connection closes. The client closes it as soon
 * as `isComplete` returns true. Functions among the pieces are called and awaited between the writes.
 */
export function sendRawBytes(
  stage: Pick<Stage, 'url'>,
  pieces: readonly (string | Uint8Array | (() => unknown))[],
  isComplete: (text: string) => boolean = () => false,
): Promise<string> {
  const { hostname, port } = new URL(stage.url)
  return new Promise((resolve, reject) => {
    let text = ''
    const socket = connect({ host: hostname, port: Number(port) }, () => void send().catch(reject))
    const send = async (): Promise<void> => {
      for (const piece of pieces) {
        if (typeof piece === 'function') await piece()
        else if (!socket.destroyed) socket.write(piece)
      }
    }
    socket.on('data', (bytes: Buffer) => {
      text += bytes.toString('latin1')
      if (isComplete(text)) socket.destroy()
    })
    socket.on('error', () => {})
    socket.on('close', () => resolve(text))
  })
}

/** Returns the status of each response in the text of a connection. */
export function parseStatuses(text: string): readonly number[] {
  return [...text.matchAll(/HTTP\/1\.1 (\d{3}) /g)].map((match) => Number(match[1]))
}

/** Checks the status, headers and fields that every error response of the gateway has. */
export function expectErrorResponse(
  reply: Reply,
  expected: { readonly status: number; readonly type: string; readonly code?: string; readonly param?: string },
): void {
  expect({ status: reply.status, type: reply.error['type'] }, reply.text.slice(0, 300)).toEqual({
    status: expected.status,
    type: expected.type,
  })
  expect(reply.headers['content-type']).toBe('application/json')
  expect(reply.headers['x-request-id']).toMatch(/^req_[0-9a-f]{32}$/)
  expect(reply.headers['request-id']).toBe(reply.headers['x-request-id'])
  expect(reply.headers['x-ratelimit-limit']).toMatch(/^\d+$/)
  expect(String(reply.error['message']).length).toBeGreaterThan(10)
  expect(reply.text.length).toBeLessThan(2000)
  if (expected.code !== undefined && !('request_id' in reply.body)) expect(reply.error['code']).toBe(expected.code)
  if (expected.param !== undefined && !('request_id' in reply.body)) expect(reply.error['param']).toBe(expected.param)
}

/** Returns the name and the data of each event of a stream, parsed if it is a JSON object. */
export function parseEvents(
  text: string,
): readonly { readonly event: string | undefined; readonly data: JsonObject | string }[] {
  return text
    .split('\n\n')
    .filter((block) => block.includes('data:'))
    .map((block) => {
      const lines = block.split('\n')
      const data = lines
        .filter((line) => line.startsWith('data:'))
        .map((line) => line.slice('data:'.length).trimStart())
        .join('\n')
      const event = lines.find((line) => line.startsWith('event: '))?.slice(7)
      return { event, data: data.startsWith('{') ? (JSON.parse(data) as JsonObject) : data }
    })
}

/** Returns the text of a streamed response of either endpoint. */
export function streamedText(text: string): string {
  return parseEvents(text)
    .map(({ data }) => {
      if (typeof data === 'string') return ''
      const choice = (data['choices'] as { delta?: { content?: string } }[] | undefined)?.[0]
      const delta = data['delta'] as { text?: string } | undefined
      return choice?.delta?.content ?? delta?.text ?? ''
    })
    .join('')
}

/** Returns the text of a whole response of either endpoint. */
export function responseText(reply: Reply): string | null | undefined {
  const choices = reply.body['choices'] as { message?: { content?: string | null } }[] | undefined
  const content = reply.body['content'] as { text?: string }[] | undefined
  return choices === undefined ? content?.map((block) => block.text ?? '').join('') : choices[0]?.message?.content
}

function encodeBody(body: RequestBody): Uint8Array {
  if (body instanceof Uint8Array) return body
  return Buffer.from(typeof body === 'string' ? body : JSON.stringify(body))
}

function parse(text: string): JsonObject {
  try {
    const value: unknown = JSON.parse(text)
    return typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as JsonObject) : {}
  } catch {
    return {}
  }
}
