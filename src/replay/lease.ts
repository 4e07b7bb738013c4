import type { Quota, Store } from '../core/store.ts'
import type { Runtime } from '../core/ports.ts'

/** A claim of this process on a name in the store. Renewed until `end`; expires after the death of the process. */
export interface Lease {
  /**
   * Ends the lease: replaces the stored text with `value`, or deletes it. Resolves with false if the store failed or
   * another process has the lease. Never rejects.
   */
  end(value: string | undefined, ttlMs?: number): Promise<boolean>
}

export interface LeaseRequest {
  readonly name: string
  /** The current value. */
  readonly expected: string | undefined
  /** A value that no other process writes. */
  readonly text: string
  readonly leaseMs: number
  /** The quota that the name counts against. */
  readonly quota: Quota
}

/** Number of renewals per lease time, so that a single renewal may fail. */
const RENEWALS = 3

/** Takes a lease. Resolves with undefined if another value is stored. Rejects if the store fails. */
export async function takeLease(
  { store, after }: { readonly store: Pick<Store, 'swap'> } & Pick<Runtime, 'after'>,
  { name, expected, text, leaseMs, quota }: LeaseRequest,
): Promise<Lease | undefined> {
  let hasEnded = false
  let cancel: () => void = () => {}
  try {
    if (!(await store.swap(name, expected, text, { ttlMs: leaseMs, quota }))) return undefined
  } catch (error) {
    // The swap may have succeeded although the store's answer was lost.
    store.swap(name, text, undefined).catch(() => {})
    throw error
  }

  const renew = async (): Promise<void> => {
    const isOurs = await store.swap(name, text, text, { ttlMs: leaseMs, quota }).catch(() => true)
    if (isOurs && !hasEnded) renewLater()
  }
  const renewLater = (): void => {
    cancel = after(leaseMs / RENEWALS, () => void renew(), { isBackground: true })
  }
  renewLater()

  return {
    end: async (value, ttlMs) => {
      hasEnded = true
      cancel()
      const how = ttlMs === undefined ? {} : { ttlMs, quota }
      return store.swap(name, text, value, how).catch(() => false)
    },
  }
}
