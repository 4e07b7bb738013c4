/** Asks the application who makes a request. Loaded with the first request through an adapter with the option `context`. */
import { withTimeout } from '../core/async.ts'
import { GatewayError } from '../core/errors.ts'
import type { CallerContext } from '../governance/caller.ts'
import { errorCodeOf } from '../core/logged-cause.ts'
import { redactText } from '../formats/redact-text.ts'
import { readContext } from '../governance/context.ts'
import type { FindContext } from './call.ts'
import type { Services } from './services.ts'

const TIMEOUT_MS = 10_000
const MAX_MESSAGE_LENGTH = 300

/** Throws `unauthenticated` without the cause. */
export async function findContext(
  find: FindContext,
  { runtime, log }: Pick<Services, 'runtime' | 'log'>,
  requestId: string,
): Promise<CallerContext | undefined> {
  try {
    const createError = (): Error => new Error(`The option context returned nothing within ${TIMEOUT_MS} ms.`)
    const asked = (async () => find())()
    const context = await withTimeout(asked, { ms: TIMEOUT_MS, after: runtime.after, createError })
    return context === undefined ? undefined : readContext(context, 'The option context')
  } catch (cause) {
    log.failure('the caller of a request was not identified', readCause(cause), { request_id: requestId })
    throw new GatewayError(
      'unauthenticated',
      'The caller of this request could not be identified. Log in again, or ask the operator of the gateway.',
    )
  }
}

/** The fields of an error may have any type, or throw when they are read. */
function readCause(cause: unknown): unknown {
  try {
    return withoutSecrets(cause)
  } catch {
    return undefined
  }
}

/** Messages of databases and login services often contain addresses with passwords, and tokens. */
function withoutSecrets(cause: unknown): unknown {
  if (!(cause instanceof Error)) return undefined
  const { name, stack = '' } = cause
  const message = redactText(cause.message.slice(0, MAX_MESSAGE_LENGTH))
  const frames = stack.split('\n').filter((line) => /^\s+at /.test(line))
  const code = errorCodeOf(cause)
  return Object.assign(new Error(message), {
    name,
    stack: [`${name}: ${message}`, ...frames].join('\n'),
    ...(code !== undefined && { code }),
  })
}
