import type { ResponseSource, StreamChunk } from '../../src/core/completion.ts'
import { ResponseTranslator } from '../../src/upstream/response-translator.ts'
import type { Route } from '../../src/core/ports.ts'
import type { StreamWriter } from '../../src/formats/format.ts'
import { isResponseSource, upstreamError } from '../../src/upstream/attempts.ts'
import { createChunkSource, UpstreamStream } from '../../src/upstream/upstream-stream.ts'
import { PullQueue } from './pull-queue.ts'

/** The chunks of a streamed response, pulled one by one. */
export type ChunkReader = AsyncIterableIterator<StreamChunk>

type StreamedResponse = AsyncIterable<StreamChunk> | ResponseSource | UpstreamStream

/** Returns true if the chunks contain the protocol's last event. */
export function isComplete(chunks: readonly StreamChunk[]): boolean {
  return chunks.some(({ parts }) => parts.some(({ type }) => type === 'done'))
}

/** Opens the stream of a candidate's answer, for `readChunks`. */
export function createChunkStream(
  { provider }: Route,
  response: AsyncIterable<StreamChunk> | ResponseSource,
): UpstreamStream {
  const source = isResponseSource(response) ? response : createChunkSource(response, provider.name)
  return new UpstreamStream(source, createChunkTranslator(source, provider.name))
}

/** Creates a translator that collects chunks for `readChunks` instead of writing them. */
function createChunkTranslator(source: ResponseSource, provider = 'tiny'): ResponseTranslator {
  return new ResponseTranslator({
    format: source.format,
    writer: new ChunkCollector(),
    isNumbered: false,
    toError: (what, cause) => upstreamError(provider, what, cause),
  })
}

/**
 * Reads a response through a translator, as the gateway does. The source is paused while no reader waits for a chunk.
 */
export function readChunks(response: StreamedResponse): ChunkReader {
  if (response instanceof UpstreamStream) return readFrom(response)
  const source = isResponseSource(response) ? response : createChunkSource(response, 'tiny')
  const stream = new UpstreamStream(source, createChunkTranslator(source))
  const queue = getQueue(stream)
  stream.open({ after: () => () => {} }, 0).catch((error: unknown) => queue.break(error))
  return readFrom(stream)
}

function readFrom(stream: UpstreamStream): ChunkReader {
  const queue = getQueue(stream)
  queue.onDemand = (isWanted) => (isWanted ? stream.resume() : stream.pause())
  stream.attach({ onChunk: () => {}, onComplete: () => queue.end(), onError: (error) => queue.break(error) })
  stream.pause()
  return queue.iterate(() => stream.abort())
}

/** Queues the chunks it receives, and writes nothing. */
class ChunkCollector implements StreamWriter {
  readonly chunks = new PullQueue<StreamChunk>()

  write(chunk: StreamChunk): readonly [] {
    this.chunks.push(chunk)
    return []
  }

  end(): readonly [] {
    return []
  }
}

function getQueue({ translator }: UpstreamStream): PullQueue<StreamChunk> {
  if (translator.writer instanceof ChunkCollector) return translator.writer.chunks
  throw new Error('The translator of this stream was not created by createChunkTranslator')
}
