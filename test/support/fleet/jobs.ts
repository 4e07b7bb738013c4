import type { Store } from '../../../src/core/store.ts'
import { openaiCompatible, type CacheOptions, type GatewayOptions } from '../../../src/index.ts'
import { extractive } from '../../../src/testing.ts'
import type { StorePlace } from './open-store.ts'

export const MODEL = 'extractive/extractive'

/** The work of a process of a fleet. */
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
      readonly expiresAfterMs: number
      readonly expiresAt: number
    }
  | {
      /** Sends requests and reports each event of a budget that it receives, until it is killed. */
      readonly type: 'warn'
      readonly place: StorePlace
      readonly atOnce: number
      readonly secret: string
    }
  | {
      /** Sends requests of many customers, some of which are aborted or fail. */
      readonly type: 'spend'
      readonly place: StorePlace
      readonly count: number
      /** Number of requests of all processes. */
      readonly total: number
      readonly atOnce: number
      /** Makes the requests of each process differ. */
      readonly seed: number
    }
  | {
      /** Sends requests, and reports the billing events that it delivers. */
      readonly type: 'bill'
      readonly place: StorePlace
      readonly count: number
      readonly atOnce: number
      readonly secret: string
    }
  | {
      readonly type: 'recall'
      readonly place: StorePlace
      /** Base URL of the chat format. */
      readonly upstream: string
      readonly secret: string
      readonly question: string
      /** Reports `began` with the text received so far after the first text delta. @default false */
      readonly stream?: boolean
    }

export type FleetReport =
  | {
      /** Billing events by id. Amounts in nano-dollars. */
      readonly type: 'delivered'
      readonly amounts: Readonly<Record<string, number>>
    }
  | {
      readonly type: 'spent'
      readonly statuses: Readonly<Record<string, number>>
      /** Billed amount in nano-dollars by customer, user and session, as the hook onEnd receives it. */
      readonly billed: Readonly<Record<string, number>>
      /** Sum of the amounts in response headers, in nano-dollars, and of the same requests in onEnd. */
      readonly headers: { readonly amount: number; readonly ended: number }
      /** The maximum of each counter that the process has reserved. */
      readonly counters: Readonly<Record<string, number>>
    }
  | { readonly type: 'statuses'; readonly statuses: Readonly<Record<string, number>> }
  | { readonly type: 'settled'; readonly reservationId: string }
  | { readonly type: 'warned'; readonly id: string; readonly share: number }
  | { readonly type: 'billed'; readonly ids: readonly string[] }
  | { readonly type: 'began'; readonly body: string }
  | { readonly type: 'recalled'; readonly status: number; readonly cache: string | null; readonly body: string }

/** Long enough that a store that is slow on a busy machine does not change the counts of a fleet. */
export const PATIENT: Pick<GatewayOptions, 'storeTimeoutMs'> = { storeTimeoutMs: 300_000 }

/** Returns the gateway options of every process. */
export function gatewayOptions(store: Store): GatewayOptions {
  return {
    providers: [extractive({ price: { input: 500, output: 2_000 } })],
    store,
    cache: false,
    streams: false,
    margin: 1,
  }
}

/** Returns the options of a gateway with an upstream and a cache that other processes share. */
export function cachingOptions(store: Store, upstream: string, cache: CacheOptions): GatewayOptions {
  const models = [{ id: 'large', price: { input: 1, output: 2 }, contextWindowTokens: 200_000, maxOutputTokens: 1_000 }]
  const chat = openaiCompatible({ name: 'chat', baseUrl: upstream, apiKey: 'sk-upstream-secret', models })
  return { providers: [chat], store, cache, runtime: { random: () => 0 } }
}

/** Creates a request of the chat format. */
export function questionOf(secret: string, question: string, more: object = {}): Request {
  return new Request('http://gateway/v1/chat/completions', {
    method: 'POST',
    headers: { authorization: `Bearer ${secret}`, 'content-type': 'application/json' },
    body: JSON.stringify({ model: 'chat/large', messages: [{ role: 'user', content: question }], ...more }),
  })
}
