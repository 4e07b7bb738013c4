import type { Quota, Store } from '../core/store.ts'
import type { Runtime } from '../core/ports.ts'

/** A name in the store that this process holds; it is renewed until it is ended, and lapses when the process dies. */
export interface Lease {
  /**
   * Puts `value` in the place of what was held, or nothing. False when the store did not take it or the lease had gone
   * to somebody else; never rejects.
   */
  end(value: string | undefined, ttlMs?: number): Promise<boolean>
}

export interface LeaseRequest {
  readonly name: string
  /** The present value. */
  readonly expected: string | undefined
  /** A value that no other process writes. */
  readonly text: string
  readonly leaseMs: number
  /** The quota that the name counts against. */
  readonly quota: Quota
}

/** A lease is renewed three times before it expires, so one renewal may fail. */
const RENEWALS = 3

/** Undefined when another value is stored. Rejects when the store fails. */
export async function takeLease(
  { store, after }: { readonly store: Store } & Pick<Runtime, 'after'>,
  { name, expected, text, leaseMs, quota }: LeaseRequest,
): Promise<Lease | undefined> {
  let hasEnded = false
  let cancel: () => void = () => {}
  try {
    if (!(await store.swap(name, expected, text, { ttlMs: leaseMs, quota }))) return undefined
  } catch (error) {
    // The step may have happened although its answer was lost.
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
