/** Calls single hooks of plugins: their deadlines, failures and reports. */
import { isThenable, type MaybePromise, withTimeout } from '../../core/async.ts'
import { failureStatus, GatewayError } from '../../core/errors.ts'
import type { Plugin } from '../../kernel/plugin.ts'
import type { Exchange } from '../../kernel/exchange.ts'
import type { Services } from '../../kernel/services.ts'
import { canceledError } from '../../kernel/failures.ts'

const DEFAULT_TIMEOUT_MS = 1_000

interface HookCall<Returned, Result> {
  readonly plugin: Plugin
  readonly hook: keyof Plugin
  readonly call: () => MaybePromise<Returned | void>
  /** Throws if the hook returned an invalid value. */
  readonly check: (returned: Returned) => MaybePromise<Result>
}

/** Resolves with undefined if the hook returned nothing, or if it failed and its failures are skipped. */
export async function callHook<Returned, Result>(
  { plugin, hook, call, check }: HookCall<Returned, Result>,
  { cancellation }: Pick<Exchange, 'cancellation'>,
  { runtime, log }: Pick<Services, 'runtime' | 'log'>,
): Promise<Result | undefined> {
  try {
    const pending = call()
    const ms = plugin.timeoutMs ?? DEFAULT_TIMEOUT_MS
    const createError = (): Error => new Error(`${hook} did not return within ${ms} ms.`)
    const returned = isThenable(pending)
      ? await withTimeout(pending, { ms, after: runtime.after, createError, cancellation })
      : pending
    return isReturned(returned) ? await checkReturned(returned, check) : undefined
  } catch (cause) {
    if (cancellation.isCanceled) throw canceledError(cause)
    const failure = failureOf({ plugin, hook, cause })
    if (failure !== undefined) throw failure
    reportHookFailure({ plugin, hook, cause }, log, runtime)
    return undefined
  }
}

function isReturned<Returned>(returned: Returned | void): returned is Returned {
  return returned !== undefined && returned !== null
}

/** An error of the check is not a rejection by the plugin, even if it is a GatewayError. */
async function checkReturned<Returned, Result>(
  returned: Returned,
  check: (returned: Returned) => MaybePromise<Result>,
): Promise<Result> {
  try {
    return await check(returned)
  } catch (cause) {
    throw new Error(`The returned value is invalid. ${cause instanceof Error ? cause.message : ''}`, { cause })
  }
}

interface HookFailure {
  readonly plugin: Plugin
  readonly hook: keyof Plugin
  readonly cause: unknown
}

/** Returns undefined if the request continues without the hook. */
export function failureOf({ plugin, hook, cause }: HookFailure): GatewayError | undefined {
  if (isRejection(cause)) return cause
  if (plugin.onFailure === 'skip') return undefined
  return new GatewayError(
    'internal',
    `The plugin ${plugin.name} failed in ${hook}. Retry, and report the request id if the retry fails too.`,
    { cause },
  )
}

/** Failures of upstreams that the plugin calls itself are not rejections. */
function isRejection(cause: unknown): cause is GatewayError {
  if (!GatewayError.is(cause) || cause.kind === 'cancelled' || cause.kind.startsWith('upstream')) return false
  const status = failureStatus(cause)
  return status >= 400 && status < 500
}

const REPORT_INTERVAL_MS = 60_000
const reports = new WeakMap<Plugin, { count: number; reportedAt: number }>()

/** Logs the failures of a plugin at most once per minute, with the number of failures since the last record. */
export function reportHookFailure(
  { plugin, hook, cause }: HookFailure,
  log: Pick<Services['log'], 'failure'>,
  { now }: Pick<Services['runtime'], 'now'>,
): void {
  const report = reports.get(plugin) ?? { count: 0, reportedAt: -Infinity }
  reports.set(plugin, report)
  report.count++
  const time = now()
  if (time - report.reportedAt < REPORT_INTERVAL_MS && time >= report.reportedAt) return
  log.failure('a plugin failed', cause, { plugin: plugin.name, hook, failures: report.count })
  report.count = 0
  report.reportedAt = time
}
