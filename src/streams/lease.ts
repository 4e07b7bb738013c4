import type { Runtime } from '../core/ports.ts'
import type { Quota, Store } from '../core/store.ts'

/** This process's claim on a name in the store, renewed until `end`. If the process dies, the claim expires. */
export interface Lease {
  /** Replaces the stored value, or deletes it if `value` is undefined. Has no effect on a lost claim. Never rejects. */
  end(value: string | undefined, ttlMs?: number): Promise<unknown>
}

interface LeaseRequest {
  readonly name: string
  /** Undefined if the name must not have a value yet. */
  readonly expected: string | undefined
  /** Must be unique to this lease. */
  readonly value: string
  readonly leaseMs: number
  readonly quota: Quota
}

/** More than one, so that a single renewal may fail. */
const RENEWALS_PER_LEASE = 3

/** Resolves with undefined if the stored value is not the expected one. Rejects if the store fails. */
export async function acquireLease(
  { store, after }: { readonly store: Pick<Store, 'swap'> } & Pick<Runtime, 'after'>,
  { name, expected, value, leaseMs, quota }: LeaseRequest,
): Promise<Lease | undefined> {
  let hasEnded = false
  let cancel: () => void = () => {}
  try {
    if (!(await store.swap(name, expected, value, { ttlMs: leaseMs, quota }))) return undefined
  } catch (error) {
    // The swap may have succeeded although its reply was lost.
    store.swap(name, value, undefined).catch(() => {})
    throw error
  }

  const renew = async (): Promise<void> => {
    const isOurs = await store.swap(name, value, value, { ttlMs: leaseMs, quota }).catch(() => true)
    if (isOurs && !hasEnded) renewLater()
  }
  const renewLater = (): void => {
    cancel = after(leaseMs / RENEWALS_PER_LEASE, () => void renew(), { isBackground: true })
  }
  renewLater()

  return {
    end: async (finalValue, ttlMs) => {
      hasEnded = true
      cancel()
      return store.swap(name, value, finalValue, ttlMs === undefined ? {} : { ttlMs, quota }).catch(() => false)
    },
  }
}
