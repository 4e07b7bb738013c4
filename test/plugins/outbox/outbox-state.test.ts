import { expect, it } from 'vitest'
import { LEASE_MS } from '../../../src/core/delivery.ts'
import { EMPTY_STATE, type OutboxState } from '../../../src/governance/outbox.ts'
import type { DeliveryResult } from '../../../src/kernel/plugin.ts'
import { afterAttempt, type AfterDelivery, batchSize, claim } from '../../../src/plugins/outbox/outbox-state.ts'

const NOW = 1_000_000
const GIVE_UP_MS = 10_000

function attempt(state: OutboxState, ids: readonly string[], result: DeliveryResult): AfterDelivery {
  const batch = ids.map((id) => ({ cursor: id, record: { id, keyId: 'k', day: 1, billed: 5, value: '' } }))
  return afterAttempt(state, { batch, result, now: NOW, random: 0.5, giveUpAfterMs: GIVE_UP_MS })
}

const failed = (...ids: readonly string[]): DeliveryResult => ({ retry: ids.map((id) => ({ id, reason: 'down' })) })

it('a batch ends with the records that were tried before, and is halved by each failure', () => {
  expect(batchSize(EMPTY_STATE, 100)).toBe(100)
  expect(batchSize({ ...EMPTY_STATE, tried: 3 }, 100)).toBe(3)
  expect(batchSize({ ...EMPTY_STATE, tried: 80, attempts: 2 }, 100)).toBe(25)
})

it('a claim ends after the lease, and keeps when its records were first tried', () => {
  const claimed = claim(EMPTY_STATE, 3, NOW)
  expect(claimed).toMatchObject({ tried: 3, firstTriedAt: NOW, nextAt: NOW + LEASE_MS, version: 1 })
  expect(claim(claimed, 2, NOW + 1)).toMatchObject({ tried: 3, firstTriedAt: NOW, version: 2 })
})

it('records behind a delivered one stay tried, and are given up by their own time', () => {
  const claimed = { ...claim(EMPTY_STATE, 3, NOW), failingSince: NOW - GIVE_UP_MS }
  const { state, givenUp } = attempt(claimed, ['a', 'b', 'c'], failed('b'))
  expect(givenUp).toEqual([])
  expect(state).toMatchObject({ cursor: 'a', count: 1, tried: 2, done: ['c'], failingSince: NOW, attempts: 1 })
})

it('the first record is given up when it has failed for long enough', () => {
  const claimed = { ...claim(EMPTY_STATE, 2, NOW), failingSince: NOW - GIVE_UP_MS }
  const { state, givenUp } = attempt(claimed, ['a', 'b'], failed('a'))
  expect(givenUp.map(({ record }) => record.id)).toEqual(['a'])
  expect(state).toMatchObject({ cursor: 'b', count: 2, tried: 0, attempts: 0, delivered: { 1: [1, 5] } })
})
