import { chain, isPromise, type MaybePromise } from '../core/async.ts'
import { GatewayError } from '../core/errors.ts'
import { hasContextHeader, type HttpRequest } from '../core/http.ts'
import {
  APPLICATION_KEY,
  type Caller,
  type CallerContext,
  PLAIN_CALLER,
  type StoredCaller,
} from '../governance/caller.ts'
import type { VirtualKey } from '../governance/virtual-key.ts'
import type { Call, FindContext } from './call.ts'
import { type Authenticated, type Exchange } from './exchange.ts'
import type { FindKeyById, Services } from './services.ts'
import { waitForStore } from './wait-for-store.ts'

const KEY_HEADERS = ['x-bf-vk', 'x-api-key'] as const

/** @param known What the application says, if it has been asked. */
export function authenticate(
  exchange: Exchange,
  services: Services,
  known?: KnownContext,
): MaybePromise<Pick<Authenticated, 'key' | 'caller'>> {
  const { context, id, request, isSteered } = exchange
  // The time of the application does not count as time of the store.
  if (typeof context === 'function' && known === undefined)
    return askForContext(context, services, id).then((answer) => authenticate(exchange, services, answer))
  const identifiable = known === undefined ? exchange : { id, request, isSteered, ...known }
  const found = waitForStore(exchange, findCaller(identifiable, services), services)
  return isPromise(found) ? found.then((caller) => ({ key: caller.key, caller })) : { key: found.key, caller: found }
}

interface KnownContext {
  readonly context: CallerContext | undefined
}

async function askForContext(
  find: FindContext,
  services: Pick<Services, 'runtime' | 'log'>,
  id: string,
): Promise<KnownContext> {
  const { findContext } = await import('./find-context.ts')
  return { context: await findContext(find, services, id) }
}

/** What identifies the maker of a request. */
export type Identifiable = Pick<Call, 'id' | 'request' | 'context'> & {
  /** False if the request has no header of the gateway. @default unknown */
  readonly isSteered?: boolean
}

export type IdentityServices = Pick<Services, 'findKey' | 'identify' | 'runtime' | 'log'>

/** Throws if the request has neither a valid key nor a context that names a customer or a user. */
export function findCaller(identifiable: Identifiable, services: IdentityServices): MaybePromise<Caller> {
  const { id, request, context, isSteered = true } = identifiable
  if (typeof context === 'function')
    return askForContext(context, services, id).then((known) => findCaller({ ...identifiable, ...known }, services))
  const { findKey, identify, runtime } = services
  const secret = readSecret(request)
  // Official clients cannot be created without a key.
  if (context !== undefined && (secret === undefined || secret === APPLICATION_KEY.id))
    return identify({ key: undefined, context, request })
  if (secret === undefined) {
    throw new GatewayError(
      'unauthenticated',
      'The request has no key. Send one as Authorization: Bearer, x-api-key or x-bf-vk.',
    )
  }
  return chain(findKey(secret), (found) => {
    const key = checkValid(found, runtime.now())
    if (context !== undefined || key.customer !== undefined || (isSteered && hasContextHeader(request)))
      return identify({ key, context, request })
    // Written inline, because nearly all requests have such a caller.
    return { ...PLAIN_CALLER, key, scope: key.id, upstream: { keyId: key.id, payer: 'operator' } }
  })
}

/** Identifies the caller of work that was stored. Its key or customer may have been deactivated since. */
export async function findStoredCaller(
  { keyId, context }: StoredCaller,
  findKeyById: FindKeyById,
  { identify, runtime }: IdentityServices,
): Promise<Caller> {
  const key = keyId === APPLICATION_KEY.id ? undefined : checkValid(await findKeyById(keyId), runtime.now())
  return identify({ key, context, request: undefined })
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
