import type Anthropic from '@anthropic-ai/sdk'
import type { Store } from '../../../src/core/store.ts'
import { createGateway, memoryStore, openaiCompatible, type Gateway, type GatewayOptions } from '../../../src/index.ts'

/** The billed amount of one item: 100 and 50 tokens at $1 and $2 per million, with a margin of 1. */
export const ITEM_USD = 0.0002

/** Gateway processes that share a store and a clock. */
export interface Cluster {
  readonly store: Store
  now: number
  /** Number of upstream calls. */
  calls: number
  /** Answers each upstream call. @default a completion with the text `Yes.` */
  response: (body: string) => Response | Promise<Response>
  /** Starts a gateway process on the store of the cluster, or on a wrapper of that store. */
  startGateway(store?: Store, options?: Partial<GatewayOptions>): Gateway
}

export function createCluster(): Cluster {
  const cluster: Cluster = {
    now: Date.UTC(2026, 0, 2, 3, 4, 5),
    calls: 0,
    store: memoryStore({ now: () => cluster.now }),
    response: () => chatCompletion('Yes.'),
    startGateway: (store = cluster.store, options = {}) =>
      createGateway({
        providers: [
          openaiCompatible({
            name: 'up',
            baseUrl: 'https://upstream.example/v1',
            apiKey: 'sk-upstream',
            models: [
              { id: 'model', price: { input: 1, output: 2 }, contextWindowTokens: 10_000, maxOutputTokens: 1000 },
            ],
          }),
        ],
        store,
        margin: 1,
        cache: false,
        ...options,
        batches: { leaseMs: 60_000, ...options.batches },
        runtime: {
          now: () => cluster.now,
          random: () => 0,
          fetch: async (_, init) => {
            cluster.calls += 1
            return cluster.response(String(init?.body))
          },
        },
      }),
  }
  return cluster
}

/** Returns a complete response in the chat format. */
export function chatCompletion(text: string, format: (value: unknown) => string = JSON.stringify): Response {
  const body = {
    id: 'chatcmpl-1',
    object: 'chat.completion',
    created: 1,
    model: 'model',
    choices: [{ index: 0, finish_reason: 'stop', message: { role: 'assistant', content: text } }],
    usage: { prompt_tokens: 100, completion_tokens: 50, total_tokens: 150 },
  }
  return new Response(format(body), { headers: { 'content-type': 'application/json' } })
}

export interface BatchResponse {
  readonly status: number
  readonly body: Anthropic.Messages.MessageBatch & {
    readonly error?: { readonly type: string; readonly message: string }
  }
}

/** Sends one request to the batch endpoints. */
export async function callBatches(
  gateway: Gateway,
  secret: string,
  method: string,
  path = '',
  body?: object,
): Promise<BatchResponse> {
  const response = await gateway.fetch(createRequest(secret, method, path, body))
  return { status: response.status, body: (await response.json()) as BatchResponse['body'] }
}

export function createRequest(secret: string, method: string, path = '', body?: object): Request {
  return new Request(`https://gateway.example/v1/messages/batches${path}`, {
    method,
    headers: { 'x-api-key': secret, 'content-type': 'application/json' },
    ...(body !== undefined && { body: JSON.stringify(body) }),
  })
}

export interface ResultLine {
  readonly custom_id: string
  readonly result: {
    readonly type: string
    readonly error?: { readonly error: { readonly type: string } }
    readonly message?: object
  }
}

export async function readResults(gateway: Gateway, secret: string, id: string): Promise<readonly ResultLine[]> {
  const response = await gateway.fetch(createRequest(secret, 'GET', `/${id}/results`))
  const text = await response.text()
  return text
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line) as ResultLine)
}

export function createItems(count: number): {
  readonly requests: readonly { readonly custom_id: string; readonly params: object }[]
} {
  return {
    requests: Array.from({ length: count }, (_, n) => ({
      custom_id: `item-${n}`,
      params: { model: 'up/model', max_tokens: 20, messages: [{ role: 'user', content: `Item ${n}?` }] },
    })),
  }
}

/** Runs the batch worker until the batch has ended. Advances the clock when no item is ready. */
export async function completeBatch(
  cluster: Cluster,
  secret: string,
  id: string,
  gateway: Gateway = cluster.startGateway(),
): Promise<void> {
  for (;;) {
    await gateway.batches.work()
    const { body } = await callBatches(gateway, secret, 'GET', `/${id}`)
    if (body.processing_status === 'ended') return
    cluster.now += 61_000
  }
}
