import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { createFlights, type Landing, type Seat } from '../../src/cache/flights.ts'

type Leader = Extract<Seat<number>, { role: 'leader' }>

interface Traveller {
  readonly key: string
  readonly leaving: AbortController
  seat: Seat<number> | 'left' | undefined
  landed: boolean
}

const action = fc.oneof(
  { weight: 3, arbitrary: fc.record({ do: fc.constant('board' as const), key: fc.constantFrom('a', 'b') }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('leave' as const), who: fc.nat(30) }) },
  {
    weight: 2,
    arbitrary: fc.record({
      do: fc.constant('land' as const),
      who: fc.nat(30),
      how: fc.constantFrom<'share' | 'handed-over' | 'scattered'>('share', 'handed-over', 'scattered'),
    }),
  },
)

async function settled(): Promise<void> {
  for (let turn = 0; turn < 5; turn += 1) await Promise.resolve()
}

describe('the law of flights', () => {
  it('there is one leader a key while someone waits, and everyone gets a seat or leaves', async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(action, { maxLength: 40 }), async (actions) => {
        const flights = createFlights<number>()
        const travellers: Traveller[] = []
        const flying = (key: string): readonly Traveller[] =>
          travellers.filter(({ seat, landed, key: own }) => own === key && isLeader(seat) && !landed)
        const waiting = (key: string): readonly Traveller[] =>
          travellers.filter((traveller) => traveller.key === key && traveller.seat === undefined)

        const board = (key: string): void => {
          const traveller: Traveller = { key, leaving: new AbortController(), seat: undefined, landed: false }
          travellers.push(traveller)
          flights.board(key, traveller.leaving.signal).then(
            (seat) => void (traveller.seat = seat),
            () => void (traveller.seat = 'left'),
          )
        }
        const land = async (traveller: Traveller, landing: Landing<number>): Promise<void> => {
          if (!isLeader(traveller.seat)) return
          const followers = traveller.landed ? [] : waiting(traveller.key)
          traveller.landed = true
          traveller.seat.land(landing)
          await settled()
          if (landing === 'handed-over') return
          for (const follower of followers) {
            const expected = landing === 'scattered' ? { role: 'alone' } : { role: 'passenger', value: landing.shared }
            expect(follower.seat).toEqual(expected)
          }
        }

        for (const step of actions) {
          if (step.do === 'board') board(step.key)
          else {
            const traveller = travellers[step.who % Math.max(1, travellers.length)]
            if (traveller === undefined) continue
            if (step.do === 'leave') traveller.leaving.abort()
            else await land(traveller, step.how === 'share' ? { shared: step.who } : step.how)
          }
          await settled()
          for (const key of ['a', 'b']) {
            expect(flying(key).length).toBeLessThanOrEqual(1)
            if (waiting(key).length > 0) expect(flying(key)).toHaveLength(1)
          }
        }
        for (let left = flying('a').concat(flying('b')); left.length > 0; left = flying('a').concat(flying('b'))) {
          for (const traveller of left) await land(traveller, 'handed-over')
        }

        expect(travellers.every(({ seat }) => seat !== undefined)).toBe(true)
        expect(flights.size).toBe(0)
      }),
      { numRuns: 300 },
    )
  })
})

function isLeader(seat: Traveller['seat']): seat is Leader {
  return typeof seat === 'object' && seat.role === 'leader'
}
