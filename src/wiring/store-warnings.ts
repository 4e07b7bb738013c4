import type { Store } from '../core/store.ts'
import type { VectorIndex } from '../core/cache-ports.ts'

/** A part that knows which promises its storage cannot keep. */
type Warning = Pick<Store | VectorIndex, 'warnings'>

/**
 * Returns a function that asks the parts once and reports each warning once. The gateway calls it with every request,
 * because it must do no work before the first one; while a storage is away, the next request asks again.
 */
export function createStoreWarnings(
  parts: readonly (Warning | undefined)[],
  report: (warning: string) => void,
): () => void {
  let isAsked = !parts.some((part) => part?.warnings !== undefined)
  const ask = async (): Promise<void> => {
    try {
      const found = await Promise.all(parts.map((part) => part?.warnings?.() ?? []))
      for (const warning of new Set(found.flat())) report(warning)
    } catch {
      isAsked = false
    }
  }
  return () => {
    if (isAsked) return
    isAsked = true
    void ask()
  }
}
