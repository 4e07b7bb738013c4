import type { Store } from '../../../src/core/ports.ts'
import { extractive, type GatewayOptions } from '../../../src/index.ts'
import type { StorePlace } from './open-store.ts'

export const MODEL = 'extractive/extractive'

/** What a process of a fleet does. */
export type FleetJob =
  | {
      readonly type: 'ask'
      readonly place: StorePlace
      readonly count: number
      readonly atOnce: number
      readonly secret: string
    }
  | {
      readonly type: 'settle'
      readonly place: StorePlace
      readonly atOnce: number
      readonly counters: readonly string[]
      readonly max: number
      readonly lapsesAfterMs: number
      readonly expiresAt: number
    }

export type FleetReport =
  | { readonly type: 'statuses'; readonly statuses: Readonly<Record<string, number>> }
  | { readonly type: 'settled'; readonly ticket: string }

/** A store that is slow because the machine is busy must not change what a fleet counts. */
export const PATIENT: Pick<GatewayOptions, 'storeTimeoutMs'> = { storeTimeoutMs: 300_000 }

/** The same gateway in every process. */
export function gatewayOptions(store: Store): GatewayOptions {
  return {
    providers: [extractive({ price: { input: 500, output: 2_000 } })],
    store,
    cache: false,
    streams: false,
    margin: 1,
  }
}
