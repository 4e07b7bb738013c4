import type { Format } from '../formats/format.ts'
import { run } from '../pipeline/run.ts'
import type { Parts } from '../pipeline/stages.ts'
import type { Handler } from './endpoint.ts'

/** POST /v1/chat/completions and POST /v1/messages: one line, two formats. */
export function completions(format: Format, parts: Parts): Handler {
  return ({ id, startedAt, request }) => {
    const controller = new AbortController()
    const abort = (reason: unknown): void => controller.abort(reason)
    follow(request.signal, abort)
    return run({ id, startedAt, request, format, signal: controller.signal, abort }, parts)
  }
}

function follow(signal: AbortSignal, abort: (reason: unknown) => void): void {
  if (signal.aborted) abort(signal.reason)
  else signal.addEventListener('abort', () => abort(signal.reason), { once: true })
}
