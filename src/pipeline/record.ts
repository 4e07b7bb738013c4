import { readCacheDirectives } from '../cache/cache-directives.ts'
import type { Step } from '../core/answer.ts'
import type { JsonObject } from '../core/json.ts'
import type { TextReader } from '../replay/recording.ts'
import type { Head } from './head.ts'
import type { Answered, Parts } from './stages.ts'
import { writeStream } from './write-stream.ts'

/** A whole answer as it leaves. */
export interface WholeAnswer {
  /** Without what belongs to this response only. */
  readonly head: Head
  readonly body: string
  readonly id: string
  readonly metrics: JsonObject
}

/** Keeps a whole answer for those who ask for it again: as a stream by its id, or with the same Idempotency-Key. */
export async function keepWhole(answered: Answered, answer: WholeAnswer, parts: Parts): Promise<void> {
  const { format, key, first } = answered
  const { head, body, id, metrics } = answer
  if (format.answerId !== undefined && isRecorded(answered, parts)) {
    parts.recordings.keep({ kind: 'whole', text: body, metrics }, key.id, format.answerId(id))
  }
  await first?.remember({ status: 200, head: { ...head, 'content-type': 'application/json' }, body })
}

/** The items of a batch have results of their own; `Cache-Control: no-store` wants nothing kept. */
function isRecorded({ format, caller, request }: Answered, { recordings }: Parts): boolean {
  if (!recordings.isOn || caller === undefined || format.answerId === undefined) return false
  return readCacheDirectives((name) => request.headers.get(name)).write
}

/**
 * Starts a stream and answers what its caller reads. Others may follow it; it is drawn as fast as the fastest reads, and
 * to its end when it is detached.
 */
export function startRecording(answered: Answered, steps: AsyncIterable<Step>, head: Head, parts: Parts): TextReader {
  const { format, key, caller, first, signal } = answered
  const { answerId } = format
  const isNamed = isRecorded(answered, parts)
  const name = (id: string): void => {
    if (isNamed && answerId !== undefined) {
      parts.recordings.name(recording, {
        owner: key.id,
        id: answerId(id),
        ...(caller !== undefined && { audience: caller.audience, isDetached: caller.isDetached }),
      })
    }
  }
  const { texts, farewell } = writeStream(answered, steps, name, parts)
  const recording = parts.recordings.record(texts, {
    owner: key.id,
    keep: isNamed || first !== undefined,
    farewell,
  })
  const stop = (): void => void recording.stop()
  if (signal.aborted) stop()
  else signal.addEventListener('abort', stop, { once: true })
  first?.share(head, recording)
  if (caller?.isDetached === true) {
    parts.detached.add({
      end: () => answered.abort(new Error('The gateway is closing.')),
      ended: recording.ended,
    })
  }
  return {
    next: recording.original.next,
    return: async () => {
      await recording.original.return()
      if (caller === undefined) answered.abort(new Error('The caller left.'))
      caller?.leave()
      if (caller?.isDetached === true) void recording.drain()
    },
  }
}
