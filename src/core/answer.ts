import type { Dialect, Native, Part, UpstreamDialect } from './prompt.ts'
import type { ByteSearch } from './json.ts'

/**
 * Token usage of one upstream call. The prompt counts do not overlap: the prompt has `inputTokens` + `cacheReadTokens`
 * + `cacheWriteTokens` + `cacheWrite1hTokens`.
 */
export interface Usage {
  readonly inputTokens: number
  readonly cacheReadTokens: number
  /** Prompt tokens that the upstream caches for 5 minutes. */
  readonly cacheWriteTokens: number
  /** Prompt tokens that the upstream caches for 1 hour. */
  readonly cacheWrite1hTokens: number
  readonly outputTokens: number
  /** Included in `outputTokens`. */
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

/** The reason for the end of an answer. After `pause`, the caller must continue the turn. */
export type FinishReason = 'stop' | 'length' | 'tool-call' | 'stop-sequence' | 'filtered' | 'pause'

export interface Completion {
  readonly id: string
  /** The model name that the upstream reported. */
  readonly model: string
  readonly parts: readonly Part[]
  /**
   * Output that no part contains: all choices after the first (`n`), and the input of calls that only one format
   * supports. Its tokens are counted for the bill if the upstream reports no usage.
   */
  readonly unmappedText?: string
  readonly finish: FinishReason
  readonly stopSequence?: string
  /** Absent if the upstream reported no usage. */
  readonly usage?: Usage
  /** The received body. Absent for an answer that was assembled from a stream. */
  readonly native?: Native
}

export interface SseEvent {
  readonly event?: string
  readonly data: string
  readonly id?: string
}

/**
 * One part of a streamed answer. A delta belongs to the block that the last `…-start` part of the same kind opened.
 * Exception: deltas of several tool calls may be interleaved. `index` counts the tool calls of the answer from 0.
 */
export type StreamPart =
  | { readonly type: 'answer-start'; readonly id: string; readonly model: string }
  | { readonly type: 'text-start'; readonly isRefusal?: boolean }
  | { readonly type: 'text-delta'; readonly text: string }
  | { readonly type: 'thinking-start'; readonly redacted?: string }
  | { readonly type: 'thinking-delta'; readonly text?: string; readonly signature?: string }
  | { readonly type: 'tool-call-start'; readonly index: number; readonly id: string; readonly name: string }
  | { readonly type: 'tool-call-delta'; readonly index: number; readonly input: string }
  /** A block or field that exists only in its own dialect. */
  | { readonly type: 'opaque'; readonly native: Native }
  /** Cumulative. The last value of each field is the total. */
  | { readonly type: 'usage'; readonly usage: Partial<Usage> }
  | { readonly type: 'answer-end'; readonly finish: FinishReason; readonly stopSequence?: string }
  /** The protocol's last event. Without it, the answer is incomplete unless `StreamReader.isComplete` returns true. */
  | { readonly type: 'done' }

/** One received event of a streamed answer and its parts, if any. */
export interface StreamChunk {
  readonly parts: readonly StreamPart[]
  /** The text that this event appends to `Completion.unmappedText`. */
  readonly unmappedText?: string
  /** The received event. A writer of the same dialect forwards the event unchanged. */
  readonly native?: { readonly dialect: Dialect; readonly event: SseEvent }
}

export interface StreamReader {
  (event: SseEvent): StreamChunk
  /**
   * Returns true if only the protocol's last event is missing. Called if the body ended without that event. Absent if
   * the last event is required.
   */
  readonly isComplete?: () => boolean
}

/**
 * Returns true if events can be forwarded without parsing. Events with usage, the end of the answer, an error, or a
 * tool call without an id must be parsed.
 */
export type CanForward = (search: ByteSearch) => boolean

export interface StreamFormat {
  readonly dialect: UpstreamDialect
  createReader(): StreamReader
  /** Absent if every event must be parsed. */
  readonly canForward?: CanForward
}

/** A streamed answer. Pushes bytes in a wire format, or the chunks of a provider without a wire format. */
export interface AnswerSource {
  readonly format?: StreamFormat | undefined
  read(receiver: SourceReceiver): void
  /** Stops reading from the upstream until `resume` is called. */
  pause(): void
  resume(): void
  /** Reports that the protocol's last event has arrived. The connection can be reused once the body has ended. */
  complete(): void
  /** Closes the connection. The receiver is not called again. */
  abort(): void
}

export function isAnswerSource(answer: AsyncIterable<StreamChunk> | AnswerSource): answer is AnswerSource {
  return 'read' in answer
}

export interface SourceReceiver {
  onBytes(bytes: Uint8Array): void
  onChunk(chunk: StreamChunk): void
  onEnd(): void
  onError(error: unknown): void
}
