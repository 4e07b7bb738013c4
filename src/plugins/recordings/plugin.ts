import { lazy } from '../../core/async.ts'
import { readCacheDirectives } from '../../http/cache-directives.ts'
import type { Responded } from '../../kernel/exchange.ts'
import type { BuiltInPlugin, Services } from '../../kernel/services.ts'
import type { StreamsOptions } from './options.ts'
import type { Recordings, RecordingsOptions } from './recordings.ts'

/** Records responses, so that a client can resume a stream. */
export function recordingsPlugin(
  streams: false | StreamsOptions | undefined,
  dependencies: Pick<RecordingsOptions, 'store' | 'now' | 'after' | 'uuid'>,
): BuiltInPlugin {
  let loaded: Recordings | undefined
  const load = lazy(
    async () => (loaded = new (await import('./replay-stream.ts')).Recordings({ ...streams, ...dependencies })),
  )
  const record = (responded: Responded, { log }: Services, write: (recordings: Recordings) => void): void => {
    if (loaded !== undefined) return write(loaded)
    const report = (cause: unknown): void =>
      log.failure('a response could not be recorded', cause, { request_id: responded.id })
    load().then(write).catch(report)
  }
  /** Batch items have no client, and store their results themselves. */
  const isRecorded = ({ format, hasClient, request }: Responded): boolean => {
    if (streams === false || !hasClient || format.responseId === undefined) return false
    return readCacheDirectives((name) => request.header(name)).allowsWrite
  }
  return {
    endpoints: async (services) => {
      const [recordings, { replayStream }] = await Promise.all([load(), import('./replay-stream.ts')])
      return [{ method: 'POST', path: '/v1/messages/:id/streams', handle: replayStream(recordings, services) }]
    },
    onResponse: (responded, { body: text, id, writeMetrics }, services) => {
      const { format, caller } = responded
      if (format.responseId === undefined || writeMetrics === undefined || !isRecorded(responded)) return
      record(responded, services, (recordings) =>
        recordings.storeResponse(
          { kind: 'whole', text, metrics: writeMetrics('summary') },
          caller.scope,
          format.responseId?.(id) ?? id,
        ),
      )
    },
    storesEvents: isRecorded,
    onStream: (responded, { buffer }, services) => {
      if (!isRecorded(responded)) return undefined
      const { format, caller, subscribers, isDetached } = responded
      return {
        onChunk: (id) =>
          record(responded, services, (recordings) =>
            recordings.register(buffer, {
              owner: caller.scope,
              id: format.responseId?.(id) ?? id,
              subscribers,
              isDetached,
            }),
          ),
      }
    },
    purge: async (scope) => (await load()).purge(scope),
    close: async () => loaded?.flush(),
  }
}
