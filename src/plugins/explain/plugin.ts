import { GatewayError } from '../../core/errors.ts'
import { hasFlag, readFlag } from '../../core/http.ts'
import type { BuiltInPlugin } from '../../kernel/services.ts'

/** Answers `X-Svc-Explain` with the plan of the request, without running it. */
export function explainPlugin(hasCache: boolean): BuiltInPlugin {
  return {
    checkHeaders: (request, { canExplain }) => {
      if (readFlag(request, 'X-Svc-Explain') && !canExplain) throw explainUnavailableError()
    },
    onRequest: (parsed, services) => {
      if (!hasFlag(parsed.request, 'x-svc-explain')) return true
      return import('./explain.ts')
        .then(({ explain }) => explain(parsed, services, hasCache))
        .finally(() => parsed.capacity?.release())
    },
  }
}

function explainUnavailableError(): GatewayError {
  return new GatewayError(
    'invalid-request',
    'X-Svc-Explain is not available for this path. Send it with a request for a chat completion, a message or a response.',
    { param: 'X-Svc-Explain' },
  )
}
