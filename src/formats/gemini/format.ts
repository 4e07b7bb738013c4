import { GatewayError } from '../../core/errors.ts'
import { asObject, asString, type JsonObject } from '../../core/json.ts'
import type { UpstreamFormat } from '../format.ts'
import { readFailure as readChatFailure } from '../openai/failure.ts'
import { readCompletion } from './answer.ts'
import { stepReader } from './stream-reader.ts'
import { writePrompt } from './write-prompt.ts'

/** The format of Google's `generateContent`, for upstreams alone: no caller speaks it to the gateway. */
export const geminiFormat: UpstreamFormat = {
  dialect: 'gemini',
  writePrompt,
  readCompletion,
  stepReader,
  readFailure,
}

/** Its errors have the fields of the chat format. A wrong key is answered with 400, which must not blame the caller. */
function readFailure(status: number, body: JsonObject | undefined): GatewayError {
  const error = asObject(body?.['error'])
  const isOurKey = status === 400 && /API[ _]key/i.test(asString(error?.['message']) ?? '')
  if (!isOurKey) return readChatFailure(status, body)
  return new GatewayError(
    'upstream',
    'The model provider refused the credentials of the gateway. Notify its operator.',
    {
      advice: { shouldRetry: 'false' },
    },
  )
}
