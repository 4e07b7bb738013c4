import type { Claim, Level, LogQuery, ReserveRequest, ReserveResult, Settlement, Store } from '../core/store.ts'

/** The test-runner functions that the contract suites call, for example from vitest, Jest or `bun:test`. */
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

export interface StoreSuite {
  readonly store: Store
  readonly clock: TestClock
  claim(counter: string, amount: number, max: number, overrides?: Partial<Claim>): Claim
  reserve(id: string, claims: readonly Claim[], overrides?: Partial<ReserveRequest>): Promise<ReserveResult>
  settle(id: string, charges?: Readonly<Record<string, number>>, overrides?: Partial<Settlement>): Promise<boolean>
  level(counter: string): Promise<Level | undefined>
}

export function createStoreSuite(make: MakeStore, { afterEach, beforeEach }: TestApi): StoreSuite {
  let time = START_TIME
  let store: Store
  const clock: TestClock = { now: () => time, advance: (ms) => void (time += ms) }
  const expiresAt = START_TIME + 24 * HOUR_MS

  beforeEach(async () => {
    time = START_TIME
    store = await make(clock)
  })
  afterEach(async () => store?.close())

  return {
    get store() {
      return store
    },
    clock,
    claim: (counter, amount, max, overrides = {}) => ({ counter, amount, max, expiresAt, ...overrides }),
    reserve: async (reservationId, claims, overrides = {}) =>
      store.reserve({ reservationId, claims, expiresAfterMs: 600_000, ...overrides }),
    settle: async (reservationId, amounts = {}, overrides = {}) => {
      const charges = Object.entries(amounts).map(([counter, amount]) => ({ counter, amount, expiresAt }))
      return store.settle({ reservationId, charges, tallies: [], ...overrides })
    },
    level: async (counter) => (await store.levels([counter]))[0],
  }
}

export function testLogs(suite: StoreSuite, { describe, expect, it }: TestApi): void {
  const { clock } = suite

  describe('logs', () => {
    it('returns no entries of an unknown log', async () => {
      expect(await suite.store.entries('none', { limit: 10 })).toEqual([])
    })

    it('returns the entries of each log in the order in which they were appended, with ascending cursors', async () => {
      for (let n = 0; n < 25; n += 1) {
        await suite.store.append('a', { at: START_TIME + n, value: `a${n}` })
        await suite.store.append('b', { at: START_TIME + n, value: `b${n}` })
      }
      const entries = await suite.store.entries('a', { limit: 100 })
      expect(entries.map((entry) => entry.value)).toEqual(Array.from({ length: 25 }, (_, n) => `a${n}`))
      expect(entries[3]).toMatchObject({ at: START_TIME + 3 })
      const cursors = entries.map((entry) => entry.cursor)
      expect(cursors.toSorted()).toEqual(cursors)
      expect(new Set(cursors).size).toBe(25)
    })

    it('returns each entry once to a reader that continues after a cursor, including new entries', async () => {
      for (let n = 0; n < 7; n += 1) await suite.store.append('a', { at: START_TIME, value: String(n) })
      const first = await suite.store.entries('a', { limit: 3 })
      await suite.store.append('a', { at: START_TIME, value: '7' })
      const further = await suite.store.entries('a', { after: first.at(-1)?.cursor ?? '', limit: 100 })
      expect([...first, ...further].map((entry) => entry.value)).toEqual(['0', '1', '2', '3', '4', '5', '6', '7'])
    })

    const valuesOf = async (log: string, query: LogQuery) =>
      (await suite.store.entries(log, query)).map((entry) => entry.value)

    it('includes the start of a time range and excludes its end, and applies the limit to matching entries', async () => {
      for (const at of [10, 20, 30, 25, 40]) await suite.store.append('a', { at: START_TIME + at, value: String(at) })
      const query = { from: START_TIME + 20, to: START_TIME + 40 }
      expect(await valuesOf('a', { ...query, limit: 10 })).toEqual(['20', '30', '25'])
      expect(await valuesOf('a', { ...query, limit: 2 })).toEqual(['20', '30'])
    })

    it('expires an entry exactly at its expiry', async () => {
      await suite.store.append('a', { at: START_TIME, value: 'short', ttlMs: 1000 })
      await suite.store.append('a', { at: START_TIME, value: 'long' })
      clock.advance(999)
      expect(await suite.store.entries('a', { limit: 10 })).toHaveLength(2)
      clock.advance(1)
      expect(await valuesOf('a', { limit: 10 })).toEqual(['long'])
    })

    const append = (log: string, value: string, quotaName: string) => {
      const quota = { name: quotaName, maxEntries: 3, maxBytes: 10_000 }
      return suite.store.append(log, { at: START_TIME, value, quota })
    }

    it('drops the oldest entry of a full quota, regardless of its log', async () => {
      for (let n = 0; n < 2; n += 1) await append('own', `b${n}`, 'log:two')
      for (let n = 0; n < 5; n += 1) await append(n % 2 === 0 ? 'all' : 'own', `a${n}`, 'log:one')
      await suite.store.append('all', { at: START_TIME, value: 'free' })
      expect(await valuesOf('all', { limit: 100 })).toEqual(['a2', 'a4', 'free'])
      expect(await valuesOf('own', { limit: 100 })).toEqual(['b0', 'b1', 'a3'])
    })

    it('lets a reader continue after an entry that was dropped', async () => {
      for (let n = 0; n < 3; n += 1) await append('all', `a${n}`, 'log:one')
      const [first] = await suite.store.entries('all', { limit: 1 })
      for (let n = 3; n < 5; n += 1) await append('all', `a${n}`, 'log:one')
      expect(await valuesOf('all', { after: first?.cursor ?? '', limit: 100 })).toEqual(['a2', 'a3', 'a4'])
    })

    for (const text of EDGE_CASE_STRINGS) {
      it(`stores the text ${JSON.stringify(text)} unchanged`, async () => {
        await suite.store.append(`log:${text}`, { at: START_TIME, value: text })
        expect(await valuesOf(`log:${text}`, { limit: 10 })).toEqual([text])
      })
    }
  })
}
