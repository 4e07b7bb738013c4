import { hasFlag } from '../core/steering-headers.ts'
import type { Parts, Understood } from './stages.ts'

/** True when the caller asks what would happen instead of letting it happen. */
export function wantsExplanation({ request }: Pick<Understood, 'request'>): boolean {
  return hasFlag(request.headers, 'X-Svc-Explain')
}

/** Loads what explains when it is first asked for; see explain.ts. */
export async function explain(understood: Understood, parts: Parts): Promise<Response> {
  const explaining = await import('./explain.ts')
  return explaining.explain(understood, parts)
}
