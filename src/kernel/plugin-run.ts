/** The form in which the kernel sees the user's plugins on one request. plugins/custom implements it. */
import type { Completion, FinishReason } from '../core/completion.ts'
import type { GatewayError } from '../core/errors.ts'
import type { Prompt } from '../core/prompt.ts'
import type { StreamWriter } from '../formats/format.ts'
import type { Attempts } from '../upstream/attempts.ts'

/** The plugins of the gateway on one request. */
export interface PluginRun {
  /** The prompt before plugins changed it. Responses repeat its fields, and it is stored for later turns. */
  readonly receivedPrompt: Prompt | undefined
  /** True if a plugin may change the response. Then no other request may follow the stream. */
  readonly changesResponse: boolean
  /** The whole response as the plugins made it. @default the upstream's completion */
  completion?: Completion
  createWriter(writer: StreamWriter): StoppableWriter
  observeAttempts(attempts: Attempts): Attempts
}

/** A writer that can end the response before the upstream does. */
export interface StoppableWriter extends StreamWriter {
  readonly stop?: ResponseStop | undefined
  /** Called when `stop` is set. Present if the writer may set it. */
  onStop?: () => void
}

/** How a response ends early: with an error, or with what has been written. */
export type ResponseStop = { readonly failure: GatewayError } | { readonly finish: FinishReason }
