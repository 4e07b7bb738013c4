import { vi } from 'vitest'

/** Only ends a wait that would never end. A slow machine must not reach it. */
const DEADLINE_MS = 50_000

/** Resolves with the first truthy result of the condition. */
export function waitUntil<Result>(
  condition: () => Result | Promise<Result>,
  timeout: number = DEADLINE_MS,
): ReturnType<typeof vi.waitUntil<Result>> {
  return vi.waitUntil(condition, { timeout, interval: 20 })
}

/** Resolves when the assertions hold. */
export function waitFor<Result>(assertions: () => Result | Promise<Result>): Promise<Result> {
  return vi.waitFor(assertions, { timeout: DEADLINE_MS, interval: 20 })
}
