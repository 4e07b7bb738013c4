import { expect } from 'vitest'
import type { Stage } from './stage.ts'

/** Bodies of event streams as texts, and single events of them. */
export interface StreamReader {
  readonly response: Response
  /** Resolves with what came by then, as soon as there are `count` events or the stream has ended. */
  readEvents(count: number): Promise<string>
  /** All that comes until the end. */
  readToEnd(): Promise<string>
  cancel(): Promise<void>
}

/** One call in this process, with the stage's own key. */
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

/** The reader of a body that must be there. */
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

/** Each event as it stood on the wire, comments and heartbeats without an id left out. */
export function splitEvents(text: string): readonly string[] {
  return text
    .split('\n\n')
    .filter((event) => event !== '' && /^id: /m.test(event))
    .map((event) => `${event}\n\n`)
}

/** The ids of a stream are 1, 2, 3 and so on. */
export function expectConsecutiveIds(text: string, from = 1): void {
  const ids = [...text.matchAll(/^id: (.*)$/gm)].map((match) => Number(match[1]))
  expect(ids).toEqual(ids.map((_, index) => from + index))
}

/** The id of the message that a stream begins. */
export function messageIdOf(text: string): string {
  return /"id":"([^"]+)"/.exec(text)?.[1] ?? ''
}
