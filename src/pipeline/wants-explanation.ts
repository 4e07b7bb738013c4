import type { Parts, Understood } from './stages.ts'

/** True when the caller asks what would happen instead of letting it happen. */
export function wantsExplanation({ request }: Pick<Understood, 'request'>): boolean {
  return request.headers.get('x-svc-explain')?.trim().toLowerCase() === 'true'
}

/** Loads what explains when it is first asked for; see explain.ts. */
export async function explain(understood: Understood, parts: Parts): Promise<Response> {
  const explaining = await import('./explain.ts')
  return explaining.explain(understood, parts)
}
