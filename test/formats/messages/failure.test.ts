import { describe, expect, it } from 'vitest'
import { GatewayError, type FailureKind } from '../../../src/core/errors.ts'
import type { JsonObject } from '../../../src/core/json.ts'
import { messagesFormat } from '../../support/two-way-formats.ts'

const { readFailure, writeFailure, writeFailureEvent: writeFailureFrame } = messagesFormat

describe('writing a failure', () => {
  it('has the shape that clients of the format parse', () => {
    const failure = new GatewayError('invalid-request', 'max_tokens is missing.', { param: 'max_tokens' })
    expect(writeFailure(failure, 'req_1')).toEqual({
      type: 'error',
      error: { type: 'invalid_request_error', message: 'max_tokens is missing.', param: 'max_tokens' },
      request_id: 'req_1',
    })
  })

  it('contains the code, the retry delay and the details', () => {
    const failure = new GatewayError('rate-limited', 'Wait.', { retryAfterSeconds: 7, details: { error_code: 'x' } })
    expect(writeFailure(failure, 'req_1')['error']).toEqual({
      type: 'rate_limit_error',
      message: 'Wait.',
      code: 'rate_limit_exceeded',
      retry_after: 7,
      details: { error_code: 'x' },
    })
  })

  it('ends a stream with an event named error', () => {
    const event = writeFailureFrame(new GatewayError('overloaded', 'Later.'), 'req_1')
    expect(event.event).toBe('error')
    expect(JSON.parse(event.data)).toEqual({
      type: 'error',
      error: { type: 'overloaded_error', message: 'Later.' },
      request_id: 'req_1',
    })
  })
})

describe('reading the error of an upstream', () => {
  const body = (error: JsonObject): JsonObject => ({ type: 'error', error, request_id: 'req_upstream' })

  it("keeps the upstream's message about the caller's request", () => {
    const details = { error_code: 'thread_unsupported_request', at: 3 }
    const failure = readFailure(422, body({ type: 'odd_error', message: 'tools: too many', details }))
    expect(failure).toMatchObject({
      kind: 'upstream-rejected',
      message: 'tools: too many',
      details: { upstream: { status: 422, type: 'odd_error', details } },
    })
    expect(writeFailure(failure, 'req_1')).toMatchObject({ error: { type: 'odd_error', details }, request_id: 'req_1' })
  })

  it.each<[number, FailureKind]>([
    [400, 'upstream-rejected'],
    [404, 'upstream-rejected'],
    [409, 'upstream-rejected'],
    [413, 'upstream-rejected'],
    [401, 'upstream'],
    [403, 'upstream'],
    [402, 'upstream'],
    [429, 'upstream-rate-limited'],
    [503, 'overloaded'],
    [529, 'overloaded'],
    [408, 'upstream-timeout'],
    [504, 'upstream-timeout'],
    [500, 'upstream'],
    [302, 'upstream'],
    [999, 'upstream'],
  ])('maps status %i to %s, with and without a body', (status, kind) => {
    expect(readFailure(status, undefined).kind).toBe(kind)
    expect(readFailure(status, body({ type: 'x', message: 'y' })).kind).toBe(kind)
    expect(readFailure(status, { error: 'text' }).message).not.toBe('')
    expect(readFailure(status, { error: null, detail: [] }).kind).toBe(kind)
  })

  it("omits the upstream's messages about server failures and the gateway's credentials", () => {
    for (const status of [401, 403, 429, 500, 503, 504]) {
      const failure = readFailure(
        status,
        body({ type: 'x', message: 'key sk-ant-secret-1 at 10.0.0.1', details: { a: 'b' } }),
      )
      expect(JSON.stringify(writeFailure(failure, 'r'))).not.toMatch(/secret|10\.0\.0\.1|"b"/)
    }
  })

  it('removes keys and internal addresses from messages', () => {
    const failure = readFailure(
      400,
      body({ type: 'x', message: 'sk-ant-secret-1 refused', details: { at: 'http://localhost:9/x', error_code: 'y' } }),
    )
    const said = JSON.stringify(writeFailure(failure, 'r'))
    expect(said).not.toMatch(/secret|localhost/)
    expect(said).toContain('"error_code":"y"')
  })

  it('omits oversized details', () => {
    const failure = readFailure(400, body({ type: 'x', message: 'm', details: { long: 'a'.repeat(5000) } }))
    expect(failure.details.upstream).toEqual({ status: 400, type: 'x' })
  })
})
