import type { Store } from '../../../src/core/store.ts'
import { extractive, openaiCompatible, type CacheOptions, type GatewayOptions } from '../../../src/index.ts'
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
      readonly expiresAfterMs: number
      readonly expiresAt: number
    }
  | {
      readonly type: 'recall'
      readonly place: StorePlace
      /** The base address of the chat format. */
      readonly upstream: string
      readonly secret: string
      readonly question: string
      /** Reports `began` with what has arrived after the first text. @default false */
      readonly stream?: boolean
    }

export type FleetReport =
  | { readonly type: 'statuses'; readonly statuses: Readonly<Record<string, number>> }
  | { readonly type: 'settled'; readonly reservationId: string }
  | { readonly type: 'began'; readonly body: string }
  | { readonly type: 'recalled'; readonly status: number; readonly cache: string | null; readonly body: string }

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

/** A gateway in front of an upstream, with a cache that other processes share. */
export function cachingOptions(store: Store, upstream: string, cache: CacheOptions): GatewayOptions {
  const models = [{ id: 'large', price: { input: 1, output: 2 }, contextWindow: 200_000, maxOutputTokens: 1_000 }]
  const chat = openaiCompatible({ name: 'chat', baseUrl: upstream, apiKey: 'sk-upstream-secret', models })
  return { providers: [chat], store, cache, runtime: { random: () => 0 } }
}

/** A request of the chat format. */
export function questionOf(secret: string, question: string, more: object = {}): Request {
  return new Request('http://gateway/v1/chat/completions', {
    method: 'POST',
    headers: { authorization: `Bearer ${secret}`, 'content-type': 'application/json' },
    body: JSON.stringify({ model: 'chat/large', messages: [{ role: 'user', content: question }], ...more }),
  })
}
