import { Cancellation } from '../../src/core/cancellation.ts'
import { noNetwork } from '../support/no-network.ts'
import { describe, expect, it } from 'vitest'
import { createSingleFlight, type FlightRole, type Leader } from '../../src/cache/single-flight.ts'
import { manualRuntime } from '../support/manual-runtime.ts'

type Role = FlightRole<string, string>

async function leaderOf(role: Role | Promise<Role>): Promise<Leader<string, string>> {
  const taken = await role
  if (taken.role !== 'leader') throw new Error(`this role is ${taken.role}`)
  return taken
}

/** Returns the role, or `waiting`. */
async function stateOf(role: Role | Promise<Role>): Promise<string> {
  const pending = Promise.resolve()
    .then(() => Promise.resolve())
    .then(() => 'waiting')
  return Promise.race([
    Promise.resolve(role).then(
      (taken) => taken.role,
      () => 'left',
    ),
    pending,
  ])
}

describe('single flight', () => {
  it('makes the first request of a key the leader and gives the others its value', async () => {
    const flights = createSingleFlight<string, string>()
    const first = await leaderOf(flights.join('k'))
    const others = [flights.join('k'), flights.join('k')]

    expect(await Promise.all(others.map(stateOf))).toEqual(['waiting', 'waiting'])

    first.complete({ shared: 'answer' })

    expect(await Promise.all(others)).toEqual([
      { role: 'follower', value: 'answer', parts: 0 },
      { role: 'follower', value: 'answer', parts: 0 },
    ])
    expect(flights.size).toBe(0)
  })

  it('keys do not wait for each other', async () => {
    const flights = createSingleFlight<string, string>()

    expect([await stateOf(flights.join('a')), await stateOf(flights.join('b'))]).toEqual(['leader', 'leader'])
  })

  it('lets the follower that waits longest lead when the leader cannot finish', async () => {
    const flights = createSingleFlight<string, string>()
    const first = await leaderOf(flights.join('k'))
    const [second, third] = [flights.join('k'), flights.join('k')]
    first.complete('handed-over')
    const next = await leaderOf(second)

    expect(await stateOf(third)).toBe('waiting')

    next.complete({ shared: 'answer' })

    expect(await third).toEqual({ role: 'follower', value: 'answer', parts: 0 })
  })

  it('lets every follower do its own work when nothing can be shared', async () => {
    const flights = createSingleFlight<string, string>()
    const first = await leaderOf(flights.join('k'))
    const others = [flights.join('k'), flights.join('k')]
    first.complete('not-shared')

    expect(await Promise.all(others)).toEqual([{ role: 'alone' }, { role: 'alone' }])
    expect(await stateOf(flights.join('k'))).toBe('leader')
  })

  it('a follower that leaves has no effect on the others', async () => {
    const flights = createSingleFlight<string, string>()
    const leaving = new AbortController()
    const first = await leaderOf(flights.join('k'))
    const left = flights.join('k', { cancellation: Cancellation.of(leaving.signal) })
    const stays = flights.join('k')
    leaving.abort(new Error('gone'))

    await expect(left).rejects.toThrow('gone')

    first.complete('handed-over')

    expect(await stateOf(stays)).toBe('leader')
  })

  it('a request whose caller has left already does not join', () => {
    const flights = createSingleFlight<string, string>()

    expect(() => flights.join('k', { cancellation: Cancellation.of(AbortSignal.abort(new Error('gone'))) })).toThrow(
      'gone',
    )
    expect(flights.size).toBe(0)
  })

  it('counts only the first completion', async () => {
    const flights = createSingleFlight<string, string>()
    const first = await leaderOf(flights.join('k'))
    first.complete('handed-over')
    const second = await leaderOf(flights.join('k'))
    const third = flights.join('k')
    first.complete('not-shared')

    expect(await stateOf(third)).toBe('waiting')

    second.complete({ shared: 'answer' })

    expect(await third).toEqual({ role: 'follower', value: 'answer', parts: 0 })
  })

  it('bounds the followers of a key; further requests do their own work', async () => {
    const flights = createSingleFlight<string, string>({ maxFollowers: 1 })
    await flights.join('k')
    const waiting = flights.join('k')

    expect(await stateOf(flights.join('k'))).toBe('alone')
    expect(await stateOf(waiting)).toBe('waiting')
  })

  it('a follower whose wait is over does its own work and leaves no timer behind', async () => {
    const runtime = manualRuntime(noNetwork)
    const flights = createSingleFlight<string, string>({ timeout: { ms: 1000, after: runtime.after } })
    const first = await leaderOf(flights.join('k'))
    const impatient = flights.join('k')
    runtime.advance(999)

    expect(await stateOf(impatient)).toBe('waiting')

    runtime.advance(1)

    expect(await impatient).toEqual({ role: 'alone' })

    const leaving = new AbortController()
    const [left, served] = [flights.join('k', { cancellation: Cancellation.of(leaving.signal) }), flights.join('k')]
    leaving.abort(new Error('gone'))
    first.complete({ shared: 'answer' })

    await expect(left).rejects.toThrow('gone')
    expect(await served).toEqual({ role: 'follower', value: 'answer', parts: 0 })
    expect(runtime.pending()).toBe(0)
  })

  it('returns the leader without a promise', () => {
    const flights = createSingleFlight<string, string>()

    expect(flights.join('k')).toMatchObject({ role: 'leader' })
  })

  it('passes the parts of a stream to its followers as they come, the earlier ones to a late follower', async () => {
    const flights = createSingleFlight<string, string>()
    const first = await leaderOf(flights.join('k'))
    const [early, late]: [string[], string[]] = [[], []]
    const second = flights.join('k', { onPart: (part) => early.push(part) })
    const whole = flights.join('k')
    first.publish('a')
    const third = flights.join('k', { onPart: (part) => late.push(part) })

    expect([early, late]).toEqual([['a'], ['a']])

    first.publish('b')
    first.complete({ shared: 'ab' })

    expect([early, late]).toEqual([
      ['a', 'b'],
      ['a', 'b'],
    ])
    expect(await Promise.all([second, third, whole])).toEqual([
      { role: 'follower', value: 'ab', parts: 2 },
      { role: 'follower', value: 'ab', parts: 2 },
      { role: 'follower', value: 'ab', parts: 0 },
    ])
  })

  it.each(['handed-over', 'not-shared'] as const)(
    'breaks only the followers with parts when the leader ends with %s',
    async (end) => {
      const flights = createSingleFlight<string, string>()
      const first = await leaderOf(flights.join('k'))
      const started = flights.join('k', { onPart: () => {} })
      const whole = flights.join('k')
      first.publish('a')

      expect(first.hasFollowers()).toBe(true)

      first.complete(end)

      expect(await started).toEqual({ role: 'broken' })
      expect(await stateOf(whole)).toBe(end === 'handed-over' ? 'leader' : 'alone')
      expect(first.hasFollowers()).toBe(false)
    },
  )

  it('a new leader publishes from the beginning', async () => {
    const flights = createSingleFlight<string, string>()
    const first = await leaderOf(flights.join('k'))
    const waiting = flights.join('k')
    first.publish('lost')
    first.complete('handed-over')
    const second = await leaderOf(waiting)
    const parts: string[] = []
    void flights.join('k', { onPart: (part) => parts.push(part) })
    second.publish('a')

    expect(parts).toEqual(['a'])
  })

  it('keeps a bounded number of parts; a later follower waits for the whole answer', async () => {
    const flights = createSingleFlight<string, string>({ maxParts: 2 })
    const first = await leaderOf(flights.join('k'))
    for (const part of ['a', 'b', 'c']) first.publish(part)
    const parts: string[] = []
    const late = flights.join('k', { onPart: (part) => parts.push(part) })
    first.publish('d')
    first.complete({ shared: 'abcd' })

    expect(parts).toEqual([])
    expect(await late).toEqual({ role: 'follower', value: 'abcd', parts: 0 })
  })

  it('a follower that cannot take a part does not stop the leader', async () => {
    const flights = createSingleFlight<string, string>()
    const first = await leaderOf(flights.join('k'))
    const closed = flights.join('k', {
      onPart: () => {
        throw new Error('closed')
      },
    })
    first.publish('a')

    expect(await closed).toEqual({ role: 'broken' })
  })

  it('a follower that receives parts has no timeout', async () => {
    const runtime = manualRuntime(noNetwork)
    const flights = createSingleFlight<string, string>({ timeout: { ms: 1000, after: runtime.after } })
    const first = await leaderOf(flights.join('k'))
    const follower = flights.join('k', { onPart: () => {} })
    first.publish('a')
    runtime.advance(2000)
    first.complete({ shared: 'a' })

    expect(await follower).toEqual({ role: 'follower', value: 'a', parts: 1 })
  })
})
