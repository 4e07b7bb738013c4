import { type AnswerSource, type Completion, isAnswerSource, type StreamChunk } from '../core/answer.ts'
import { isTooDeep } from '../core/json.ts'
import type { Route, Runtime } from '../core/ports.ts'
import { toStreamChunks } from '../core/stream-chunks.ts'
import { AnswerTranslator } from '../upstream/answer-translator.ts'
import { upstreamError } from '../upstream/attempts.ts'
import { createChunkSource, createReplaySource, UpstreamStream } from '../upstream/upstream-stream.ts'
import type { Planned } from './exchange.ts'
import { createWriteContext } from './response.ts'

/** Code for streamed answers, loaded with the first one. */
export { respondWithStream } from './stream-answer.ts'

/**
 * Returns the stream of a provider's answer for the caller. The translator forwards plain events unparsed if the
 * caller and the upstream use the same format and only one choice was requested.
 */
export function createStream(
  planned: Planned,
  { provider }: Route,
  answer: AsyncIterable<StreamChunk> | AnswerSource,
): UpstreamStream {
  const { format, prompt } = planned
  const source = isAnswerSource(answer) ? answer : createChunkSource(answer, provider.name)
  const translator = new AnswerTranslator({
    format: source.format,
    writer: format.createStreamWriter(createWriteContext(planned)),
    isSameFormat: source.format?.dialect === format.dialect && (prompt.settings.choices ?? 1) === 1,
    isNumbered: format.answerId !== undefined,
    toError: (problem, cause) => upstreamError(provider.name, problem, cause),
    checkEvent: (data) => {
      if (isTooDeep(data)) throw upstreamError(provider.name, 'sent an event that is nested too deeply')
    },
  })
  return new UpstreamStream(source, translator)
}

/** Returns an open stream of a stored answer, or of the live stream of an identical request. */
export function replayAsStream(
  answer: Completion | AnswerSource,
  planned: Pick<Planned, 'format' | 'prompt' | 'startedAt' | 'id' | 'requestBody'>,
  { runtime }: { readonly runtime: Pick<Runtime, 'after'> },
): UpstreamStream {
  const translator = new AnswerTranslator({
    writer: planned.format.createStreamWriter(createWriteContext(planned)),
    isNumbered: planned.format.answerId !== undefined,
    toError: (problem) => upstreamError('cache', problem),
  })
  const source = 'read' in answer ? answer : createReplaySource(toStreamChunks(answer))
  const stream = new UpstreamStream(source, translator)
  // The listener of the stream receives the error, too.
  stream.open({ after: runtime.after }, 0).catch(() => {})
  return stream
}
