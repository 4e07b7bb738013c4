import { chain, type MaybePromise } from '../core/async.ts'
import { GatewayError } from '../core/errors.ts'
import type { HttpRequest } from '../core/http.ts'
import type { VirtualKey } from '../governance/virtual-key.ts'
import type { RateStatus } from '../governance/limits.ts'
import { type Authenticated, type Exchange } from './exchange.ts'
import type { Services } from './services.ts'
import { waitForStore } from './wait-for-store.ts'

const KEY_HEADERS = ['x-bf-vk', 'x-api-key'] as const

export function authenticate(exchange: Exchange, services: Services): MaybePromise<Pick<Authenticated, 'key'>> {
  const found = waitForStore(exchange, findCallerKey(exchange.request, services), services)
  return chain(found, (key) => ({ key }))
}

export function findCallerKey(
  request: Pick<HttpRequest, 'header'>,
  { findKey, runtime }: Pick<Services, 'findKey' | 'runtime'>,
): MaybePromise<VirtualKey> {
  const secret = readSecret(request)
  if (secret === undefined) {
    throw new GatewayError(
      'unauthenticated',
      'The request has no key. Send one as Authorization: Bearer, x-api-key or x-bf-vk.',
    )
  }
  return chain(findKey(secret), (key) => checkValid(key, runtime.now()))
}

export function checkValid(key: VirtualKey | undefined, now: number): VirtualKey {
  if (key !== undefined && key.active && (key.expiresAt === undefined || now < key.expiresAt)) return key
  throw new GatewayError(
    'unauthenticated',
    'The key is unknown, inactive or expired. Check the key, or ask the operator of the gateway for a new one.',
  )
}

/** Throws 401 for two different secrets, because it would be unclear which key to use. */
function readSecret(request: Pick<HttpRequest, 'header'>): string | undefined {
  let secret = readBearer(request)
  for (const name of KEY_HEADERS) {
    const value = request.header(name)
    if (value === undefined || value === '') continue
    const candidate = value.trim()
    if (secret !== undefined && candidate !== secret) throw conflictingKeys()
    secret = candidate
  }
  return secret
}

function conflictingKeys(): GatewayError {
  return new GatewayError(
    'unauthenticated',
    'The request contains two different keys. Send the key once, as x-bf-vk, x-api-key or Authorization: Bearer.',
  )
}

export function readBearer(request: Pick<HttpRequest, 'header'>): string | undefined {
  const value = request.header('authorization')
  if (value === undefined || value.slice(0, 7).toLowerCase() !== 'bearer ') return undefined
  const token = value.slice(7).trim()
  return token === '' ? undefined : token
}

export async function rateStatusOfCaller(
  request: Pick<HttpRequest, 'header'>,
  services: Pick<Services, 'findKey' | 'ledger' | 'runtime'>,
): Promise<RateStatus> {
  try {
    return await services.ledger.status(await findCallerKey(request, services))
  } catch {
    return services.ledger.status(undefined)
  }
}
