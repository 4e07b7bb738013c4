import type { Completion } from '../../../src/core/completion.ts'
import type { JsonObject } from '../../../src/core/json.ts'
import type { Embedder, VectorIndex } from '../../../src/core/cache.ts'
import { ZERO } from '../../../src/core/money.ts'
import type { Prompt } from '../../../src/core/prompt.ts'
import type { SemanticCacheOptions } from '../../../src/plugins/cache/cache-options.ts'
import { createFlatIndex, type FlatIndexOptions } from '../../../src/plugins/cache/flat-index.ts'
import type { CacheHit } from '../../../src/plugins/cache/find-response.ts'
import {
  createSemanticCache,
  type CacheMiss,
  type CacheQuery,
  type SemanticCache,
} from '../../../src/plugins/cache/semantic-cache.ts'
import type { Lookup } from '../../../src/plugins/cache/wording-search.ts'
import { readPrompt as readMessagePrompt } from '../../../src/formats/messages/request-reader.ts'
import { readPrompt as readChatPrompt } from '../../../src/formats/chat/request-reader.ts'
import { manualRuntime, type ManualRuntime } from '../../support/manual-runtime.ts'
import { noNetwork } from '../../support/no-network.ts'

export function chat(body: JsonObject): Prompt {
  return readChatPrompt({ model: 'chat/large', messages: [], ...body })
}

export function message(body: JsonObject): Prompt {
  return readMessagePrompt({ model: 'chat/large', max_tokens: 100, messages: [], ...body })
}

/** A chat request with one user message. */
export function chatPrompt(text: string, rest: JsonObject = {}): Prompt {
  return chat({ messages: [{ role: 'user', content: text }], ...rest })
}

export function textResponse(text: string, rest: Partial<Completion> = {}): Completion {
  return { id: 'answer-1', model: 'large', parts: [{ type: 'text', text }], finish: 'stop', ...rest }
}

/** Creates an embedder that returns the same vector for every text: the worst possible embedding. */
export function constantEmbedder(dimensions = 8): Embedder {
  const vector = (): Float32Array => new Float32Array(dimensions).fill(1 / Math.sqrt(dimensions))
  return { name: 'constant', dimensions, embed: async (texts) => texts.map(vector) }
}

/** Creates an embedder that calls a function of the test and records the texts. */
export function scriptedEmbedder(
  embed: (text: string, signal?: AbortSignal) => Float32Array | Promise<Float32Array>,
  dimensions = 8,
): Embedder & { readonly embeddedTexts: readonly string[]; readonly calls: () => number } {
  const asked: string[] = []
  let calls = 0
  return {
    name: 'scripted',
    dimensions,
    embeddedTexts: asked,
    calls: () => calls,
    embed: async (texts, signal) => {
      calls += 1
      asked.push(...texts)
      return Promise.all(texts.map((text) => embed(text, signal)))
    },
  }
}

export function flatIndex(options: Partial<FlatIndexOptions> = {}): VectorIndex {
  return createFlatIndex({
    now: () => 0,
    pause: () => Promise.resolve(),
    dimensions: 1024,
    maxEntries: 100_000,
    maxBytes: 512 * 1024 * 1024,
    ...options,
  })
}

/** Returns a lookup in the scope `scope`. */
export function lookupOf(id: string, text: string): Lookup {
  return {
    key: { scope: 'scope', id, text, previousText: '', comparable: true },
    keyId: 'key-1',
    modelName: 'chat/large',
    threshold: 0.95,
    cancellation: undefined,
    smallModel: () => undefined,
    spent: ZERO,
    form: undefined,
    vector: undefined,
  }
}

export interface CacheFixture {
  readonly cache: SemanticCache
  readonly runtime: ManualRuntime
  /** Looks up, by default as `key-1` for the model `chat/large`. */
  ask(prompt: Prompt | string, rest?: Partial<CacheQuery>): Promise<CacheHit | CacheMiss>
  /** Looks up and, after the miss, stores a response. Returns false if it was not stored. */
  teach(prompt: Prompt | string, response: Completion | string, rest?: Partial<CacheQuery>): Promise<boolean>
  /** Returns the text of the stored response, or undefined. */
  recall(prompt: Prompt | string, rest?: Partial<CacheQuery>): Promise<string | undefined>
}

/** Most tests are about similar wordings, which are compared in few requests by default. */
const COMPARES_ALL: Partial<SemanticCacheOptions> = { similar: true }

export function createFixture(
  options: Partial<SemanticCacheOptions> = {},
  defaults: Partial<SemanticCacheOptions> = COMPARES_ALL,
): CacheFixture {
  const runtime = manualRuntime(noNetwork)
  const cache = createSemanticCache({ runtime, pause: () => Promise.resolve(), ...defaults, ...options })
  const ask: CacheFixture['ask'] = async (prompt, rest = {}) =>
    cache.lookUp({
      prompt: typeof prompt === 'string' ? chatPrompt(prompt) : prompt,
      keyId: 'key-1',
      modelName: 'chat/large',
      ...rest,
    })
  return {
    cache,
    runtime,
    ask,
    teach: async (prompt, response, rest) => {
      const found = await ask(prompt, rest)
      if (found.hit) throw new Error('there was an answer already')
      return found.store(typeof response === 'string' ? textResponse(response) : response, 100)
    },
    recall: async (prompt, rest) => {
      const found = await ask(prompt, rest)
      const [part] = found.hit ? found.completion.parts : []
      return part?.type === 'text' ? part.text : undefined
    },
  }
}
