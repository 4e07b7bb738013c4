import { describe, expect, it } from 'vitest'
import { GatewayError } from '../../../src/core/errors.ts'
import type { JsonObject } from '../../../src/core/json.ts'
import { chatClient } from '../../../src/formats/chat/client.ts'
import { chatUpstream } from '../../../src/formats/chat/upstream.ts'

describe('a failure in the chat format', () => {
  it('has message, type, param and code', () => {
    const failure = new GatewayError('invalid-request', 'model is missing', { param: 'model' })
    expect(chatClient.writeFailure(failure, 'r1')).toEqual({
      error: { message: 'model is missing', type: 'invalid_request_error', param: 'model', code: null },
    })
  })

  it('has the delay in whole seconds', () => {
    const failure = new GatewayError('rate-limited', 'Too many', { retryAfterSeconds: 1.2 })
    expect(chatClient.writeFailure(failure, 'r1')).toEqual({
      error: {
        message: 'Too many',
        type: 'rate_limit_error',
        param: null,
        code: 'rate_limit_exceeded',
        retry_after: 2,
      },
    })
  })

  it('is the same object in a stream', () => {
    const failure = new GatewayError('upstream', 'It broke')
    const event = chatClient.writeFailureEvent(failure, 'r1')
    expect(event.event).toBeUndefined()
    expect(JSON.parse(event.data)).toEqual({
      error: { message: 'It broke', type: 'upstream_error', param: null, code: null },
    })
  })
})

describe("an upstream's error", () => {
  const writeError = (status: number, body: JsonObject | undefined): JsonObject =>
    chatClient.writeFailure(chatUpstream.readFailure(status, body), 'r1')

  it('keeps its message when the request caused it', () => {
    const error = {
      message: 'Too long',
      type: 'invalid_request_error',
      param: 'messages',
      code: 'context_length_exceeded',
      details: { max: 1 },
    }
    const failure = chatUpstream.readFailure(400, { error })
    expect(failure.kind).toBe('upstream-rejected')
    expect(failure.details.upstream?.status).toBe(400)
    expect(chatClient.writeFailure(failure, 'r1')).toEqual({ error })
  })

  it('contains the tool call that could not be parsed', () => {
    const error = { message: 'Failed to call a function.', type: 'invalid_request_error', code: 'tool_use_failed' }
    const failed_generation = `look {"at": "${'sky '.repeat(2000)}"}`
    const written = writeError(400, { error: { ...error, failed_generation } })
    expect(written).toMatchObject({
      error: { ...error, details: { failed_generation: expect.stringContaining('look {"at": "sky sky') } },
    })
  })

  it.each<[string, JsonObject | undefined, string]>([
    ['a text', { error: 'bad thing' }, 'bad thing'],
    ['the body itself', { object: 'error', message: 'bad thing', code: 400 }, 'bad thing'],
    ['a detail', { detail: 'bad thing' }, 'bad thing'],
    ['a list of details', { detail: [{ msg: 'bad' }] }, '[{"msg":"bad"}]'],
    ['no JSON', undefined, 'The model provider rejected the request (status 422).'],
    ['an object without a message', { error: {} }, 'The model provider rejected the request (status 422).'],
  ])('is found in %s', (_name, body, message) => {
    expect(writeError(422, body)).toMatchObject({ error: { message, type: 'invalid_request_error', code: null } })
  })

  it.each([
    [401, 'upstream'],
    [403, 'upstream'],
    [429, 'upstream-rate-limited'],
    [500, 'upstream'],
    [503, 'overloaded'],
    [529, 'overloaded'],
    [408, 'upstream-timeout'],
    [504, 'upstream-timeout'],
    [302, 'upstream'],
    [999, 'upstream'],
  ])('of status %i has the kind %s and contains no text of the body', (status, kind) => {
    const failure = chatUpstream.readFailure(status, { error: { message: 'key sk-secret', type: 'x', code: 'y' } })
    expect(failure.kind).toBe(kind)
    expect(JSON.stringify(chatClient.writeFailure(failure, 'r1'))).not.toMatch(/secret|"x"|"y"/)
  })

  it('omits oversized details', () => {
    const failure = chatUpstream.readFailure(400, { error: { message: 'm', details: 'x'.repeat(5000) } })
    expect(failure.details.upstream?.details).toBeUndefined()
  })
})
