import { hasFlag } from '../core/http.ts'
import type { MaybePromise } from '../core/async.ts'
import type { Parsed } from './exchange.ts'
import type { Services } from './services.ts'

/** Answers requests with `X-Svc-Explain`; other requests continue. The code is loaded when it is first needed. */
export function explain(parsed: Parsed, services: Services): MaybePromise<Parsed | undefined> {
  if (!hasFlag(parsed.request, 'x-svc-explain')) return parsed
  return import('./rare-stages.ts')
    .then((loaded) => loaded.explain(parsed, services))
    .finally(() => parsed.room?.leave())
}
