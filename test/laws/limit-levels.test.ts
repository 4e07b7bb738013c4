import { expect, it } from 'vitest'
import { GatewayError } from '../../src/core/errors.ts'
import type { NanoUsd } from '../../src/core/money.ts'
import { DURATION_CODES, type DurationCode, periodOf } from '../../src/core/store.ts'
import { APPLICATION_KEY, callerOfKey, type LimitLevel } from '../../src/governance/caller.ts'
import { ContextLevel, type LevelLimit, ROLLING_STEPS } from '../../src/governance/levels.ts'
import type { LevelName, LimitKind } from '../../src/governance/limits.ts'
import type { Quote, Reservation } from '../../src/governance/reservation.ts'
import { createTestGovernance, usage } from '../governance/test-governance.ts'
import { cases, fc } from '../support/properties.ts'

const EXPIRES_AFTER_MS = 600_000
const IDLE_MS = 1_800_000
const OWNERS: readonly (readonly [LevelName, string])[] = [
  ['customer', 'customer:a'],
  ['customer', 'customer:b'],
  ['parent', 'customer:p'],
  ['user', 'user:a/u'],
  ['user', 'user:b/u'],
  ['session', 'session:a/s'],
]
/** Positions in `OWNERS`. */
const CALLERS = [[0, 2], [1, 2], [0, 2, 3], [1, 2, 4], [0, 2, 3, 5], [2]] as const
const MODELS = ['x/opus', 'x/haiku']

const limit = (isSession: boolean): fc.Arbitrary<LevelLimit> =>
  fc
    .record({
      kind: fc.constantFrom<LimitKind>('requests', 'tokens', 'budget'),
      max: fc.integer({ min: 0, max: 14 }),
      window: isSession
        ? fc.constant({ type: 'idle' as const, idleMs: IDLE_MS })
        : fc.record({
            type: fc.constantFrom('calendar' as const, 'rolling' as const),
            every: fc.constantFrom(...DURATION_CODES),
          }),
      models: fc.constantFrom(undefined, ['*opus*'], ['x/*']),
    })
    .map(({ models, ...others }) => ({ ...others, ...(models !== undefined && { models }) }))

const action = fc.oneof(
  {
    weight: 6,
    arbitrary: fc.record({
      type: fc.constant('reserve' as const),
      caller: fc.nat(CALLERS.length - 1),
      amount: fc.integer({ min: 1, max: 12 }),
      model: fc.constantFrom(...MODELS),
    }),
  },
  {
    weight: 4,
    arbitrary: fc.record({
      type: fc.constant('settle' as const),
      pick: fc.nat(),
      share: fc.double({ min: 0, max: 1, noNaN: true }),
    }),
  },
  {
    weight: 2,
    arbitrary: fc.record({
      type: fc.constant('wait' as const),
      ms: fc.constantFrom(1, 4_999, 62_000, 300_000, 3_600_000, 86_400_000, 8 * 86_400_000),
    }),
  },
)

interface Event {
  readonly owners: ReadonlySet<string>
  readonly model: string
  readonly at: number
  readonly amounts: Record<LimitKind, number>
}

const applies = ({ models }: LevelLimit, model: string): boolean =>
  models === undefined || models.includes('x/*') || model.includes('opus')

const isInWindow = (
  window: { readonly type: 'calendar' | 'rolling'; readonly every: DurationCode },
  at: number,
  now: number,
): boolean => {
  if (window.type === 'calendar') return periodOf(now, window.every).start === periodOf(at, window.every).start
  const { stepMs, count } = ROLLING_STEPS[window.every]
  return Math.floor(at / stepMs) >= Math.floor(now / stepMs) - count
}

it('a request is admitted if and only if every limit of every level admits it', async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.tuple(...OWNERS.map(([name]) => fc.array(limit(name === 'session'), { maxLength: 3 }))),
      fc.array(action, { minLength: 1, maxLength: 40 }),
      async (limitsByOwner, actions) => {
        const unique = limitsByOwner.map((limits) => [
          ...new Map(limits.map((one) => [JSON.stringify([one.kind, one.window, one.models]), one])).values(),
        ])
        const governance = createTestGovernance({ expiresAfterMs: EXPIRES_AFTER_MS })
        const levels = OWNERS.map(
          ([name, owner], index): LimitLevel => new ContextLevel({ name, owner, limits: unique[index] ?? [] }),
        )
        const events: Event[] = []
        const open: { readonly reservation: Reservation; readonly event: Event }[] = []
        const lastUse = new Map<string, number>()

        const usedOf = (owner: string, one: LevelLimit, now: number): number => {
          const counted = events.filter(({ owners, model }) => owners.has(owner) && applies(one, model))
          const { window } = one
          const live =
            window.type === 'idle'
              ? counted.filter(({ at }) => at >= (lastUse.get(`start ${owner}`) ?? 0))
              : counted.filter(({ at }) => isInWindow(window, at, now))
          return live.reduce((sum, { amounts }) => sum + amounts[one.kind], 0)
        }

        for (const step of actions) {
          const now = governance.clock.at
          if (step.type === 'wait') {
            // A reservation that expires is another law.
            for (const { reservation, event } of open.splice(0)) {
              const { tokens } = event.amounts
              await reservation.settle(usage(tokens, 0, tokens))
            }
            governance.clock.at += step.ms
          } else if (step.type === 'settle') {
            const [taken] = open.splice(step.pick % Math.max(1, open.length), 1)
            if (taken === undefined) continue
            const used = Math.floor(taken.event.amounts.tokens * step.share)
            Object.assign(taken.event.amounts, { tokens: used, budget: used })
            await taken.reservation.settle(usage(used, 0, used))
          } else {
            const positions: readonly number[] = CALLERS[step.caller] ?? []
            const amounts = { requests: 1, tokens: step.amount, budget: step.amount }
            for (const position of positions) {
              const [name, owner = ''] = OWNERS[position] ?? []
              const last = lastUse.get(owner)
              if (name === 'session' && (last === undefined || now >= last + IDLE_MS + EXPIRES_AFTER_MS))
                lastUse.set(`start ${owner}`, now)
            }
            const isAdmitted = positions.every((position) =>
              (unique[position] ?? []).every(
                (one) =>
                  !applies(one, step.model) ||
                  usedOf(OWNERS[position]?.[1] ?? '', one, now) + amounts[one.kind] <= one.max,
              ),
            )
            const caller = {
              ...callerOfKey(APPLICATION_KEY),
              levels: positions.flatMap((position) => levels[position] ?? []),
            }
            const quoted: Quote = {
              promptTokens: step.amount,
              outputTokens: 0,
              cost: () => step.amount as NanoUsd,
              models: [step.model],
            }
            const outcome = await Promise.resolve(governance.ledger.reserve(caller, quoted)).catch(
              (error: unknown) => error,
            )
            expect([step, GatewayError.is(outcome) ? outcome.message : undefined, !GatewayError.is(outcome)]).toEqual(
              [step, expect.anything(), isAdmitted].map((value, index) =>
                index === 1 && isAdmitted ? undefined : value,
              ),
            )
            if (GatewayError.is(outcome)) continue
            const event = {
              owners: new Set(positions.map((position) => OWNERS[position]?.[1] ?? '')),
              model: step.model,
              at: now,
              amounts,
            }
            events.push(event)
            for (const owner of event.owners) lastUse.set(owner, now)
            open.push({ reservation: outcome as Reservation, event })
          }
        }
      },
    ),
    { numRuns: cases(300) },
  )
})
