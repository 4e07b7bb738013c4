import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { clampUsage, makeBill } from '../../src/billing/bill.ts'
import { NO_USAGE, promptTokens } from '../../src/core/answer.ts'
import { ZERO } from '../../src/core/money.ts'

const amount = fc.nat(2_000_000)
const usages = fc.record({
  inputTokens: amount,
  cacheReadTokens: amount,
  cacheWriteTokens: amount,
  cacheWrite1hTokens: amount,
  outputTokens: amount,
  reasoningTokens: fc.nat(1000),
})

describe('clamped usage', () => {
  it('never passes the ceiling, and what is kept and what is cut off add up to what was reported', () => {
    fc.assert(
      fc.property(usages, amount, amount, (reported, prompt, output) => {
        const { usage, cutOff } = clampUsage(reported, { prompt, output })
        expect(promptTokens(usage)).toBe(Math.min(prompt, promptTokens(reported)))
        expect(usage.outputTokens).toBe(Math.min(output, reported.outputTokens))
        expect(usage.reasoningTokens).toBeLessThanOrEqual(Math.max(usage.outputTokens, reported.reasoningTokens))
        for (const part of ['inputTokens', 'cacheReadTokens', 'cacheWriteTokens', 'cacheWrite1hTokens'] as const) {
          expect(usage[part]).toBeGreaterThanOrEqual(0)
          expect(usage[part]).toBeLessThanOrEqual(reported[part])
        }
        expect(promptTokens(usage) + (cutOff?.promptTokens ?? 0)).toBe(promptTokens(reported))
        expect(usage.outputTokens + (cutOff?.completionTokens ?? 0)).toBe(reported.outputTokens)
      }),
    )
  })

  it('is the report itself where nothing is beyond the ceiling', () => {
    const reported = { ...NO_USAGE, inputTokens: 10, outputTokens: 5 }
    expect(clampUsage(reported, { prompt: 10, output: 5 })).toEqual({ usage: reported })
  })
})

describe('the original of a rewritten prompt', () => {
  const rewritten = {
    price: { input: 1, output: 2 },
    margin: 1,
    strategy: 'RLM-Context-Search',
    estimated: false,
    spent: ZERO,
    counted: { original: 100_000, sent: 10_000 },
    ceiling: { prompt: 400_000, output: 1000 },
  }

  it('is billed with at most what was reserved, though its rest has more tokens than were estimated', () => {
    const bill = makeBill({ ...rewritten, reserved: 120_000, usage: { ...NO_USAGE, inputTokens: 30_000 } })
    expect(bill.originalTokens).toBe(120_000)
    expect(bill.billed).toBe(120_000 * 1000)
  })

  it('is at least what was sent', () => {
    const bill = makeBill({ ...rewritten, reserved: 20_000, usage: { ...NO_USAGE, inputTokens: 30_000 } })
    expect(bill.originalTokens).toBe(30_000)
  })
})
