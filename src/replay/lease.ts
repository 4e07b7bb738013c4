import type { Quota, Store } from '../core/store.ts'
import type { Runtime } from '../core/ports.ts'

/**
 * A claim of this process on a name in the store. The process renews the claim until `end`. If the process dies, the
 * claim expires.
 */
export interface Lease {
  /**
   * Ends the lease. Replaces the stored string with `value`, or deletes it. Resolves with false if the store fails or
   * another process holds the lease. Never rejects.
   */
  end(value: string | undefined, ttlMs?: number): Promise<boolean>
}

export interface LeaseRequest {
  readonly name: string
  /** The current value of the name. */
  readonly expected: string | undefined
  /** The stored value during the lease. Each process must use a different value. */
  readonly text: string
  readonly leaseMs: number
  readonly quota: Quota
}

/** Number of renewals per lease duration. A single renewal may fail. */
const RENEWALS_PER_LEASE = 3

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
    // The swap may have succeeded although its reply was lost.
    store.swap(name, text, undefined).catch(() => {})
    throw error
  }

  const renew = async (): Promise<void> => {
    const isOurs = await store.swap(name, text, text, { ttlMs: leaseMs, quota }).catch(() => true)
    if (isOurs && !hasEnded) renewLater()
  }
  const renewLater = (): void => {
    cancel = after(leaseMs / RENEWALS_PER_LEASE, () => void renew(), { isBackground: true })
  }
  renewLater()

  return {
    end: async (value, ttlMs) => {
      hasEnded = true
      cancel()
      const options = ttlMs === undefined ? {} : { ttlMs, quota }
      return store.swap(name, text, value, options).catch(() => false)
    },
  }
}
