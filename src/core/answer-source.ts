import type { Frame, Step } from './answer.ts'
import type { ByteSearch } from './byte-search.ts'
import type { UpstreamDialect } from './prompt.ts'

/** Reads the events of one upstream stream. */
export interface StepReader {
  (frame: Frame): Step
  /**
   * Asked when a body ended cleanly without the protocol's own last event: true when nothing is missing but that event.
   * Absent: the last event is never optional.
   */
  readonly isWhole?: () => boolean
}

/**
 * Decides whether whole events of a stream may leave as the received bytes without being parsed: they hold nothing that
 * the gateway must know (usage, the end of the answer, an error) or rewrite (tool calls without an id).
 */
export type IsPlain = (search: ByteSearch) => boolean

/** How the bytes of a stream are read. */
export interface StreamFormat {
  readonly dialect: UpstreamDialect
  stepReader(): StepReader
  /** Absent: every event is parsed. */
  readonly isPlain?: IsPlain
}

/** A streamed answer that sends by itself: bytes of a wire format, or steps of a provider that has none. */
export interface AnswerSource {
  /** Absent for a source of steps. */
  readonly format?: StreamFormat | undefined
  /** Begins to send; called once. */
  read(receiver: SourceReceiver): void
  /** The receiver's reader is too slow: nothing more is read from the upstream until `resume`. */
  pause(): void
  resume(): void
  /** The protocol's last event has come: the connection may carry the next call once its body has ended. */
  complete(): void
  /** Closes the connection; the receiver is not called again. */
  abort(): void
}

export interface SourceReceiver {
  onBytes(bytes: Uint8Array): void
  onStep(step: Step): void
  onEnd(): void
  onError(error: unknown): void
}
