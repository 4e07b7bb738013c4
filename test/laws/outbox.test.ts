import { expect, it } from 'vitest'
import { ZERO } from '../../src/core/money.ts'
import type { Store } from '../../src/core/store.ts'
import { APPLICATION_KEY, callerOfKey } from '../../src/governance/caller.ts'
import { outboxLogs, parseState, stateKeyOf } from '../../src/governance/outbox.ts'
import type { Outbox } from '../../src/index.ts'
import { toNanoUsd } from '../../src/core/money.ts'
import { memoryStore } from '../../src/index.ts'
import { OutboxWorker } from '../../src/plugins/outbox/outbox-worker.ts'
import { finished as finishedRequest } from '../support/finished.ts'
import { cases, fc } from '../support/properties.ts'

const START = Date.UTC(2026, 10, 28, 12)
const PROCESSES = 3
const CUSTOMERS = ['a', 'b', 'c']

type Reaction = 'accept' | 'accept' | 'throw' | 'lose' | 'hang' | 'some' | 'reject'

const action = fc.oneof(
  {
    weight: 4,
    arbitrary: fc.record({ type: fc.constant('settle' as const), process: fc.nat(PROCESSES - 1), customer: fc.nat(2) }),
  },
  { weight: 8, arbitrary: fc.record({ type: fc.constant('step' as const), times: fc.integer({ min: 1, max: 60 }) }) },
  {
    weight: 4,
    arbitrary: fc.record({ type: fc.constant('pass' as const), ms: fc.constantFrom(1, 300, 2_000, 61_000) }),
  },
  { weight: 1, arbitrary: fc.record({ type: fc.constant('crash' as const), process: fc.nat(PROCESSES - 1) }) },
)

const reaction = fc.constantFrom<Reaction>('accept', 'accept', 'throw', 'lose', 'hang', 'some', 'reject')

it('in any order of settlements, deliveries, failures and crashes, each record arrives with one id, in order per customer, or is a dead letter', async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.scheduler(),
      fc.array(action, { maxLength: 60 }),
      fc.array(reaction, { maxLength: 20 }),
      fc.integer({ min: 1, max: 4 }),
      async (schedule, actions, reactions, maxRecords) => {
        const play = createPlay(schedule, reactions, maxRecords)
        for (const one of actions) {
          if (one.type === 'settle') await play.settle(one.process, CUSTOMERS[one.customer] ?? '')
          else if (one.type === 'step') await play.steps(one.times)
          else if (one.type === 'pass') await play.pass(one.ms)
          else play.crash(one.process)
        }
        await play.finish()

        const dead = new Set(
          (await play.shared.list('outbox-dead:', { limit: 1_000 })).map((key) => key.split(':').at(-1)),
        )
        for (const [customer, settled] of play.settled) {
          const first = [...new Set(play.received.get(customer) ?? [])].filter((id) => !dead.has(id))
          expect(first).toEqual(settled.filter((id) => !dead.has(id)))
        }
        const settledIds = [...play.settled.values()].flat()
        const states = await Promise.all(
          outboxLogs('bills').map(async (log) => parseState(await play.shared.get(stateKeyOf(log)))),
        )
        const sums = states.flatMap(({ delivered }) => Object.values(delivered))
        expect(states.reduce((sum, { count }) => sum + count, 0)).toBe(settledIds.length)
        expect(sums.reduce((sum, [count]) => sum + count, 0)).toBe(settledIds.length - dead.size)
        expect(sums.reduce((sum, [, billed]) => sum + billed, 0)).toBe(7 * (settledIds.length - dead.size))
        expect(states.every(({ lost, done }) => lost === 0 && done.length === 0)).toBe(true)
      },
    ),
    { numRuns: cases(150) },
  )
}, 60_000)

interface Timer {
  readonly at: number
  readonly callback: () => void
}

function createPlay(schedule: fc.Scheduler, reactions: readonly Reaction[], maxRecords: number) {
  let now = START
  let nextId = 0
  const shared = memoryStore({ now: () => now })
  const settled = new Map<string, string[]>()
  const received = new Map<string, string[]>()
  const waiting = [...reactions]

  const outbox: Outbox = {
    maxRecords,
    delayMs: 1,
    timeoutMs: 5_000,
    record: ({ id, customer }) => JSON.stringify({ id, customer }),
    deliver: async (records) => {
      await schedule.schedule(Promise.resolve())
      const how = waiting.shift() ?? 'accept'
      if (how === 'throw') throw new Error('unavailable')
      if (how === 'hang') await new Promise(() => {})
      // The receiver of `some` has the records of the first half.
      const accepted = how === 'some' ? records.slice(0, Math.ceil(records.length / 2)) : records
      const [first] = records
      for (const { id, value } of accepted) {
        if (how === 'reject' && id === first?.id) continue
        const { customer } = JSON.parse(value) as { readonly customer: string }
        received.set(customer, [...(received.get(customer) ?? []), id])
      }
      if (how === 'lose') throw new Error('the response was lost')
      if (how === 'reject') return { rejected: [{ id: first?.id ?? '', reason: 'unknown' }] }
      return { retry: records.slice(accepted.length).map(({ id }) => ({ id, reason: 'busy' })) }
    },
  }

  function createProcess() {
    const timers = new Set<Timer>()
    let isAlive = true
    const store = new Proxy<Store>(shared, {
      get(target, name) {
        const value: unknown = Reflect.get(target, name)
        if (typeof value !== 'function') return value
        return async (...parameters: unknown[]) => {
          await schedule.schedule(Promise.resolve())
          if (!isAlive) return new Promise(() => {})
          const result: unknown = await Reflect.apply(value, target, parameters)
          await schedule.schedule(Promise.resolve())
          return isAlive ? result : new Promise(() => {})
        }
      },
    })
    const runtime = {
      now: () => now,
      random: () => 0,
      after: (ms: number, callback: () => void) => {
        const timer = { at: now + ms, callback }
        timers.add(timer)
        return () => timers.delete(timer)
      },
    }
    const log = { failure: () => {}, warning: () => {}, info: () => {} }
    const worker = new OutboxWorker({ plugins: [], outboxes: [{ name: 'bills', outbox }], store, runtime, log })
    worker.start()
    const fire = (): void => {
      for (const timer of Array.from(timers)) {
        if (timer.at > now) continue
        timers.delete(timer)
        if (isAlive) timer.callback()
      }
    }
    return { worker, fire, kill: () => (isAlive = false) }
  }

  const processes = Array.from({ length: PROCESSES }, createProcess)

  async function settle(process: number, customer: string): Promise<void> {
    const id = `req_${(nextId += 1)}`
    const caller = { ...callerOfKey(APPLICATION_KEY), context: { customer } }
    const reservation = { reservedAt: now, grantedCost: 100 }
    const used = {
      promptTokens: 1,
      completionTokens: 1,
      savedTokens: 0,
      theoretical: ZERO,
      actual: ZERO,
      billed: toNanoUsd(7),
      model: 'm',
    }
    const finished = { ...finishedRequest(), requestId: id, at: now }
    const exchange = { caller, reservation: { ...unusedReservation, ...reservation } }
    const entries = processes[process]?.worker.entriesOf(finished, exchange, used) ?? []
    await shared.reserve({ reservationId: id, claims: [], expiresAfterMs: 1_000 })
    const tallies = entries.flatMap(({ tally }) => (tally === undefined ? [] : [tally]))
    await shared.settle({ reservationId: id, charges: [], tallies, entries })
    settled.set(customer, [...(settled.get(customer) ?? []), id])
  }

  async function steps(times: number): Promise<void> {
    for (let left = times; left > 0; left -= 1) {
      for (const process of processes) process.fire()
      for (let turn = 0; turn < 10; turn += 1) await Promise.resolve()
      if (schedule.count() === 0) return
      await schedule.waitOne()
    }
  }

  async function pass(ms: number): Promise<void> {
    now += ms
    await steps(1)
  }

  function crash(index: number): void {
    processes[index]?.kill()
    processes[index] = createProcess()
  }

  /** Lets everything that waits be delivered: leases and backoffs end within minutes. */
  async function finish(): Promise<void> {
    for (let round = 0; round < 400; round += 1) {
      now += 20_000
      await steps(300)
      const states = await Promise.all(
        outboxLogs('bills').map(async (log) => parseState(await shared.get(stateKeyOf(log)))),
      )
      if (states.reduce((sum, { count }) => sum + count, 0) === nextId) return
    }
  }

  return { settle, steps, pass, crash, finish, settled, received, shared }
}

const unusedReservation = {
  isReserved: true,
  rate: { limit: 0, remaining: 0, resetAt: 0 },
  quote: { promptTokens: 0, outputTokens: 0, cost: () => ZERO },
  outputTokens: 0,
  settle: () => {},
  settlement: () => {
    throw new Error('not used')
  },
}
