import { GatewayError } from '../core/errors.ts'
import { readSecret } from '../http/credentials.ts'
import type { RateStatus } from '../governance/reservation.ts'
import type { VirtualKey } from '../governance/virtual-key.ts'
import type { Admitted, Parts, Received } from './stages.ts'

/** Whose request it is. */
export async function admit(received: Received, parts: Parts): Promise<Admitted> {
  return { ...received, key: await findCaller(received.request.headers, parts) }
}

/** The key that the headers carry; 401 for a missing, unknown, inactive or expired one, all in the same words. */
export async function findCaller(headers: Headers, parts: Pick<Parts, 'findKey' | 'runtime'>): Promise<VirtualKey> {
  const secret = readSecret(headers)
  if (secret === undefined) {
    throw new GatewayError(
      'unauthenticated',
      'The request carries no key. Send one as Authorization: Bearer, x-api-key or x-bf-vk.',
    )
  }
  return checkValid(await parts.findKey(secret), parts.runtime.now())
}

/** What `X-RateLimit-*` say of a key on an error. Never rejects: where the store cannot tell, they say what a caller without a key is told. */
export function rateToTell(key: VirtualKey | undefined, { ledger }: Pick<Parts, 'ledger'>): Promise<RateStatus> {
  return ledger.status(key).catch(() => ledger.status(undefined))
}

/** The same for whoever sent these headers. */
export async function rateOfCaller(
  headers: Headers,
  parts: Pick<Parts, 'findKey' | 'ledger' | 'runtime'>,
): Promise<RateStatus> {
  const key = await findCaller(headers, parts).catch(() => undefined)
  return rateToTell(key, parts)
}

/** The key when it may be used now; else 401. */
export function checkValid(key: VirtualKey | undefined, now: number): VirtualKey {
  if (key !== undefined && isValid(key, now)) return key
  throw new GatewayError('unauthenticated', 'The key is not valid here: it is unknown, inactive or expired.')
}

function isValid(key: VirtualKey, now: number): boolean {
  return key.active && (key.expiresAt === undefined || now < key.expiresAt)
}
