import { setImmediate as nextTurn } from 'node:timers/promises'
import { describe, expect, it } from 'vitest'
import type { TransportHandler } from '../../src/core/ports.ts'
import { Cancellation } from '../../src/core/async.ts'
import { PacedStream } from '../../src/providers/paced-stream.ts'
import { sendRequest } from '../../src/providers/http-call.ts'
import { manualRuntime } from '../support/manual-runtime.ts'
import { timeouts } from '../support/provider-call.ts'

interface Opened {
  readonly handler: TransportHandler
  /** The chunks that the receiver got. */
  readonly received: Uint8Array[]
  readonly isPaused: () => boolean
}

/** A stream whose transport is driven by the test. */
async function openStream(): Promise<Opened> {
  let handler: TransportHandler | undefined
  let isPaused = false
  const transport = (_request: unknown, given: TransportHandler) => {
    handler = given
    return { pause: () => void (isPaused = true), resume: () => void (isPaused = false), abort: () => {} }
  }
  const runtime = manualRuntime(transport)
  const opening = sendRequest(
    { url: 'http://upstream/', method: 'POST', headers: {} },
    {
      provider: 'tiny',
      transport,
      runtime,
      timeouts,
      connectMs: 1000,
      cancellation: new Cancellation(),
      maxBytes: () => 1000,
      format: undefined,
      streamed: { accept: '*/*', isStream: () => true, pace: (connection) => new PacedStream(connection) },
    },
  )
  if (handler === undefined) throw new Error('The transport was not called.')
  handler.onHead(200, () => undefined)
  const response = await opening
  if (!('source' in response)) throw new Error('The response is not a stream.')
  const received: Uint8Array[] = []
  response.source.read({ onBytes: (bytes) => void received.push(bytes), onChunk() {}, onEnd() {}, onError() {} })
  return { handler, received, isPaused: () => isPaused }
}

const encoder = new TextEncoder()

describe('a streamed response', () => {
  it('forwards the chunks of one turn of the event loop as one chunk', async () => {
    const { handler, received } = await openStream()
    for (const text of ['one ', 'two ', 'three']) handler.onData(encoder.encode(text))
    await nextTurn()
    handler.onData(encoder.encode(' four'))
    await nextTurn()

    expect(received.map((bytes) => new TextDecoder().decode(bytes))).toEqual(['one two three', ' four'])
  })

  it('forwards the chunks that arrived before the end of the response', async () => {
    const { handler, received } = await openStream()
    handler.onData(encoder.encode('last'))
    handler.onEnd()
    await nextTurn()

    expect(received).toHaveLength(1)
  })

  it('pauses the upstream when more than one portion is pending', async () => {
    const { handler, isPaused } = await openStream()
    const chunk = new Uint8Array(8 * 1024)
    let written = 0
    while (!isPaused() && written < 100) {
      handler.onData(chunk)
      written++
    }

    expect(written).toBe(2)
  })

  it('forwards all bytes in order when a portion ends inside a chunk', async () => {
    const { handler, received } = await openStream()
    const sent = Array.from({ length: 7 }, (_, index) => new Uint8Array(5000).fill(index))
    for (const chunk of sent) handler.onData(chunk)
    for (let turn = 0; turn < 20; turn++) await nextTurn()

    expect(Buffer.concat(received).equals(Buffer.concat(sent))).toBe(true)
  })
})
