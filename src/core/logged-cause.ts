import { GatewayError } from './errors.ts'

/** A thrown value, as it appears in the log. */
export interface LoggedCause {
  readonly name: string
  readonly message: string
  readonly stack?: string
  /** Code of the error or of its cause, such as `ECONNREFUSED`. */
  readonly code?: string
}

const MAX_MESSAGE_LENGTH = 300
const MAX_STACK_LENGTH = 4_000
const MAX_CAUSE_DEPTH = 8

/** An internal error with a cause is replaced by the cause, because its own message contains no details. */
export function describeCause(thrown: unknown): LoggedCause {
  let cause = thrown
  for (let depth = 0; depth < MAX_CAUSE_DEPTH && isInternal(cause) && cause.cause !== undefined; depth += 1) {
    cause = cause.cause
  }
  if (typeof cause === 'string') return { name: 'string', message: cause.slice(0, MAX_MESSAGE_LENGTH) }
  if (!(cause instanceof Error)) return { name: typeof cause, message: 'A value that is not an Error was thrown.' }
  const { name, message, stack = '' } = cause
  const code = errorCodeOf(cause)
  return {
    name,
    message: message.slice(0, MAX_MESSAGE_LENGTH),
    stack: stack.slice(0, MAX_STACK_LENGTH),
    ...(code !== undefined && { code }),
  }
}

function isInternal(cause: unknown): cause is GatewayError {
  return GatewayError.is(cause) && cause.kind === 'internal'
}

/** Such as ECONNREFUSED, UND_ERR_SOCKET, or ConnectionRefused in Bun. */
const ERROR_CODE = /^[A-Za-z]\w{2,63}$/

/** Returns the code of the error or of the first error in its causes that has one. */
export function errorCodeOf(error: unknown, depth = 0): string | undefined {
  if (typeof error !== 'object' || error === null || depth === MAX_CAUSE_DEPTH) return undefined
  if ('code' in error && typeof error.code === 'string' && ERROR_CODE.test(error.code)) return error.code
  const nested = error instanceof AggregateError ? error.errors : []
  for (const inner of [...nested.slice(0, MAX_CAUSE_DEPTH), 'cause' in error ? error.cause : undefined]) {
    const code = errorCodeOf(inner, depth + 1)
    if (code !== undefined) return code
  }
  return undefined
}
