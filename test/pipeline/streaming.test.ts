import { expect, it } from 'vitest'
import type { AnswerSource } from '../../src/core/answer.ts'
import { GatewayError } from '../../src/core/errors.ts'
import { chatClient } from '../../src/formats/chat/client.ts'
import { replayAsStream } from '../../src/pipeline/streaming.ts'

it('a followed stream that fails before its first event reports the error to its listener only', async () => {
  const failure = new GatewayError('too-large', 'The recording is full.')
  const ignore = (): void => {}
  const source: AnswerSource = {
    read: (receiver) => receiver.onError(failure),
    pause: ignore,
    resume: ignore,
    complete: ignore,
    abort: ignore,
  }
  const requestBody = { model: 'a/b', messages: [{ role: 'user', content: 'Hello' }] }
  const planned = {
    format: chatClient,
    prompt: chatClient.readPrompt(requestBody),
    requestBody,
    id: 'req_1',
    startedAt: 0,
  }
  const rejections: unknown[] = []
  const collect = (reason: unknown): void => void rejections.push(reason)
  const listeners = process.listeners('unhandledRejection')
  process.removeAllListeners('unhandledRejection').on('unhandledRejection', collect)
  const errors: unknown[] = []

  const stream = replayAsStream(source, planned, { runtime: { after: () => ignore } })
  stream.attach({ onChunk: ignore, onComplete: ignore, onError: (error) => errors.push(error) })
  await new Promise((resolve) => setImmediate(resolve))
  process.removeAllListeners('unhandledRejection')
  for (const listener of listeners) process.on('unhandledRejection', listener)

  expect(errors).toEqual([failure])
  expect(rejections).toEqual([])
})

it('a followed stream that fails before its first content, after a listener is attached, reports the error to it', () => {
  const ignore = (): void => {}
  let fail: (error: unknown) => void = ignore
  const source: AnswerSource = {
    read: (receiver) => {
      fail = (error) => receiver.onError(error)
    },
    pause: ignore,
    resume: ignore,
    complete: ignore,
    abort: ignore,
  }
  const requestBody = { model: 'a/b', messages: [{ role: 'user', content: 'Hello' }] }
  const prompt = chatClient.readPrompt(requestBody)
  const planned = { format: chatClient, prompt, requestBody, id: 'req_1', startedAt: 0 }
  const errors: unknown[] = []

  const stream = replayAsStream(source, planned, { runtime: { after: () => ignore } })
  stream.attach({ onChunk: ignore, onComplete: ignore, onError: (error) => errors.push(error) })
  fail('failure')

  expect(errors).toEqual(['failure'])
})
