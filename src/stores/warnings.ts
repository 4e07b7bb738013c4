import type { VectorIndex } from '../core/cache.ts'
import type { Store } from '../core/store.ts'

type WarningSource = Pick<Store | VectorIndex, 'warnings'>

/** The function is called for each request, so that creating a gateway does not read the warnings. */
export function createWarningLogger(
  sources: readonly (WarningSource | undefined)[],
  report: (warning: string) => void,
): () => void {
  let isLogged = !sources.some((source) => source?.warnings !== undefined)
  const logWarnings = async (): Promise<void> => {
    try {
      const warnings = await Promise.all(sources.map((source) => source?.warnings?.() ?? []))
      for (const warning of new Set(warnings.flat())) report(warning)
    } catch {
      isLogged = false
    }
  }
  return () => {
    if (isLogged) return
    isLogged = true
    void logWarnings()
  }
}
