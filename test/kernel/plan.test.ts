import { expect, it } from 'vitest'
import { Cancellation } from '../../src/core/async.ts'
import type { Reserved } from '../../src/kernel/exchange.ts'
import { plan } from '../../src/kernel/plan.ts'
import type { Services } from '../../src/kernel/services.ts'

it('a request that ends while its prompt is transformed keeps the plan on which its bill is based, and does not end its followers', async () => {
  const outcomes: number[] = []
  const keeper = { finish: ({ status }: { readonly status: number }) => void outcomes.push(status) }
  const reserved = {
    prompt: { native: { dialect: 'chat', value: {} } },
    format: {},
    size: {},
    cancellation: new Cancellation(),
    plan: undefined,
  } as never as Reserved
  const hooks = {
    onLookup: [() => ({ keeper, spent: 7 })],
    optimizePrompt: [() => Promise.reject(new Error('The caller disconnected.'))],
  }

  await expect(plan(reserved, { hooks } as never as Services)).rejects.toThrow('disconnected')
  expect(reserved.plan).toMatchObject({ kind: 'upstream', optimization: { spent: 7 } })
  // The end of the request reports its own status, so that a follower leads after a disconnect.
  expect(outcomes).toEqual([])
})
