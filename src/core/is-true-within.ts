import { type TimeLimit, withTimeout } from './async.ts'

export async function isTrueWithin(
  timeoutMs: number,
  check: () => boolean | Promise<boolean>,
  { after }: Pick<TimeLimit, 'after'>,
): Promise<boolean> {
  const createError = (): Error => new Error('The check did not end in time.')
  try {
    return (await withTimeout(Promise.resolve(check()), { ms: timeoutMs, after, createError })) === true
  } catch {
    return false
  }
}
