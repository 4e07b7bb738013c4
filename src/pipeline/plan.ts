import { add, ZERO } from '../core/money.ts'
import { KEEP_NOTHING, recall, type Recalled } from './recall.ts'
import type { Parts, Planned, Reserved } from './stages.ts'
import { createTries } from './tries.ts'

/** How to answer: from memory, or by asking with the smallest prompt that pays. Never fails a request. */
export async function plan(reserved: Reserved, parts: Parts): Promise<Planned> {
  if (isThread(reserved)) return untouched(reserved)
  const recalled = await recall(reserved, parts)
  if ('replay' in recalled) return { ...reserved, plan: recalled.replay }
  try {
    return await optimize(reserved, recalled, parts)
  } catch (error) {
    recalled.keep.finish({ status: 500 })
    throw error
  }
}

async function optimize(reserved: Reserved, recalled: Recalled, parts: Parts): Promise<Planned> {
  const { prompt, resolved, size, wishes, key } = reserved
  const route = resolved.routes[0]
  const rewritten = await parts.waterfall({
    prompt,
    modelName: resolved.name,
    model: route.model,
    tokens: size.estimate,
    wishes,
    owner: key.id,
    small: parts.smallModel(route),
    signal: reserved.signal,
    now: parts.runtime.now(),
  })
  const optimized = { ...rewritten, spent: add(rewritten.spent, recalled.spent) }
  const { rewrite } = optimized
  const counted = { original: optimized.tokens, sent: rewrite?.tokens ?? optimized.tokens }
  const tries = createTries(reserved.signal)
  return {
    ...reserved,
    plan: { kind: 'ask', prompt: rewrite?.prompt ?? prompt, optimized, counted, keep: recalled.keep, tries },
  }
}

/** A thread's earlier turns are the upstream's: neither can they be compared, nor cut. */
export function isThread({ prompt }: Pick<Reserved, 'prompt'>): boolean {
  return prompt.native.value['thread'] !== undefined
}

/** The plan of a request that is sent as it came. */
export function untouched(reserved: Reserved): Planned {
  const tokens = reserved.size.estimate
  const optimized = { tokens, spent: ZERO, verdicts: [] }
  const counted = { original: tokens, sent: tokens }
  const tries = createTries(reserved.signal)
  return {
    ...reserved,
    plan: { kind: 'ask', prompt: reserved.prompt, optimized, counted, keep: KEEP_NOTHING, tries },
  }
}
