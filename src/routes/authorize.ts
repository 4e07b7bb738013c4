import { GatewayError } from '../core/errors.ts'
import type { Runtime } from '../core/ports.ts'
import { isSameSecret } from '../governance/secret.ts'
import type { BodyLimits, HttpRequest } from '../core/http.ts'
import { readBearer } from '../http/credentials.ts'
import { SharedRequest, webRequestOf } from '../http/web-request.ts'

/** Authorization of the admin API and the metrics. With neither field they answer 401 and say how to configure it. */
export interface AdminOptions {
  /** Sent as `Authorization: Bearer` or `x-admin-key`. At least 16 characters. */
  readonly key?: string
  /**
   * Decides by method, address and headers of the request; a body that is read is kept for the gateway.
   * A rejection, anything but `true`, or no answer within 10 seconds is a 401. With `key` too, either of them suffices.
   */
  readonly authorize?: (request: Request) => boolean | Promise<boolean>
}

/**
 * Returns the request to go on with, whose body can still be read. Throws `unauthenticated` for a request that may not use
 * the admin API.
 */
export type Authorize = (request: HttpRequest, limits: BodyLimits) => Promise<HttpRequest>

const DEADLINE_MS = 10_000

export function createAuthorize(admin: AdminOptions | undefined, runtime: Pick<Runtime, 'after'>): Authorize {
  const { key, authorize } = admin ?? {}
  return async (request, limits) => {
    if (key === undefined && authorize === undefined) throw notConfigured()
    if (key !== undefined && carries(request, key)) return request
    if (authorize !== undefined) {
      const shared = new SharedRequest(request)
      if (await agrees(() => authorize(webRequestOf(shared, limits)), runtime)) return shared
    }
    throw new GatewayError(
      'unauthenticated',
      'This needs the admin key, sent as Authorization: Bearer or x-admin-key. The key of a caller does not suffice.',
      { code: 'invalid_admin_key' },
    )
  }
}

function carries(request: HttpRequest, key: string): boolean {
  const given = [request.header('x-admin-key') ?? '', readBearer(request) ?? '']
  return given.filter((secret) => isSameSecret(secret, key)).length > 0
}

/** An error during the decision denies permission. */
async function agrees(decide: () => boolean | Promise<boolean>, { after }: Pick<Runtime, 'after'>): Promise<boolean> {
  let cancel: () => void = () => {}
  const late = new Promise<boolean>((resolve) => {
    cancel = after(DEADLINE_MS, () => resolve(false))
  })
  try {
    return (await Promise.race([decide(), late])) === true
  } catch {
    return false
  } finally {
    cancel()
  }
}

function notConfigured(): GatewayError {
  return new GatewayError(
    'unauthenticated',
    'The admin API is not configured. Give createGateway `admin: { key }` of at least 16 characters, or `admin: { authorize }`, and send the key as Authorization: Bearer or x-admin-key.',
    { code: 'admin_not_configured' },
  )
}
