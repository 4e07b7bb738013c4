/** The error of a refused request. Loaded with the first one. */
import { type FailureDetails, GatewayError } from '../core/errors.ts'
import type { Json } from '../core/json.ts'
import { formatUsd, toNanoUsd } from '../core/money.ts'
import type { DurationCode } from '../core/store.ts'
import { windowName } from './levels.ts'
import type { Limit, LimitLevelName, LimitWindow, RateStatus } from './limits.ts'

const WINDOW_NAMES: Readonly<Record<DurationCode, string>> = {
  '1m': 'minute',
  '1h': 'hour',
  '1d': 'day',
  '1w': 'week',
  '1M': 'month',
}

const ROLLING_NAMES: Readonly<Record<DurationCode, string>> = {
  '1m': 'within 60 seconds',
  '1h': 'within 60 minutes',
  '1d': 'within 24 hours',
  '1w': 'within 7 days',
  '1M': 'within 30 days',
}

function windowText(window: LimitWindow): string {
  if (window.type === 'idle') return 'per session'
  return window.type === 'rolling' ? ROLLING_NAMES[window.every] : `per ${WINDOW_NAMES[window.every]}`
}

interface LimitErrorContext {
  readonly rate: RateStatus
  readonly now: number
  readonly tokens: number
  /** False if `tokens` is an upper bound, and the prompt may fit in a later window. @default true */
  readonly isCounted?: boolean
}

/** The message does not contain the amount used, because other keys may share the limit. */
export function limitError(limit: Limit, context: LimitErrorContext): GatewayError {
  const { kind, level, label, max } = limit
  const { rate } = context
  if (kind !== 'budget') return rateError(limit, context)
  const of = level === 'parent' ? 'the limit' : formatUsd(toNanoUsd(max))
  const message = `${label} is exceeded: this request could cost more than the amount that remains of ${of} ${windowText(limit.window)}.`
  return new GatewayError('budget-exceeded', `${message} ${budgetRemedy(limit)}`, { rate, details: detailsOf(limit) })
}

/** For programs. Without amounts, like the message. */
function detailsOf({ kind, level, window, period }: Limit): Json {
  const resets_at = window.type === 'idle' ? null : new Date(period.end).toISOString()
  return { limit: { level, kind, window: windowName(window), resets_at } }
}

function budgetRemedy({ level, max, window, period }: Limit): string {
  if (max === 0) return zeroRemedy(level)
  if (window.type === 'idle') return `Lower max_tokens, start a new session, or raise the limit.`
  return `Lower max_tokens, retry after ${new Date(period.end).toISOString()}, or raise the limit.`
}

function zeroRemedy(level: LimitLevelName): string {
  return level === 'key' || level === 'shared'
    ? 'Raise the limit, or assign another limit to the key.'
    : 'Raise the limit.'
}

function rateError(limit: Limit, { rate, now, tokens, isCounted = true }: LimitErrorContext): GatewayError {
  const { kind, level, label, max, window, period } = limit
  const isTooLarge = kind === 'tokens' && isCounted && tokens > max
  const isSession = window.type === 'idle'
  const details: FailureDetails = {
    code: 'rate_limit_exceeded',
    // A later window would reject the request as well.
    ...(max === 0 || isTooLarge || isSession ? { advice: { shouldRetry: 'false' } } : {}),
    ...(!isSession && { retryAfterSeconds: Math.max(1, Math.ceil((period.end - now) / 1000)) }),
    rate,
    details: detailsOf(limit),
  }
  const of = level === 'parent' ? 'limit' : `${max}`
  const requests = limit.isPerTurn === true ? `${max} requests with the same last turn` : `${of} requests`
  const text = kind === 'requests' ? requests : `this prompt has up to ${tokens} tokens, more than remain of the ${of}`
  return new GatewayError(
    'rate-limited',
    `${label} is reached: ${text} ${windowText(window)}. ${rateRemedy(limit, isTooLarge)}`,
    details,
  )
}

function rateRemedy({ level, max, isPerTurn, window, period }: Limit, isTooLarge: boolean): string {
  if (max === 0) return zeroRemedy(level)
  if (isTooLarge) return 'Send a shorter prompt.'
  if (isPerTurn === true) return 'Stop the loop, or change what is sent.'
  if (window.type === 'idle') return 'Start a new session, or raise the limit.'
  return `Retry after ${new Date(period.end).toISOString()}.`
}
