import type { JsonObject } from '../../core/json.ts'
import type { Metrics, StepWriter, WriteContext } from '../format.ts'
import { chunkMaker } from './chunks.ts'
import { passage, withField, withoutUsage } from './passage.ts'
import { asksForUsage } from './settings.ts'
import { LAST } from './stream-reader.ts'

/**
 * Writes chunks. Those of this dialect leave word for word, save the last one with a finish_reason, which is held back
 * to carry the bill, and the usage chunk, which only leaves for a caller who asked for it.
 */
export function stepWriter(context: WriteContext): StepWriter {
  const { prompt, created } = context
  const wantsUsage = prompt.native.dialect === 'openai' && asksForUsage(prompt.native.value)
  const own = passage(prompt.settings.choices ?? 1)
  const maker = chunkMaker(created)
  return {
    write: (step) => {
      const { native } = step
      if (native?.dialect === 'openai') return own.pass(step, native.frame)
      return step.events.flatMap((event) => maker.frames(event))
    },
    end: (metrics) => {
      const held = own.held()
      const closing = held === undefined ? maker.finish() : held
      const usage = own.usage() ?? (held === undefined ? maker.usage() : undefined)
      const chunks = [...(closing === undefined ? [] : [closing]), ...own.late()]
      const [last, ...late] = wantsUsage ? chunks : chunks.map(withoutUsage)
      return [
        ...(last === undefined ? [] : [withField(last, 'svc_metrics', writeMetrics(metrics)), ...late]),
        ...(wantsUsage && usage !== undefined ? [usage] : []),
        { data: LAST },
      ]
    },
  }
}

/** The bill as the chat and the responses format show it. */
export function writeMetrics(metrics: Metrics): JsonObject {
  return {
    original_tokens: metrics.originalTokens,
    optimized_tokens: metrics.optimizedTokens,
    tokens_saved: metrics.tokensSaved,
    reduction_pct: metrics.reductionPct,
    strategy: metrics.strategy,
    cache: metrics.cache,
    theoretical_cost: metrics.theoreticalCost,
    actual_cost: metrics.actualCost,
    billed_amount: metrics.billedAmount,
    savings_usd: metrics.savingsUsd,
    profit_margin: metrics.profitMargin,
  }
}
