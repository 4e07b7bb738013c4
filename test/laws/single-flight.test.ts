import { Cancellation } from '../../src/core/async.ts'
import { describe, expect, it } from 'vitest'
import {
  createSingleFlight,
  type FlightEnd,
  type FlightRole,
  type Leader,
} from '../../src/plugins/cache/single-flight.ts'
import { cases, fc } from '../support/properties.ts'

interface Member {
  readonly key: string
  readonly leaving: AbortController
  role: FlightRole<number> | 'left' | undefined
  completed: boolean
}

const action = fc.oneof(
  { weight: 3, arbitrary: fc.record({ do: fc.constant('join' as const), key: fc.constantFrom('a', 'b') }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('leave' as const), who: fc.nat(30) }) },
  {
    weight: 2,
    arbitrary: fc.record({
      do: fc.constant('complete' as const),
      who: fc.nat(30),
      how: fc.constantFrom<'share' | 'handed-over' | 'not-shared'>('share', 'handed-over', 'not-shared'),
    }),
  },
)

async function flushMicrotasks(): Promise<void> {
  for (let turn = 0; turn < 5; turn += 1) await Promise.resolve()
}

describe('the law of single flight', () => {
  it('a key has one leader while a request waits, and every request receives a role or disconnects', async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(action, { maxLength: 40 }), async (actions) => {
        const flights = createSingleFlight<number>()
        const members: Member[] = []
        const leading = (key: string): readonly Member[] =>
          members.filter(({ role, completed, key: own }) => own === key && isLeader(role) && !completed)
        const waiting = (key: string): readonly Member[] =>
          members.filter((member) => member.key === key && member.role === undefined)

        const join = (key: string): void => {
          const member: Member = { key, leaving: new AbortController(), role: undefined, completed: false }
          members.push(member)
          Promise.resolve(flights.join(key, { cancellation: Cancellation.of(member.leaving.signal) })).then(
            (role) => void (member.role = role),
            () => void (member.role = 'left'),
          )
        }
        const complete = async (member: Member, end: FlightEnd<number>): Promise<void> => {
          if (!isLeader(member.role)) return
          const followers = member.completed ? [] : waiting(member.key)
          member.completed = true
          member.role.complete(end)
          await flushMicrotasks()
          if (end === 'handed-over') return
          for (const follower of followers) {
            const expected = end === 'not-shared' ? { role: 'alone' } : { role: 'follower', value: end.shared }
            expect(follower.role).toEqual(expected)
          }
        }

        for (const step of actions) {
          if (step.do === 'join') join(step.key)
          else {
            const member = members[step.who % Math.max(1, members.length)]
            if (member === undefined) continue
            if (step.do === 'leave') member.leaving.abort()
            else await complete(member, step.how === 'share' ? { shared: step.who } : step.how)
          }
          await flushMicrotasks()
          for (const key of ['a', 'b']) {
            expect(leading(key).length).toBeLessThanOrEqual(1)
            if (waiting(key).length > 0) expect(leading(key)).toHaveLength(1)
          }
        }
        for (let left = leading('a').concat(leading('b')); left.length > 0; left = leading('a').concat(leading('b'))) {
          for (const member of left) await complete(member, 'handed-over')
        }

        expect(members.every(({ role }) => role !== undefined)).toBe(true)
        for (const key of ['a', 'b']) expect(flights.join(key)).toMatchObject({ role: 'leader' })
      }),
      { numRuns: cases(300) },
    )
  })
})

function isLeader(role: Member['role']): role is Leader<number> {
  return typeof role === 'object' && role.role === 'leader'
}
