/** What the hooks of built-in plugins receive and return. The hooks themselves are in services.ts. */
import type { Bill } from '../billing/bill.ts'
import type { GatewayError } from '../core/errors.ts'
import type { HeaderRecord } from '../core/http.ts'
import type { JsonObject } from '../core/json.ts'
import type { Message, ReceivedBody } from '../core/prompt.ts'
import type { WriteMetrics } from '../formats/format.ts'
import type { EventBuffer } from '../streams/event-buffer.ts'
import type { ResolvedModel } from './exchange.ts'
import type { PromptChange } from './plugin.ts'

export interface ChangeableInputs {
  /** Throws if plugins could not read the inputs. */
  checkReadable(): void
  /** Throws for an invalid change. */
  read(change: PromptChange): readonly Message[]
}

export interface ReadBody {
  readonly body: JsonObject
  /** Absent if the body must be serialized again. */
  readonly received?: ReceivedBody | undefined
}

export interface CompletedBody extends ReadBody {
  /** Present if only some providers have what the body refers to. */
  readonly restrictRoutes?: (resolved: ResolvedModel) => ResolvedModel
}

export interface WholeResponse {
  /** Headers that are repeated when the response is replayed. */
  readonly headers: Readonly<HeaderRecord>
  readonly body: string
  readonly id: string
  readonly writeMetrics?: WriteMetrics
}

export interface StreamedResponse {
  /** Headers that are repeated when the response is replayed. */
  readonly headers: Readonly<HeaderRecord>
  readonly buffer: EventBuffer
}

/** Follows one stream. */
export interface StreamObserver {
  /** Called with each chunk from the one that contains the id of the response. */
  onChunk?(id: string): void
  /** Settles later and returns true if the vendor continues to generate a response whose stream has been interrupted. */
  takeOver?(id: string, streamedBill: () => Bill | undefined): boolean
  /** Receives the data of the last event of a complete stream. */
  onComplete?(lastData: string | undefined): void
}

export interface FailedResponse {
  readonly failure: GatewayError
  readonly headers: Readonly<HeaderRecord>
  readonly body: string
}
