import { describe, expect, it } from 'vitest'
import { GatewayError, type FailureDetails } from '../../src/core/errors.ts'
import { retryDelayMs } from '../../src/providers/retry.ts'

const wait = (details: FailureDetails, more: { number?: number; isLastCandidate?: boolean } = {}): number | undefined =>
  retryDelayMs({ number: 1, isLastCandidate: true, ...more }, new GatewayError('overloaded', 'x', details), () => 0.5)

describe('the delay before a retry', () => {
  it.each([
    ['no advice', {}, true, 250],
    ['no advice, and another candidate', {}, false, 250],
    ['an advised wait', { retryAfterSeconds: 7 }, true, 7000],
    ['an advised wait shorter than the own', { retryAfterSeconds: 0.1 }, true, 250],
    ['an advised wait, and another candidate', { retryAfterSeconds: 7 }, false, undefined],
    ['the longest advised wait', { retryAfterSeconds: 20 }, true, 20_000],
    ['a longer one', { retryAfterSeconds: 20.001 }, true, undefined],
    ['advice to retry at once', { retryAfterSeconds: 0 }, true, 250],
    ['advice to retry at once, and another candidate', { retryAfterSeconds: 0 }, false, 250],
    ['advice against a retry', { advice: { shouldRetry: 'false' } }, true, undefined],
    ['advice for a retry', { advice: { shouldRetry: 'true' } }, true, 250],
  ] as const)('with %s', (_name, details, isLast, expected) => {
    expect(wait(details, { isLastCandidate: isLast })).toBe(expected)
  })

  it('doubles its maximum with each attempt, up to eight seconds', () => {
    expect([1, 2, 3, 4, 5, 6, 20].map((attempt) => wait({}, { number: attempt }))).toEqual([
      250, 500, 1000, 2000, 4000, 4000, 4000,
    ])
  })

  it.each(['upstream-timeout', 'upstream-rejected', 'invalid-request', 'internal'] as const)(
    'is undefined after %s',
    (kind) => {
      const error = new GatewayError(kind, 'x')
      expect(retryDelayMs({ number: 1, isLastCandidate: true }, error, () => 0.5)).toBeUndefined()
    },
  )

  it('is undefined after an error of the gateway', () => {
    expect(retryDelayMs({ number: 1, isLastCandidate: true }, new TypeError('x'), () => 0.5)).toBeUndefined()
  })
})
