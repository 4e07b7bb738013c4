import { expect, it } from 'vitest'
import type { ResponseSource, SourceReceiver } from '../../src/core/completion.ts'
import { GatewayError } from '../../src/core/errors.ts'
import { chatClient } from '../../src/formats/chat/client.ts'
import { replayAsStream } from '../../src/kernel/stream-response.ts'
import type { UpstreamStream } from '../../src/upstream/upstream-stream.ts'
import { collectUnhandledRejections } from '../support/unhandled-rejections.ts'

const ignore = (): void => {}

function createReplay(read: ResponseSource['read']): UpstreamStream {
  const source: ResponseSource = { read, pause: ignore, resume: ignore, complete: ignore, abort: ignore }
  const requestBody = { model: 'a/b', messages: [{ role: 'user', content: 'Hello' }] }
  const prompt = chatClient.readPrompt(requestBody)
  const planned = { format: chatClient, prompt, requestBody, id: 'req_1', startedAt: 0 }
  return replayAsStream(source, planned, { runtime: { after: () => ignore, now: () => 0 } })
}

/** Replays a followed stream, and returns the errors that its listener receives. */
function replay(read: ResponseSource['read']): readonly unknown[] {
  const errors: unknown[] = []
  const stream = createReplay(read)
  stream.attach({ onChunk: ignore, onComplete: ignore, onError: (error) => errors.push(error) })
  return errors
}

it('a followed stream that fails before its first event reports the error to its listener only', async () => {
  const failure = new GatewayError('too-large', 'The recording is full.')
  let errors: readonly unknown[] = []
  const rejections = await collectUnhandledRejections(() => {
    errors = replay((receiver) => receiver.onError(failure))
  })

  expect(errors).toEqual([failure])
  expect(rejections).toEqual([])
})

it('a followed stream that fails before its first content, after a listener is attached, reports the error to it', () => {
  const receivers: SourceReceiver[] = []
  const errors = replay((receiver) => void receivers.push(receiver))
  receivers[0]?.onError('failure')

  expect(errors).toEqual(['failure'])
})

it('a followed stream without an answer fails with an error that names no provider', () => {
  const errors = replay((receiver) => receiver.onChunk({ parts: [{ type: 'done' }] }))

  expect(errors).toMatchObject([
    { kind: 'upstream', message: 'The stored or shared answer is incomplete. Send the request again.' },
  ])
})

it('a stream that was aborted reports a disconnect to a late observer, and no end to a late listener', () => {
  const stream = createReplay(ignore)
  const calls: string[] = []
  stream.abort()
  stream.observeEnd({
    onComplete: () => calls.push('complete'),
    onError: () => calls.push('error'),
    onDisconnect: () => calls.push('disconnect'),
  })
  stream.attach({ onChunk: ignore, onComplete: () => calls.push('end'), onError: () => calls.push('failure') })

  expect(calls).toEqual(['disconnect'])
})
