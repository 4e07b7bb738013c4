/**
 * Authenticates operators, as authenticate.ts does callers. Not on the way of model requests: part of the kernel because the
 * endpoints of three plugins (admin, audit, metrics) need it, and plugins do not import each other.
 */
import { GatewayError } from '../core/errors.ts'
import type { BodyLimits, HttpRequest } from '../core/http.ts'
import type { Runtime } from '../core/ports.ts'
import { isSameSecret } from '../governance/virtual-key.ts'
import { lazyBody, shareBody, toWebRequest } from '../http/web-handler.ts'
import { readBearer } from './authenticate.ts'
import { IncomingCall, type Call, type Handler } from './call.ts'
import { sendJson } from './response-headers.ts'
import type { Services } from './services.ts'
import { isTrueWithin } from '../core/is-true-within.ts'
import { noStoreHeaders } from './endpoint-responses.ts'

/**
 * Authorization of the admin API and the metrics. If neither field is set, their endpoints respond with 401. Exception:
 * `GET …/virtual-keys/limits` always requires a virtual key instead.
 */
export interface AdminOptions {
  /** The admin key, sent as `Authorization: Bearer` or `x-admin-key`. At least 16 characters. */
  readonly key?: string | undefined
  /**
   * Returns true to permit the request. May read the body. For any other value, a rejection, or no result within 10
   * seconds, the gateway responds with 401. If `key` is also set, either check suffices.
   */
  readonly authorize?: (request: Request) => boolean | Promise<boolean>
}

/** Returns a request whose body can still be read. Throws `unauthenticated`. */
type Authorize = (request: HttpRequest, limits: BodyLimits) => Promise<HttpRequest>

const AUTHORIZE_TIMEOUT_MS = 10_000

function createAuthorize(admin: AdminOptions | undefined, runtime: Pick<Runtime, 'after'>): Authorize {
  const { key, authorize } = admin ?? {}
  return async (request, limits) => {
    if (key === undefined && authorize === undefined) {
      throw new GatewayError(
        'unauthenticated',
        'The admin API is not configured. Pass `admin: { key }` with at least 16 characters, or `admin: { authorize }`, to createGateway, and send the key as Authorization: Bearer or x-admin-key.',
        { code: 'admin_not_configured' },
      )
    }
    if (key !== undefined && hasAdminKey(request, key)) return request
    if (authorize !== undefined) {
      const shared = shareBody(request)
      if (
        await isTrueWithin(
          AUTHORIZE_TIMEOUT_MS,
          () => authorize(toWebRequest(shared, () => lazyBody(shared, limits))),
          runtime,
        )
      )
        return shared
    }
    throw new GatewayError(
      'unauthenticated',
      'This path requires admin credentials, such as the admin key sent as Authorization: Bearer or x-admin-key.',
      { code: 'invalid_admin_key' },
    )
  }
}

function hasAdminKey(request: HttpRequest, key: string): boolean {
  const secrets = [request.header('x-admin-key') ?? '', readBearer(request) ?? '']
  // Both headers are always compared. Otherwise, the response time would reveal which header matches.
  return secrets.filter((secret) => isSameSecret(secret, key)).length > 0
}

/** Protects endpoints of operators. */
export interface Gate {
  readonly requireAdmin: (handle: Handler) => Handler
  readonly respondWith: (action: (call: Call) => Promise<object>, status?: number) => Handler
}

export function createGate(
  admin: AdminOptions | undefined,
  { runtime, bodyLimits }: Pick<Services, 'runtime' | 'bodyLimits'>,
): Gate {
  const authorize = createAuthorize(admin, runtime)
  const requireAdmin: Gate['requireAdmin'] = (handle) => async (call) => {
    const { id, startedAt, sink, variables, context } = call
    const request = await authorize(call.request, bodyLimits)
    return handle(new IncomingCall({ id, startedAt, request, sink, context }, variables))
  }
  const respondWith: Gate['respondWith'] = (action, status = 200) =>
    requireAdmin(async (call) => sendJson(call.sink, status, noStoreHeaders(call), JSON.stringify(await action(call))))
  return { requireAdmin, respondWith }
}
