import { GatewayError } from '../core/errors.ts'
import { type HeaderView, checkSteeringNames, maySteer, readFlag } from '../core/http.ts'
import { readCacheDirectives } from '../cache/cache-options.ts'
import { readSteeringHeaders, type Steering } from '../savings/tier.ts'

/**
 * Checks all headers by which a caller steers a request and returns those for the savings tiers. Throws `invalid-request`
 * before anything is reserved or spent: an ignored `X-Svc-Explain` would bill a request that was meant to be free.
 */
export function readSteering(headers: HeaderView, options: { readonly canExplain: boolean }): Steering {
  if (!maySteer(headers)) return NO_WISHES
  checkSteeringNames(headers)
  if (readFlag(headers, 'X-Svc-Explain') && !options.canExplain) throw cannotExplain()
  readFlag(headers, 'X-Svc-Detach')
  readCacheDirectives((name) => headers.get(name))
  return readSteeringHeaders(headers)
}

const NO_WISHES: Steering = { vanishing: false, recursive: false }

function cannotExplain(): GatewayError {
  return new GatewayError(
    'invalid-request',
    'X-Svc-Explain is not available for this path. Send it with a chat completion, a message or a response.',
    { param: 'X-Svc-Explain' },
  )
}
