import { expect, it } from 'vitest'
import { countUpTo } from '../../src/kernel/charge.ts'

/** Creates a meter that counts one token per character and records the number of counted characters. */
function countingMeter() {
  let counted = 0
  const estimate = (text: string): number => {
    counted += text.length
    return text.length
  }
  return { tokenizer: { estimate }, counted: () => counted }
}

it('counts all texts below the limit', () => {
  expect(countUpTo(1_000_000, ['a'.repeat(200_000), 'b'.repeat(5)], countingMeter())).toBe(200_005)
})

it('stops soon after the limit, however long the texts are', () => {
  const meter = countingMeter()
  expect(countUpTo(1000, ['a'.repeat(5_000_000), 'b'.repeat(5_000_000)], meter)).toBe(1000)
  expect(meter.counted()).toBeLessThan(100_000)
})
