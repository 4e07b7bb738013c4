import { describe, expect, it } from 'vitest'
import type { Store } from '../../../src/core/store.ts'
import { memoryStore } from '../../../src/stores/memory.ts'
import { createGovernance } from '../../../src/plugins/admin/governance.ts'
import { manualRuntime, type ManualRuntime } from '../../support/manual-runtime.ts'
import { noNetwork } from '../../support/no-network.ts'

const SECRET = 'sk-bf-00000000-0000-4000-8000-000000000001'
const CONFIGURATION = { virtual_keys: [{ id: 'configured', name: 'configured', value: SECRET }] }

function createRuntime(): ManualRuntime {
  return manualRuntime(noNetwork)
}

const DEFAULTS = {
  customers: { check: () => undefined, apply: async () => {} },
  maxRequestMs: 600_000,
  keyCacheMs: undefined,
  allowsUnreservedRequests: false,
  onFailure: () => {},
  onSettlementDropped: () => {},
}

describe('the configured keys', () => {
  it('are stored before the first call of each method', async () => {
    const runtime = createRuntime()
    const store = memoryStore({ now: runtime.now })
    const { keys, findKey } = createGovernance(CONFIGURATION, { ...DEFAULTS, store, runtime })
    const [listed, found] = await Promise.all([keys.list(), findKey(SECRET)])
    expect(listed.keys.map((key) => key.id)).toEqual(['configured'])
    expect(found).toMatchObject({ id: 'configured' })
  })

  it('that could not be stored are logged, reject all requests, and are retried after a second', async () => {
    const runtime = createRuntime()
    const store = memoryStore({ now: runtime.now })
    let tries = 0
    const away: Store = {
      ...store,
      swap: (...given) => {
        tries += 1
        return tries === 1 ? Promise.reject(new Error('The store is away.')) : store.swap(...given)
      },
    }
    const failures: unknown[] = []
    const { keys, budgets, rateLimits, findKey } = createGovernance(CONFIGURATION, {
      ...DEFAULTS,
      store: away,
      runtime,
      onFailure: (cause) => failures.push(cause),
    })
    const overloaded = { kind: 'overloaded', details: { retryAfterSeconds: 1 } }
    for (const call of [() => keys.list(), () => budgets.list(), () => rateLimits.list(), () => findKey(SECRET)]) {
      await expect(call()).rejects.toMatchObject(overloaded)
    }
    expect([tries, failures.length]).toEqual([1, 1])

    runtime.advance(1_000)
    expect(await findKey(SECRET)).toMatchObject({ id: 'configured' })
    expect((await keys.list()).keys).toHaveLength(1)
    expect(failures).toHaveLength(1)
  })

  it('that are invalid are an error at the start', () => {
    const runtime = createRuntime()
    const start = (): unknown =>
      createGovernance(
        { virtual_keys: [{ name: 'x', value: SECRET, budget_limit_cents: -1 }] },
        { ...DEFAULTS, store: memoryStore(), runtime },
      )
    expect(start).toThrow('governance.virtual_keys[0].budget_limit_cents')
  })
})
