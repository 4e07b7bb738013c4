/**
 * The functions of a test runner that the contract suites call. Those of vitest, Jest and `bun:test` fit. They are
 * passed in, so that this package depends on no test runner.
 */
export interface TestApi {
  readonly describe: (title: string, body: () => void) => unknown
  readonly it: (title: string, body: () => void | Promise<void>) => unknown
  readonly beforeEach: (body: () => void | Promise<void>) => unknown
  readonly afterEach: (body: () => void | Promise<void>) => unknown
  readonly expect: (value: unknown) => Expectation
}

/** The result of `expect(value)` of the test runner. */
export interface Expectation extends Matchers<unknown> {
  readonly resolves: Matchers<Promise<unknown>>
  readonly rejects: Matchers<Promise<unknown>>
}

/** The matchers of the test runner that the tests use. */
export interface Matchers<result> {
  toBe(expected: unknown): result
  toEqual(expected: unknown): result
  toMatchObject(expected: object): result
  toHaveLength(length: number): result
  toBeUndefined(): result
  toBeGreaterThan(least: number): result
  toBeLessThan(most: number): result
  toBeLessThanOrEqual(most: number): result
  toBeCloseTo(expected: number, digits?: number): result
  toThrow(): result
  readonly not: Pick<Matchers<result>, 'toBe'>
}

/** The clock that the implementation under test must use. */
export interface TestClock {
  /** Milliseconds since 1970. */
  readonly now: () => number
  readonly advance: (ms: number) => void
}
