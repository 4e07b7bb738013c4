import { ZERO } from '../core/money.ts'
import type { Parts, Planned, Reserved } from './stages.ts'

/** How to answer: from memory, or by asking with the smallest prompt that pays. Never fails a request. */
export async function plan(reserved: Reserved, parts: Parts): Promise<Planned> {
  const { prompt, resolved, size, wishes, key } = reserved
  if (prompt.native.value['thread'] !== undefined) return passthrough(reserved)
  const route = resolved.routes[0]
  const optimized = await parts.waterfall({
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
  const { rewrite } = optimized
  const counted = { original: optimized.tokens, sent: rewrite?.tokens ?? optimized.tokens }
  return { ...reserved, plan: { kind: 'ask', prompt: rewrite?.prompt ?? prompt, optimized, counted } }
}

function passthrough(reserved: Reserved): Planned {
  const counted = { original: reserved.size.estimate, sent: reserved.size.estimate }
  const optimized = { tokens: reserved.size.estimate, spent: ZERO, verdicts: [] }
  return { ...reserved, plan: { kind: 'ask', prompt: reserved.prompt, optimized, counted } }
}
