import { expect, it } from 'vitest'
import { stalePrices } from '../../scripts/refresh-catalog.ts'

const day = (date: string): number => Date.parse(date)

it('names each built-in price older than 60 days', () => {
  const name = 'groq/llama-3.3-70b-versatile: price of 2026-08-18'
  expect(stalePrices(day('2026-08-18') + 60 * 86_400_000)).not.toContain(name)
  expect(stalePrices(day('2026-08-18') + 61 * 86_400_000)).toContain(name)
  expect(stalePrices(day('2020-01-01'))).toEqual([])
})
