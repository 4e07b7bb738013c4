import { supportsDialect } from '../../upstream/attempts.ts'
import type { Responded } from '../../kernel/exchange.ts'

/** A provider stores only responses to requests in its own format. */
export function storingProvider({
  plan,
  route,
  format,
  plugins,
}: Pick<Responded, 'plan' | 'route' | 'format' | 'plugins'>): string | undefined {
  if (plan.kind === 'replay' || route === undefined || !supportsDialect(route.provider, format.dialect))
    return undefined
  // The provider stores a response that plugins have not seen.
  if (plugins?.changesResponse === true) return undefined
  return route.provider.name
}
