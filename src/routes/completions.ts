import type { Format } from '../formats/format.ts'
import { receive } from '../pipeline/receive.ts'
import { run } from '../pipeline/run.ts'
import type { Parts } from '../pipeline/stages.ts'
import type { Handler } from './endpoint.ts'

/** POST /v1/chat/completions and POST /v1/messages: one line, two formats. */
export function completions(format: Format, parts: Parts): Handler {
  return ({ id, startedAt, request }) => {
    const received = receive({ id, startedAt, request, format })
    const response = run(received, parts)
    if (received.caller.isDetached) {
      parts.detached.add({ end: () => received.abort(new Error('The gateway is closing.')), ended: response })
    }
    return response
  }
}
