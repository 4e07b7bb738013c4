import { GatewayError, type FailureDetails } from '../core/errors.ts'
import { formatUsd, nano } from '../core/money.ts'
import type { DurationCode } from '../core/period.ts'
import type { Limit } from './limits-in-force.ts'
import type { RateStatus } from './reservation.ts'

const WINDOW: Readonly<Record<DurationCode, string>> = {
  '1m': 'minute',
  '1h': 'hour',
  '1d': 'day',
  '1w': 'week',
  '1M': 'month',
}

/** The error of the limit that refused. It names the limit, never the usage of others. */
export function refusal(
  limit: Limit,
  request: { readonly rate: RateStatus; readonly now: number; readonly tokens: number },
): GatewayError {
  const again = new Date(limit.period.end).toISOString()
  const window = WINDOW[limit.every]
  const { rate } = request
  if (limit.kind === 'budget') {
    return new GatewayError(
      'budget-exceeded',
      `${limit.label} is reached: the rest of ${formatUsd(nano(limit.max))} per ${window} does not cover this request. Lower max_tokens, retry after ${again}, or raise the limit.`,
      { rate },
    )
  }
  const details: FailureDetails = {
    code: 'rate_limit_exceeded',
    retryAfterSeconds: Math.max(1, Math.ceil((limit.period.end - request.now) / 1000)),
    rate,
    ...(isHopeless(limit, request.tokens) && { advice: { shouldRetry: 'false' } }),
  }
  if (limit.kind === 'requests') {
    return new GatewayError(
      'rate-limited',
      `${limit.label} is reached: ${limit.max} requests per ${window}. Retry after ${again}.`,
      details,
    )
  }
  const advice = request.tokens > limit.max ? 'Send a shorter prompt.' : `Retry after ${again}.`
  return new GatewayError(
    'rate-limited',
    `${limit.label} is reached: the rest of ${limit.max} tokens per ${window} does not cover the ${request.tokens} tokens of this prompt. ${advice}`,
    details,
  )
}

/** A prompt that is larger than the whole limit is refused in every window, and so is everything by a limit of 0. */
function isHopeless(limit: Limit, tokens: number): boolean {
  return limit.max === 0 || (limit.kind === 'tokens' && tokens > limit.max)
}
