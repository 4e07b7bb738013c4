import { toNanoUsd, type NanoUsd } from '../../src/core/money.ts'
import type { Store } from '../../src/core/store.ts'
import { KeyLookup, createSharedLimits, type SharedLimits } from '../../src/governance/stored-records.ts'
import { type AdminInput, createAdminInput } from '../../src/plugins/admin/parse-records.ts'
import { createKeyring, type Keyring } from '../../src/plugins/admin/keyring.ts'
import { Ledger } from '../../src/governance/ledger.ts'
import type { Quote, RequestUsage } from '../../src/governance/reservation.ts'
import { createUsageReports, type UsageReports } from '../../src/plugins/admin/usage-report.ts'
import { memoryStore } from '../../src/stores/memory.ts'

/** The governance of one process, on a manual clock. */
export interface TestGovernance {
  readonly clock: { at: number }
  readonly store: Store
  readonly shared: SharedLimits
  readonly lookup: KeyLookup
  readonly keyring: Keyring
  readonly ledger: Ledger
  readonly reports: UsageReports
}

/** Noon on Thursday, 15 January 2026, UTC. */
export const NOON: number = Date.UTC(2026, 0, 15, 12)

export function createTestGovernance(
  options: {
    readonly at?: number
    readonly store?: Store
    readonly clock?: { at: number }
    readonly expiresAfterMs?: number
  } = {},
): TestGovernance {
  const clock = options.clock ?? { at: options.at ?? NOON }
  const now = (): number => clock.at
  const store = options.store ?? memoryStore({ now })
  const uuid = (): string => crypto.randomUUID()
  const shared = createSharedLimits({ store, now })
  const lookup = new KeyLookup({ store, now })
  return {
    clock,
    store,
    shared,
    lookup,
    keyring: createKeyring({ store, now, uuid, shared, lookup }),
    ledger: new Ledger({
      store,
      now,
      uuid,
      shared,
      expiresAfterMs: options.expiresAfterMs ?? 600_000,
    }),
    reports: createUsageReports({ store, now, shared }),
  }
}

/** Accepts camel case and the names of the HTTP API. */
const input: AdminInput = createAdminInput('both')
export const { parseNewKey, parseKeyChange } = input

/** Returns a quote with one price for prompt and response, in nano-dollars per token. */
export function quote(promptTokens: number, outputTokens: number, price: number = 0): Quote {
  return { promptTokens, outputTokens, cost: (output) => toNanoUsd((promptTokens + output) * price) }
}

export function usage(promptTokens: number, completionTokens: number, billed: number = 0): RequestUsage {
  return {
    promptTokens,
    completionTokens,
    savedTokens: 0,
    theoretical: billed as NanoUsd,
    actual: billed as NanoUsd,
    billed: billed as NanoUsd,
    model: 'openai/gpt-x',
  }
}
