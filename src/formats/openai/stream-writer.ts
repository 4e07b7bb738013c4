import type { Frame, Step } from '../../core/answer.ts'
import { asArray, asObject, isJsonObject, type JsonObject } from '../../core/json.ts'
import type { Metrics, StepWriter, WriteContext } from '../format.ts'
import { chunkMaker } from './chunks.ts'
import { asksForUsage } from './settings.ts'
import { LAST } from './stream-reader.ts'

/** What may follow the held chunk, besides the usage: some vendors add a few. */
const MOST_QUEUED = 64

/**
 * Writes chunks. Those of this dialect leave word for word, save the last one with a finish_reason, which is held back
 * to carry the bill, and the usage chunk, which only leaves for a caller who asked for it.
 */
export function stepWriter(context: WriteContext): StepWriter {
  const { prompt, created } = context
  const wantsUsage = prompt.native.dialect === 'openai' && asksForUsage(prompt.native.value)
  const choices = prompt.settings.choices ?? 1
  const maker = chunkMaker(created)
  let held: Frame | undefined
  let usage: Frame | undefined
  let finished = 0
  const queued: Frame[] = []

  /** Frees what was held, for a choice that goes on after another one ended. */
  const release = (): readonly Frame[] => {
    const frames = held === undefined ? [] : [held, ...queued]
    held = undefined
    queued.length = 0
    return frames
  }

  const writeNative = (step: Step, frame: Frame): readonly Frame[] => {
    const kind = kindOf(step, frame, choices)
    if (kind === 'last') return []
    if (kind === 'usage') {
      usage = frame
      return []
    }
    if (kind === 'finish') {
      finished++
      const freed = release()
      held = frame
      return freed
    }
    if (held === undefined) return [frame]
    if (finished < choices) return [...release(), frame]
    if (queued.length < MOST_QUEUED) queued.push(frame)
    return []
  }

  return {
    write: (step) => {
      const { native } = step
      if (native?.dialect === 'openai') return writeNative(step, native.frame)
      return step.events.flatMap((event) => maker.frames(event))
    },
    end: (metrics) => {
      const last = held === undefined ? maker.finish() : withoutUsage(held, wantsUsage)
      const asked = wantsUsage ? (usage ?? (held === undefined ? maker.usage() : undefined)) : undefined
      return [
        ...(last === undefined ? [] : [withMetrics(last, metrics)]),
        ...queued,
        ...(asked === undefined ? [] : [asked]),
        { data: LAST },
      ]
    },
  }
}

/** Only chunks whose events give reason to are parsed again. */
function kindOf(step: Step, frame: Frame, choices: number): 'last' | 'usage' | 'finish' | 'content' {
  const has = (type: string) => step.events.some((event) => event.type === type)
  if (has('done')) return 'last'
  if (has('answer-end')) return 'finish'
  if ((has('usage') || step.events.length === 0) && isUsageChunk(frame)) return 'usage'
  return choices > 1 && choicesOf(frame).some(endsHere) ? 'finish' : 'content'
}

/** Also one whose counts nobody can read. */
function isUsageChunk(frame: Frame): boolean {
  return frame.data.includes('"usage"') && choicesOf(frame).length === 0 && isJsonObject(parsed(frame)['usage'])
}

function choicesOf(frame: Frame): readonly JsonObject[] {
  return asArray(parsed(frame)['choices'])
    .map(asObject)
    .filter((choice) => choice !== undefined)
}

function endsHere(choice: JsonObject): boolean {
  return typeof choice['finish_reason'] === 'string'
}

function parsed(frame: Frame): JsonObject {
  const value: unknown = JSON.parse(frame.data)
  return isJsonObject(value) ? value : {}
}

/** Some vendors tell the usage on the chunk that ends the answer, because we asked and not the caller. */
function withoutUsage(frame: Frame, wantsUsage: boolean): Frame {
  if (wantsUsage || !frame.data.includes('"usage"')) return frame
  const { usage, ...others } = parsed(frame)
  return isJsonObject(usage) ? { ...frame, data: JSON.stringify(others) } : frame
}

/** Adds the bill to a chunk without writing the rest of it anew. */
function withMetrics(frame: Frame, metrics: Metrics): Frame {
  const bill = writeMetrics(metrics)
  const data = frame.data.trimEnd()
  const hasOwn = data.includes('"svc_metrics"')
  if (hasOwn) return { ...frame, data: JSON.stringify({ ...parsed(frame), svc_metrics: bill }) }
  return { ...frame, data: `${data.slice(0, -1)},"svc_metrics":${JSON.stringify(bill)}}` }
}

function writeMetrics(metrics: Metrics): JsonObject {
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
