import { GatewayError } from '../core/errors.ts'
import type { JsonObject } from '../core/json.ts'
import { parseBodyInTurns } from '../formats/parse-body.ts'
import { checkJsonHeaders } from '../http/body.ts'
import { parseLimits } from '../pipeline/parse-request.ts'
import type { Services } from '../pipeline/services.ts'
import { yieldToEventLoop } from '../tokens/yield.ts'
import type { Call } from './endpoint.ts'

/** The JSON object that an admin sent. What is no JSON is a validation error like any other. */
export async function readAdminBody(
  { request }: Call,
  { bodyLimits, limits, runtime }: Pick<Services, 'bodyLimits' | 'limits' | 'runtime'>,
): Promise<JsonObject> {
  checkJsonHeaders(request, bodyLimits.maxBytes)
  const bytes = await request.body(bodyLimits)
  try {
    const { body } = await parseBodyInTurns(bytes, parseLimits(limits), { pause: yieldToEventLoop, uuid: runtime.uuid })
    return withoutUnread(body)
  } catch (error) {
    if (GatewayError.is(error) && error.kind === 'invalid-request') {
      throw new GatewayError('invalid-admin-request', error.message, error.details)
    }
    throw error
  }
}

/**
 * Fields that are ignored instead of refused: `__proto__`, which no record has, and `value`, so that a key that was
 * created can be sent back. Only a call in process can choose the secret of a key.
 */
const UNREAD: ReadonlySet<string> = new Set(['__proto__', 'value'])

function withoutUnread(body: JsonObject): JsonObject {
  return Object.fromEntries(Object.entries(body).filter(([name]) => !UNREAD.has(name)))
}

/** The `:id` of the path. */
export function idOf({ variables }: Call): string {
  return variables['id'] ?? ''
}

/** `limit` and `after` of the query. */
export function pageOf({ query }: Call): { readonly limit?: number; readonly after?: string } {
  const limit = query.get('limit')
  const after = query.get('after')
  return { ...(limit !== null && { limit: toNumber(limit) }), ...(after !== null && { after }) }
}

/** NaN for what is no number written in digits: `Number` alone would take ' ', '1e2' and '0x10'. */
function toNumber(text: string): number {
  return /^\d{1,6}$/.test(text) ? Number(text) : Number.NaN
}
