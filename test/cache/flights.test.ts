import { describe, expect, it } from 'vitest'
import { createFlights, type Seat } from '../../src/cache/flights.ts'
import { manualRuntime } from '../support/manual-runtime.ts'
import { noNetwork } from '../support/no-network.ts'

type Leader = Extract<Seat<string>, { role: 'leader' }>

async function leaderOf(seat: Promise<Seat<string>>): Promise<Leader> {
  const taken = await seat
  if (taken.role !== 'leader') throw new Error(`this seat is ${taken.role}`)
  return taken
}

/** What a seat is, or `waiting`. */
async function stateOf(seat: Promise<Seat<string>>): Promise<string> {
  const pending = Promise.resolve()
    .then(() => Promise.resolve())
    .then(() => 'waiting')
  return Promise.race([
    seat.then(
      (taken) => taken.role,
      () => 'left',
    ),
    pending,
  ])
}

describe('flights', () => {
  it('the first of a key leads, the others wait and get what it brings', async () => {
    const flights = createFlights<string>()
    const first = await leaderOf(flights.board('k'))
    const others = [flights.board('k'), flights.board('k')]

    expect(await Promise.all(others.map(stateOf))).toEqual(['waiting', 'waiting'])

    first.land({ shared: 'answer' })

    expect(await Promise.all(others)).toEqual([
      { role: 'passenger', value: 'answer' },
      { role: 'passenger', value: 'answer' },
    ])
    expect(flights.size).toBe(0)
  })

  it('keys do not wait for each other', async () => {
    const flights = createFlights<string>()

    expect([await stateOf(flights.board('a')), await stateOf(flights.board('b'))]).toEqual(['leader', 'leader'])
  })

  it('a leader that cannot finish hands over to the one that waits longest', async () => {
    const flights = createFlights<string>()
    const first = await leaderOf(flights.board('k'))
    const [second, third] = [flights.board('k'), flights.board('k')]
    first.land('handed-over')
    const next = await leaderOf(second)

    expect(await stateOf(third)).toBe('waiting')

    next.land({ shared: 'answer' })

    expect(await third).toEqual({ role: 'passenger', value: 'answer' })
  })

  it('where nothing can be shared everyone goes alone at once', async () => {
    const flights = createFlights<string>()
    const first = await leaderOf(flights.board('k'))
    const others = [flights.board('k'), flights.board('k')]
    first.land('scattered')

    expect(await Promise.all(others)).toEqual([{ role: 'alone' }, { role: 'alone' }])
    expect(await stateOf(flights.board('k'))).toBe('leader')
  })

  it('one that leaves while it waits touches nobody else', async () => {
    const flights = createFlights<string>()
    const leaving = new AbortController()
    const first = await leaderOf(flights.board('k'))
    const left = flights.board('k', leaving.signal)
    const stays = flights.board('k')
    leaving.abort(new Error('gone'))

    await expect(left).rejects.toThrow('gone')

    first.land('handed-over')

    expect(await stateOf(stays)).toBe('leader')
  })

  it('one that has left already takes no seat', async () => {
    const flights = createFlights<string>()

    await expect(flights.board('k', AbortSignal.abort(new Error('gone')))).rejects.toThrow('gone')
    expect(flights.size).toBe(0)
  })

  it('only the first landing counts', async () => {
    const flights = createFlights<string>()
    const first = await leaderOf(flights.board('k'))
    first.land('handed-over')
    const second = await leaderOf(flights.board('k'))
    const third = flights.board('k')
    first.land('scattered')

    expect(await stateOf(third)).toBe('waiting')

    second.land({ shared: 'answer' })

    expect(await third).toEqual({ role: 'passenger', value: 'answer' })
  })

  it('so many wait at the most, further ones go alone', async () => {
    const flights = createFlights<string>({ mostWaiting: 1 })
    await flights.board('k')
    const waiting = flights.board('k')

    expect(await stateOf(flights.board('k'))).toBe('alone')
    expect(await stateOf(waiting)).toBe('waiting')
  })

  it('who has waited too long goes alone, and leaves no timer behind', async () => {
    const runtime = manualRuntime(noNetwork)
    const flights = createFlights<string>({ patience: { ms: 1000, after: runtime.after } })
    const first = await leaderOf(flights.board('k'))
    const impatient = flights.board('k')
    runtime.advance(999)

    expect(await stateOf(impatient)).toBe('waiting')

    runtime.advance(1)

    expect(await impatient).toEqual({ role: 'alone' })

    const leaving = new AbortController()
    const [left, served] = [flights.board('k', leaving.signal), flights.board('k')]
    leaving.abort(new Error('gone'))
    first.land({ shared: 'answer' })

    await expect(left).rejects.toThrow('gone')
    expect(await served).toEqual({ role: 'passenger', value: 'answer' })
    expect(runtime.pending()).toBe(0)
  })
})
