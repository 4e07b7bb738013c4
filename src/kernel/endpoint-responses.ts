/** Responses of endpoints other than those of model requests. */
import type { JsonObject } from '../core/json.ts'
import type { Caller } from '../governance/caller.ts'
import type { Call } from './call.ts'
import type { HeaderRecord } from '../core/http.ts'
import type { Services } from './services.ts'
import { baseHeaders, sendJson } from './response-headers.ts'

export async function sendWithRateStatus(
  call: Call,
  caller: Caller,
  { ledger }: Pick<Services, 'ledger'>,
  body: JsonObject,
): Promise<void> {
  const headers = { ...noStoreHeaders(call), ...baseHeaders(call.id, await ledger.status(caller)) }
  sendJson(call.sink, 200, headers, JSON.stringify(body))
}

/** Proxies do not know that `x-api-key` identifies the caller, and could send a cached response to another caller. */
export function noStoreHeaders({ id }: Pick<Call, 'id'>): HeaderRecord {
  return { 'x-request-id': id, 'request-id': id, 'cache-control': 'no-store' }
}
