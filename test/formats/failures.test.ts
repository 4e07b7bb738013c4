import { describe, expect, it } from 'vitest'
import { GatewayError, type FailureDetails, type FailureKind } from '../../src/core/errors.ts'
import { failureStatus } from '../../src/core/errors.ts'
import { describeFailure, failureHeaders } from '../../src/formats/failures.ts'
import { readFailure } from '../../src/formats/read-failure.ts'

const failure = (kind: FailureKind, details: FailureDetails = {}): GatewayError =>
  new GatewayError(kind, 'It failed', details)

describe('the table of failures', () => {
  it.each([
    ['invalid-request', 400, 'invalid_request_error', undefined],
    ['invalid-admin-request', 400, 'validation_error', undefined],
    ['invalid-model', 404, 'invalid_request_error', 'invalid_model'],
    ['unauthenticated', 401, 'authentication_error', 'invalid_api_key'],
    ['budget-exceeded', 402, 'budget_exceeded_error', 'budget_exceeded'],
    ['model-not-allowed', 403, 'permission_error', 'model_not_allowed'],
    ['tools-disabled', 403, 'permission_error', 'tools_disabled'],
    ['max-tokens-exceeded', 403, 'permission_error', 'max_tokens_exceeded'],
    ['not-found', 404, 'invalid_request_error', undefined],
    ['method-not-allowed', 405, 'invalid_request_error', undefined],
    ['request-timeout', 408, 'invalid_request_error', 'request_timeout'],
    ['conflict', 409, 'invalid_request_error', undefined],
    ['too-large', 413, 'invalid_request_error', 'request_too_large'],
    ['upgrade-required', 426, 'invalid_request_error', 'websocket_not_supported'],
    ['unsupported-media', 415, 'invalid_request_error', undefined],
    ['rate-limited', 429, 'rate_limit_error', 'rate_limit_exceeded'],
    ['internal', 500, 'api_error', undefined],
    ['upstream', 502, 'upstream_error', undefined],
    ['upstream-rate-limited', 429, 'rate_limit_error', 'upstream_rate_limited'],
    ['upstream-timeout', 504, 'upstream_error', 'upstream_timeout'],
    ['overloaded', 503, 'overloaded_error', undefined],
  ] as const)('maps %s to status %i, type %s and code %s', (kind, status, type, code) => {
    const description = describeFailure(failure(kind))
    expect([description.status, description.type, description.code]).toEqual([status, type, code])
    expect(failureStatus(failure(kind))).toBe(status)
  })

  it('sets param to model for an unknown model', () => {
    expect(describeFailure(failure('invalid-model')).param).toBe('model')
  })

  it('rounds the delay before a retry up to whole seconds', () => {
    expect(describeFailure(failure('overloaded', { retryAfterSeconds: 1.2 })).retryAfterSeconds).toBe(2)
    expect(describeFailure(failure('overloaded')).retryAfterSeconds).toBeUndefined()
  })

  it('keeps the type and code of an upstream that rejected the request', () => {
    const upstream = { status: 422, type: 'their_type', code: 'their_code', details: { field: 1 } }
    const description = describeFailure(failure('upstream-rejected', { upstream, param: 'messages' }))
    expect(description).toEqual({ message: 'It failed', param: 'messages', ...upstream })
    expect(failureStatus(failure('upstream-rejected', { upstream }))).toBe(422)
  })
})

describe('the headers of a failure', () => {
  it.each([
    ['a wait of our own', failure('rate-limited', { retryAfterSeconds: 7 }), { 'retry-after': '7' }],
    [
      'a long wait',
      failure('rate-limited', { retryAfterSeconds: 61 }),
      { 'retry-after': '61', 'x-should-retry': 'false' },
    ],
    ['a wait of a minute', failure('rate-limited', { retryAfterSeconds: 60 }), { 'retry-after': '60' }],
    ['a spent budget', failure('budget-exceeded'), { 'x-should-retry': 'false' }],
    [
      "an upstream's advice",
      failure('upstream-rate-limited', {
        advice: { retryAfter: '3', retryAfterMs: '2500', shouldRetry: 'true' },
        retryAfterSeconds: 9,
      }),
      { 'retry-after': '3', 'retry-after-ms': '2500', 'x-should-retry': 'true' },
    ],
    ['a wait of an upstream whose status is not passed on', failure('upstream', { advice: { retryAfter: '3' } }), {}],
    [
      "an upstream's advice against another try, whose status is not passed on",
      failure('upstream', { advice: { shouldRetry: 'false' } }),
      { 'x-should-retry': 'false' },
    ],
    [
      "an upstream's advice for another try after a timeout",
      failure('upstream-timeout', { advice: { shouldRetry: 'true' } }),
      { 'x-should-retry': 'true' },
    ],
    [
      "an upstream's date",
      failure('overloaded', { advice: { retryAfter: 'Wed, 21 Oct 2026 07:28:00 GMT' } }),
      { 'retry-after': 'Wed, 21 Oct 2026 07:28:00 GMT' },
    ],
    [
      'advice that is none, but may be a secret',
      failure('overloaded', { advice: { retryAfter: 'some-key', retryAfterMs: 'some-key', shouldRetry: 'some-key' } }),
      {},
    ],
    ['advice that is no header', failure('overloaded', { advice: { retryAfter: '3\r\nset-cookie: a=b' } }), {}],
    ['a wrong method', failure('method-not-allowed', { allow: ['GET', 'POST'] }), { allow: 'GET, POST' }],
    ['a WebSocket', failure('upgrade-required'), { upgrade: 'HTTP/1.1', connection: 'Upgrade' }],
    ['a bad request', failure('invalid-request'), {}],
  ])('for %s', (_name, thrown, headers) => {
    expect(failureHeaders(thrown)).toEqual(headers)
  })
})

describe('an upstream', () => {
  it.each([
    [400, 'upstream-rejected'],
    [404, 'upstream-rejected'],
    [409, 'upstream-rejected'],
    [413, 'upstream-rejected'],
    [422, 'upstream-rejected'],
    [401, 'upstream'],
    [402, 'upstream'],
    [403, 'upstream'],
    [405, 'upstream'],
    [408, 'upstream-timeout'],
    [429, 'upstream-rate-limited'],
    [500, 'upstream'],
    [502, 'upstream'],
    [503, 'overloaded'],
    [504, 'upstream-timeout'],
    [529, 'overloaded'],
    [999, 'upstream'],
  ] as const)('status %i is mapped to %s', (status, kind) => {
    expect(readFailure(status, undefined).kind).toBe(kind)
  })

  it.each([401, 402, 403, 405, 408])('status %i is not a fault of the upstream', (status) => {
    expect(readFailure(status, undefined).details.isLocalFault).toBe(true)
  })

  it.each([401, 402, 403])('status %i must not be retried', (status) => {
    expect(readFailure(status, undefined).details.advice).toEqual({ shouldRetry: 'false' })
  })
})
