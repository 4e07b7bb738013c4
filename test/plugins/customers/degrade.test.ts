import { describe, expect, it } from 'vitest'
import type { Model, Route } from '../../../src/core/ports.ts'
import { APPLICATION_KEY, type Degradation } from '../../../src/governance/caller.ts'
import { ContextLevel, type LevelLimit } from '../../../src/governance/levels.ts'
import type { LevelName } from '../../../src/governance/limits.ts'
import { degradationOf } from '../../../src/plugins/customers/degrade.ts'
import { EchoProvider } from '../../../src/testing/echo-provider.ts'

const BUDGET: LevelLimit = { kind: 'budget', max: 100, window: { type: 'calendar', every: '1M' } }

function degradation(
  amounts: { readonly spent: number; readonly held: number },
  { name = 'customer', limit = BUDGET }: { readonly name?: LevelName; readonly limit?: LevelLimit } = {},
): Promise<Degradation | undefined> {
  const level = new ContextLevel({ name, owner: `${name}:x`, limits: [limit] })
  return degradationOf({ 0.5: { savings: 'med', model: 'small' } }, [level], {
    store: { levels: (counters) => counters.map(() => amounts) },
    now: () => Date.UTC(2026, 10, 28),
    levelContext: () => ({ carryOver: (limits) => ({ limits, isFinal: true }), maxRequestMs: 1000 }),
  })
}

describe('what a plan does near the end of a budget', () => {
  it('begins with the share that is spent or held', async () => {
    expect(await degradation({ spent: 49, held: 0 })).toBeUndefined()
    expect((await degradation({ spent: 20, held: 30 }))?.savingsLevel()).toBe('med')
  })

  it('does not depend on the budget of a session', async () => {
    const limit: LevelLimit = { kind: 'budget', max: 100, window: { type: 'idle', idleMs: 60_000 } }
    expect(await degradation({ spent: 100, held: 0 }, { name: 'session', limit })).toBeUndefined()
  })
})

describe('the small model near the end of a budget', () => {
  const LARGE: Model = {
    id: 'large',
    family: 'a',
    small: 'small',
    contextWindowTokens: 1000,
    maxOutputTokens: 100,
    price: { input: 2, output: 2 },
  }
  const small: Model = { ...LARGE, id: 'small', contextWindowTokens: 100 }

  const modelFor = async (of: Model, promptBytes: number): Promise<Route | undefined> => {
    class SmallProvider extends EchoProvider {
      override readonly models: readonly Model[] = [LARGE, of]
    }
    const route = { provider: new SmallProvider(), model: LARGE }
    return (await degradation({ spent: 90, held: 0 }))?.modelFor(route, APPLICATION_KEY, promptBytes)
  }

  it('answers if the prompt surely fits', async () => {
    expect((await modelFor(small, 100))?.model.id).toBe('small')
    expect(await modelFor(small, 101)).toBeUndefined()
  })

  it('is of the same family', async () => {
    expect(await modelFor({ ...small, family: 'b' }, 10)).toBeUndefined()
  })
})
