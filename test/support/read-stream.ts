import { expect } from 'vitest'
import type { Stage } from './stage.ts'

/** Reads the body of an event stream as text. */
export interface StreamReader {
  readonly response: Response
  /** Resolves with the text received so far when it has `count` events or the stream ends. */
  readEvents(count: number): Promise<string>
  /** Resolves with the whole text at the end of the stream. */
  readToEnd(): Promise<string>
  cancel(): Promise<void>
}

/** Posts a request to `gateway.fetch`, with the key of the stage by default. */
export function post(
  stage: Pick<Stage, 'gateway' | 'secret'>,
  path: string,
  options: {
    readonly body?: object
    readonly headers?: Readonly<Record<string, string>>
    readonly signal?: AbortSignal
    readonly secret?: string
  } = {},
): Promise<Response> {
  const { body, headers, signal = null, secret = stage.secret } = options
  const given = { 'x-api-key': secret, ...(body !== undefined && { 'content-type': 'application/json' }), ...headers }
  const init = { method: 'POST', headers: given, signal, ...(body !== undefined && { body: JSON.stringify(body) }) }
  return stage.gateway.fetch(new Request(`http://gateway${path}`, init))
}

/** Returns the reader of a body. Throws if the response has none. */
export function getReader({ body }: Response): ReadableStreamDefaultReader<Uint8Array> {
  if (body === null) throw new Error('the response has no body')
  return body.getReader()
}

export function readStream(response: Response): StreamReader {
  const reader = getReader(response)
  const decoder = new TextDecoder()
  let text = ''
  const readMore = async (): Promise<boolean> => {
    const { value, done } = await reader.read()
    if (value !== undefined) text += decoder.decode(value, { stream: true })
    return !done
  }
  return {
    response,
    readEvents: async (count) => {
      while (splitEvents(text).length < count && (await readMore()));
      return text
    },
    readToEnd: async () => {
      while (await readMore());
      return text
    },
    cancel: () => reader.cancel(),
  }
}

/** Returns the text of each event that has an id; comments and heartbeats have none. */
export function splitEvents(text: string): readonly string[] {
  return text
    .split('\n\n')
    .filter((event) => event !== '' && /^id: /m.test(event))
    .map((event) => `${event}\n\n`)
}

/** Checks that the event ids of a stream are consecutive. */
export function expectConsecutiveIds(text: string, from = 1): void {
  const ids = [...text.matchAll(/^id: (.*)$/gm)].map((match) => Number(match[1]))
  expect(ids).toEqual(ids.map((_, index) => from + index))
}

/** Returns the id of the streamed message. */
export function messageIdOf(text: string): string {
  return /"id":"([^"]+)"/.exec(text)?.[1] ?? ''
}
