import Anthropic from '@anthropic-ai/sdk'
import OpenAI from 'openai'
import {
  anthropic,
  createGateway,
  memoryStore,
  openaiCompatible,
  type Gateway,
  type GatewayOptions,
} from '../../src/index.ts'
import { serve } from '../../src/node.ts'
import { startUpstream, type Upstream } from './upstream.ts'

/** Dollars per million tokens. */
export const PRICE = { input: 1, output: 2 }

export const CHAT_MODEL = 'chat/large'
export const MESSAGE_MODEL = 'anthropic/large'

/** A gateway on a local port, in front of a fake upstream that supports both formats. */
export interface Stage {
  readonly upstream: Upstream
  readonly gateway: Gateway
  /** Base URL of the gateway, without `/v1`. */
  readonly url: string
  readonly secret: string
  readonly keyId: string
  readonly openai: OpenAI
  readonly anthropic: Anthropic
  close(): Promise<void>
}

export interface StageOptions extends Partial<GatewayOptions> {
  readonly reply?: Upstream['reply']
  /** Tokenizer of both models. @default none */
  readonly tokenizer?: 'o200k'
  /** Dollars per million tokens of the small model. @default PRICE */
  readonly smallPrice?: { readonly input: number; readonly output: number }
  /** Fields of the caller's key. */
  readonly key?: Parameters<Gateway['keys']['create']>[0]
  /** Clients call `gateway.fetch` instead of the port. @default false */
  readonly inProcess?: boolean
}

export async function startStage(options: StageOptions = {}): Promise<Stage> {
  const { reply, key: fields, inProcess = false, tokenizer, smallPrice = PRICE, ...given } = options
  const upstream = await startUpstream(reply === undefined ? {} : { reply })
  const models = ['large', 'small'].map((id) => ({
    id,
    price: id === 'small' ? smallPrice : PRICE,
    contextWindowTokens: 200_000,
    maxOutputTokens: 1000,
    ...(tokenizer !== undefined && { tokenizer }),
    ...(id === 'large' && { small: 'small' }),
  }))
  const gateway = createGateway({
    providers: [
      openaiCompatible({ name: 'chat', baseUrl: upstream.baseUrl, apiKey: 'sk-upstream-secret', models }),
      anthropic({ baseUrl: upstream.url, apiKey: 'sk-upstream-secret', models }),
    ],
    store: memoryStore(),
    cache: false,
    // Retries are immediate.
    runtime: { random: () => 0 },
    ...given,
  })
  const key = await gateway.keys.create({ name: 'stage', ...fields })
  const server = await serve(gateway, { port: 0 })
  const fetching = inProcess
    ? { fetch: (url: string | URL | Request, init?: RequestInit) => gateway.fetch(new Request(url, init)) }
    : {}
  return {
    upstream,
    gateway,
    url: server.url,
    secret: key.value,
    keyId: key.id,
    openai: new OpenAI({ baseURL: `${server.url}/v1`, apiKey: key.value, maxRetries: 0, ...fetching }),
    anthropic: new Anthropic({ baseURL: server.url, apiKey: key.value, maxRetries: 0, ...fetching }),
    close: async () => {
      await server.close()
      await gateway.close()
      await upstream.close()
    },
  }
}
