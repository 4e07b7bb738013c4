import { promptTokens, type Usage } from '../core/answer.ts'

/** The most tokens that one call can have used. */
export interface Ceiling {
  readonly prompt: number
  readonly output: number
}

/** Tokens that an upstream reported beyond the ceiling. */
export interface CutOff {
  readonly promptTokens: number
  readonly completionTokens: number
}

/** The prompt's parts in the order in which they give way: the part at the list price first, the cheapest last. */
const PROMPT_PARTS = ['inputTokens', 'cacheWrite1hTokens', 'cacheWriteTokens', 'cacheReadTokens'] as const

/** The usage without what no call of this size can have used: one wrong report must not empty a budget. */
export function clampUsage(usage: Usage, ceiling: Ceiling): { readonly usage: Usage; readonly cutOff?: CutOff } {
  const cutOff = {
    promptTokens: Math.max(0, promptTokens(usage) - ceiling.prompt),
    completionTokens: Math.max(0, usage.outputTokens - ceiling.output),
  }
  if (cutOff.promptTokens === 0 && cutOff.completionTokens === 0) return { usage }
  const outputTokens = usage.outputTokens - cutOff.completionTokens
  const reasoningTokens = Math.min(usage.reasoningTokens, outputTokens)
  return { usage: { ...usage, ...lessPrompt(usage, cutOff.promptTokens), outputTokens, reasoningTokens }, cutOff }
}

function lessPrompt(usage: Usage, excess: number): Partial<Usage> {
  const kept: { -readonly [part in (typeof PROMPT_PARTS)[number]]?: number } = {}
  let left = excess
  for (const part of PROMPT_PARTS) {
    const cut = Math.min(left, usage[part])
    kept[part] = usage[part] - cut
    left -= cut
  }
  return kept
}
