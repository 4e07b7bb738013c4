import type { Claim, Level, ReserveRequest, ReserveResult, Settlement, Store } from '../core/store.ts'

/**
 * The test-runner functions that the contract suites call, for example from vitest, Jest or `bun:test`. They are
 * passed as an argument so that this package does not depend on a test runner.
 */
export interface TestApi {
  readonly describe: (title: string, body: () => void) => unknown
  readonly it: (title: string, body: () => void | Promise<void>) => unknown
  readonly beforeEach: (body: () => void | Promise<void>) => unknown
  readonly afterEach: (body: () => void | Promise<void>) => unknown
  readonly expect: (value: unknown) => Expectation
}

/** The result of the test runner's `expect(value)`. */
export interface Expectation extends Matchers<unknown> {
  readonly resolves: Matchers<Promise<unknown>>
  readonly rejects: Matchers<Promise<unknown>>
}

/** The matchers that the contract suites use. */
export interface Matchers<Result> {
  toBe(expected: unknown): Result
  toEqual(expected: unknown): Result
  toMatchObject(expected: object): Result
  toHaveLength(length: number): Result
  toBeUndefined(): Result
  toBeGreaterThan(expected: number): Result
  toBeLessThan(expected: number): Result
  toBeLessThanOrEqual(expected: number): Result
  toBeCloseTo(expected: number, digits?: number): Result
  toThrow(): Result
  readonly not: Pick<Matchers<Result>, 'toBe'>
}

/** The clock that the implementation under test must use. */
export interface TestClock {
  /** Milliseconds since 1970. */
  readonly now: () => number
  readonly advance: (ms: number) => void
}

export const HOUR_MS = 3_600_000
export const START_TIME: number = Date.UTC(2026, 0, 15, 12)

/** Strings that stores often corrupt. */
export const EDGE_CASE_STRINGS: readonly string[] = [
  '',
  ' ',
  'a\u0000b',
  '\ud800',
  'x\udc00y',
  '😀👩‍👩‍👧',
  '__proto__',
  'constructor',
  "'; DROP TABLE keys; --",
  '%_\\*?[a]',
  '漢\u202e\u2028\r\n',
  '{"a":1}',
  '1',
  'null',
]

/** Creates an empty store that uses the clock. The suite closes it after each test. */
export type MakeStore = (clock: TestClock) => Promise<Store>

/** The store of the current test, and shortcuts to its methods. */
export interface StoreSuite {
  readonly store: Store
  readonly clock: TestClock
  claim(counter: string, amount: number, max: number, overrides?: Partial<Claim>): Claim
  /** The reservation expires after 10 minutes by default. */
  reserve(id: string, claims: readonly Claim[], overrides?: Partial<ReserveRequest>): Promise<ReserveResult>
  settle(id: string, charges?: Readonly<Record<string, number>>, overrides?: Partial<Settlement>): Promise<boolean>
  level(counter: string): Promise<Level | undefined>
}

/** Creates a store before each test in the surrounding `describe`, and closes it afterwards. */
export function createStoreSuite(make: MakeStore, { afterEach, beforeEach }: TestApi): StoreSuite {
  let time = START_TIME
  let store: Store | undefined
  const clock: TestClock = { now: () => time, advance: (ms) => void (time += ms) }
  const current = (): Store => {
    if (store === undefined) throw new Error('The store exists only during a test. Access it inside a test function.')
    return store
  }
  const expiresAt = START_TIME + 24 * HOUR_MS

  beforeEach(async () => {
    time = START_TIME
    store = await make(clock)
  })
  afterEach(async () => {
    await store?.close()
  })

  return {
    get store() {
      return current()
    },
    clock,
    claim: (counter, amount, max, overrides = {}) => ({ counter, amount, max, expiresAt, ...overrides }),
    reserve: async (reservationId, claims, overrides = {}) =>
      current().reserve({ reservationId, claims, expiresAfterMs: 600_000, ...overrides }),
    settle: async (reservationId, amounts = {}, overrides = {}) => {
      const charges = Object.entries(amounts).map(([counter, amount]) => ({ counter, amount, expiresAt }))
      return current().settle({ reservationId, charges, tallies: [], ...overrides })
    },
    level: async (counter) => (await current().levels([counter]))[0],
  }
}
