import { Cancellation } from '../../../src/core/async.ts'
import { noNetwork } from '../../support/no-network.ts'
import { describe, expect, it } from 'vitest'
import { createSingleFlight, type FlightRole, type Leader } from '../../../src/plugins/cache/single-flight.ts'
import { manualRuntime } from '../../support/manual-runtime.ts'

type Role = FlightRole<string>

async function leaderOf(role: Role | Promise<Role>): Promise<Leader<string>> {
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
    const flights = createSingleFlight<string>()
    const first = await leaderOf(flights.join('k'))
    const others = [flights.join('k'), flights.join('k')]

    expect(await Promise.all(others.map(stateOf))).toEqual(['waiting', 'waiting'])

    first.complete({ shared: 'answer' })

    expect(await Promise.all(others)).toEqual([
      { role: 'follower', value: 'answer' },
      { role: 'follower', value: 'answer' },
    ])
    expect(flights.join('k')).toMatchObject({ role: 'leader' })
  })

  it('does not delay requests of other keys', async () => {
    const flights = createSingleFlight<string>()

    expect([await stateOf(flights.join('a')), await stateOf(flights.join('b'))]).toEqual(['leader', 'leader'])
  })

  it('makes the longest waiting follower the leader if the leader cannot finish', async () => {
    const flights = createSingleFlight<string>()
    const first = await leaderOf(flights.join('k'))
    const [second, third] = [flights.join('k'), flights.join('k')]
    first.complete('handed-over')
    const next = await leaderOf(second)

    expect(await stateOf(third)).toBe('waiting')

    next.complete({ shared: 'answer' })

    expect(await third).toEqual({ role: 'follower', value: 'answer' })
  })

  it('lets each follower call the upstream if the result cannot be shared', async () => {
    const flights = createSingleFlight<string>()
    const first = await leaderOf(flights.join('k'))
    const others = [flights.join('k'), flights.join('k')]
    first.complete('not-shared')

    expect(await Promise.all(others)).toEqual([{ role: 'alone' }, { role: 'alone' }])
    expect(await stateOf(flights.join('k'))).toBe('leader')
  })

  it('a follower that disconnects has no effect on the others', async () => {
    const flights = createSingleFlight<string>()
    const leaving = new AbortController()
    const first = await leaderOf(flights.join('k'))
    const left = flights.join('k', { cancellation: Cancellation.of(leaving.signal) })
    const stays = flights.join('k')
    leaving.abort(new Error('gone'))

    await expect(left).rejects.toThrow('gone')

    first.complete('handed-over')

    expect(await stateOf(stays)).toBe('leader')
  })

  it('a request whose caller has already disconnected does not join', () => {
    const flights = createSingleFlight<string>()

    expect(() => flights.join('k', { cancellation: Cancellation.of(AbortSignal.abort(new Error('gone'))) })).toThrow(
      'gone',
    )
    expect(flights.join('k')).toMatchObject({ role: 'leader' })
  })

  it('counts only the first completion', async () => {
    const flights = createSingleFlight<string>()
    const first = await leaderOf(flights.join('k'))
    first.complete('handed-over')
    const second = await leaderOf(flights.join('k'))
    const third = flights.join('k')
    first.complete('not-shared')

    expect(await stateOf(third)).toBe('waiting')

    second.complete({ shared: 'answer' })

    expect(await third).toEqual({ role: 'follower', value: 'answer' })
  })

  it('limits the followers of a key, and lets further requests call the upstream', async () => {
    const flights = createSingleFlight<string>()
    await flights.join('k')
    const waiting = Array.from({ length: 1000 }, () => flights.join('k'))

    expect(flights.join('k')).toEqual({ role: 'alone' })
    expect(new Set(await Promise.all(waiting.map(stateOf)))).toEqual(new Set(['waiting']))
  })

  it('limits the followers of a stream, those that waited for it included', async () => {
    const flights = createSingleFlight<string, string>()
    const follow = () => flights.join('k', { followsStream: true })
    const leader = await flights.join('k')
    const waiting = Array.from({ length: 999 }, follow)
    if (leader.role === 'leader') leader.publish('stream')

    const roles = await Promise.all([...waiting, follow(), follow()])
    expect(roles.map(({ role }) => role)).toEqual([...Array.from({ length: 1000 }, () => 'stream'), 'alone'])
  })

  it('lets a follower call the upstream after the timeout, without a remaining timer', async () => {
    const runtime = manualRuntime(noNetwork)
    const flights = createSingleFlight<string>({ timeout: { ms: 1000, after: runtime.after } })
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
    expect(await served).toEqual({ role: 'follower', value: 'answer' })
    expect(runtime.pending()).toBe(0)
  })

  it('returns the leader without a promise', () => {
    const flights = createSingleFlight<string>()

    expect(flights.join('k')).toMatchObject({ role: 'leader' })
  })
})

describe('a published stream', () => {
  it('is followed by waiting and later requests that follow streams; the others wait for the end', async () => {
    const flights = createSingleFlight<string, string>()
    const leader = flights.join('key')
    if (leader instanceof Promise || leader.role !== 'leader') throw new Error('a leader was expected')
    const waiting = flights.join('key', { followsStream: true })
    const patient = flights.join('key')
    leader.publish('stream')
    expect(await waiting).toEqual({ role: 'stream', stream: 'stream' })
    expect(flights.join('key', { followsStream: true })).toEqual({ role: 'stream', stream: 'stream' })
    leader.complete({ shared: 'answer' })
    expect(await patient).toEqual({ role: 'follower', value: 'answer' })
    expect(flights.join('key')).toMatchObject({ role: 'leader' })
  })

  it('ends with its leader, and the next leader publishes its own', async () => {
    const flights = createSingleFlight<string, string>()
    const leader = flights.join('key')
    const waiting = flights.join('key')
    if (leader instanceof Promise || leader.role !== 'leader') throw new Error('a leader was expected')
    leader.publish('old')
    leader.complete('handed-over')
    const next = await waiting
    if (next.role !== 'leader') throw new Error('a leader was expected')
    const follower = flights.join('key', { followsStream: true })
    next.publish('new')
    expect(await follower).toEqual({ role: 'stream', stream: 'new' })
  })
})
