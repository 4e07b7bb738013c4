import { anthropicFormat } from '../formats/anthropic/format.ts'
import { count } from '../pipeline/count.ts'
import { receive } from '../pipeline/receive.ts'
import type { Parts } from '../pipeline/stages.ts'
import type { Handler } from './endpoint.ts'

/** POST /v1/messages/count_tokens. */
export function countTokens(parts: Parts): Handler {
  return ({ id, startedAt, request }) => count(receive({ id, startedAt, request, format: anthropicFormat }), parts)
}
