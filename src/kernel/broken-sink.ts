import type { ResponseSink } from '../core/http.ts'

/** Reports and disconnects a sink that has thrown. Never throws, because nothing can be sent to the caller anymore. */
export function destroyBrokenSink(sink: Pick<ResponseSink, 'destroy'>, report: () => void): void {
  for (const step of [report, () => sink.destroy()]) {
    try {
      step()
    } catch {
      // Ignored, because it would be an unhandled rejection, or end the process.
    }
  }
}
