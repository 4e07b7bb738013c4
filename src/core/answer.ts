import type { Dialect, Native, Part } from './prompt.ts'

/**
 * What one upstream call used, in disjoint parts: the prompt is input + cacheRead + cacheWrite + cacheWrite1h.
 * Reasoning is within output.
 */
export interface Usage {
  /** Prompt tokens at the full price. */
  readonly inputTokens: number
  readonly cacheReadTokens: number
  /** Prompt tokens written to the upstream's cache for 5 minutes. */
  readonly cacheWriteTokens: number
  /** Prompt tokens written to the upstream's cache for 1 hour. */
  readonly cacheWrite1hTokens: number
  readonly outputTokens: number
  /** The part of the output that was thought and not said. */
  readonly reasoningTokens: number
}

export const NO_USAGE: Usage = {
  inputTokens: 0,
  cacheReadTokens: 0,
  cacheWriteTokens: 0,
  cacheWrite1hTokens: 0,
  outputTokens: 0,
  reasoningTokens: 0,
}

/** All tokens of the prompt, cached or not. */
export function promptTokens(usage: Usage): number {
  return usage.inputTokens + usage.cacheReadTokens + usage.cacheWriteTokens + usage.cacheWrite1hTokens
}

/** Why an answer ended. `pause` is a long turn that the caller continues. */
export type Finish = 'stop' | 'length' | 'tool-call' | 'stop-sequence' | 'filtered' | 'pause'

/** A finished answer in no dialect. */
export interface Completion {
  readonly id: string
  /** The model as the upstream names it. */
  readonly model: string
  readonly parts: readonly Part[]
  /** The text of the choices after the first (`n`), for a bill without the vendor's count. They are passed on natively. */
  readonly furtherText?: string
  readonly finish: Finish
  readonly stopSequence?: string
  /** Absent when the upstream reported none. */
  readonly usage?: Usage
  /** The body as the upstream sent it; absent when it was joined from a stream. */
  readonly native?: Native
}

/** One server-sent event as text. */
export interface Frame {
  readonly event?: string
  readonly data: string
  readonly id?: string
}

/**
 * What a piece of a streamed answer says. Deltas belong to the block that the last `…-start` of their kind opened,
 * except that deltas of several tool calls may alternate: `index` counts the tool calls of the answer from 0.
 */
export type AnswerEvent =
  | { readonly type: 'answer-start'; readonly id: string; readonly model: string }
  | { readonly type: 'text-start' }
  | { readonly type: 'text-delta'; readonly text: string }
  | { readonly type: 'thinking-start'; readonly redacted?: string }
  | { readonly type: 'thinking-delta'; readonly text?: string; readonly signature?: string }
  | { readonly type: 'tool-call-start'; readonly index: number; readonly id: string; readonly name: string }
  | { readonly type: 'tool-call-delta'; readonly index: number; readonly input: string }
  /** A block or field that only its own dialect knows. */
  | { readonly type: 'opaque'; readonly native: Native }
  /** Cumulative: the last value of each field is the truth. */
  | { readonly type: 'usage'; readonly usage: Partial<Usage> }
  | { readonly type: 'answer-end'; readonly finish: Finish; readonly stopSequence?: string }
  /** The protocol's own last event has come: only now is the answer whole. */
  | { readonly type: 'done' }

/** One frame of a streamed answer and what it says, which may be several things or nothing. */
export interface Step {
  readonly events: readonly AnswerEvent[]
  /** What this frame adds to `furtherText` of the completion. */
  readonly furtherText?: string
  /** The frame as it came; a writer of the same dialect sends it word for word. */
  readonly native?: { readonly dialect: Dialect; readonly frame: Frame }
}
