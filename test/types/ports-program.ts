import type { GatewayOptions } from 'sluice'
import {
  NO_USAGE,
  toStreamChunks,
  type Completion,
  type Message,
  type Model,
  type Provider,
  type ProviderCall,
  type StreamChunk,
} from 'sluice/provider'
import { toNanoUsd, type Tier, type TierJob, type TierResult } from 'sluice/savings'
import {
  quotaExceededError,
  type ResponseStore,
  type CachedResponse,
  type Claim,
  type Embedder,
  type Level,
  type LogEntry,
  type LogQuery,
  type MaybePromise,
  type Neighbor,
  type NewLogEntry,
  type ReserveRequest,
  type ReserveResult,
  type Settlement,
  type Store,
  type StoreSize,
  type VectorIndex,
  type WriteOptions,
} from 'sluice/store'

/** Implementations of every port, with exported types only. A cast needed here would be needed in every program. */

const WORDS: Model = {
  id: 'words',
  family: 'echo',
  contextWindowTokens: 100_000,
  maxOutputTokens: 1000,
  price: { input: 1, output: 2 },
}

function textOf(message: Message | undefined): string {
  return (message?.parts ?? []).map((part) => (part.type === 'text' ? part.text : '')).join(' ')
}

/** A provider that repeats the last message. */
export function echo(): Provider {
  const response = ({ prompt, model, signal }: ProviderCall): Completion => {
    signal.throwIfAborted()
    const text = textOf(prompt.messages.at(-1))
    const usage = { ...NO_USAGE, inputTokens: prompt.messages.length + text.length, outputTokens: text.length }
    return { id: 'echo', model: model.id, parts: [{ type: 'text', text }], finish: 'stop', usage }
  }
  return {
    name: 'echo',
    dialect: 'chat',
    models: [WORDS],
    model: (id) => (id === WORDS.id ? WORDS : undefined),
    complete: async (call) => ({ response: response(call), ignored: [] }),
    stream: async (call) => ({ response: chunksOf(response(call)), ignored: [] }),
  }
}

async function* chunksOf(completion: Completion): AsyncGenerator<StreamChunk> {
  yield* toStreamChunks(completion)
}

/** A tier that sends the last messages of a long chat. */
export const lastMessages: Tier = {
  tier: 5,
  wants: ({ tokens, steering }: TierJob) => steering.level !== undefined && tokens > 1000,
  keeps: ({ tokens }) => ({ tokens: tokens / 2, share: 0.9 }),
  forecast: ({ tokens }) => ({ tokens: tokens / 2, callCost: toNanoUsd(0) }),
  rewrite: async ({ prompt }: TierJob): Promise<TierResult> => {
    if (prompt.messages.length < 10) return { declined: 'the chat is short', spent: toNanoUsd(0) }
    const messages = prompt.messages.slice(-9)
    const rewrite = { prompt: { ...prompt, messages }, tier: 5, strategy: 'Last messages', tokens: 500 } as const
    return { rewrite, spent: toNanoUsd(0) }
  },
}

/** An embedder that counts letters. */
export const letters: Embedder = {
  name: 'letters',
  dimensions: 26,
  embed: (texts) =>
    texts.map((text) =>
      Float32Array.from({ length: 26 }, (_, at) => text.split(String.fromCharCode(97 + at)).length - 1),
    ),
}

/** An index that compares the query with every vector. */
export class FlatIndex implements VectorIndex {
  readonly #entries = new Map<string, Parameters<VectorIndex['add']>[0]>()

  add(entry: Parameters<VectorIndex['add']>[0]): void {
    this.#entries.set(entry.id, { ...entry, vector: entry.vector.slice() })
  }

  nearest(
    scope: string,
    vector: Float32Array,
    { minSimilarity, limit }: { readonly minSimilarity: number; readonly limit: number },
  ): readonly Neighbor[] {
    return [...this.#entries.values()]
      .filter((entry) => entry.scope === scope)
      .map((entry) => ({ id: entry.id, similarity: dot(entry.vector, vector) }))
      .filter(({ similarity }) => similarity >= minSimilarity)
      .toSorted((one, other) => other.similarity - one.similarity)
      .slice(0, limit)
  }

  remove(id: string): void {
    this.#entries.delete(id)
  }

  clear(): void {
    this.#entries.clear()
  }
}

function dot(one: Float32Array, other: Float32Array): number {
  return one.reduce((sum, value, index) => sum + value * (other[index] ?? 0), 0)
}

/** Responses in the memory of the process, without a limit. */
export class ResponseMap implements ResponseStore {
  readonly #responses = new Map<string, CachedResponse>()

  get(id: string): CachedResponse | undefined {
    return this.#responses.get(id)
  }

  put(response: CachedResponse): boolean {
    this.#responses.set(response.id, response)
    return true
  }

  amend(id: string, changes: Pick<CachedResponse, 'threshold' | 'maxHitSimilarity'>): void {
    const response = this.#responses.get(id)
    if (response !== undefined) this.#responses.set(id, { ...response, ...changes })
  }

  remove(id: string): void {
    this.#responses.delete(id)
  }

  hasComparable(scope: string): boolean {
    return [...this.#responses.values()].some((response) => response.scope === scope && response.comparable)
  }

  clear(keyId?: string): void {
    for (const { id, keyId: owner } of this.#responses.values()) {
      if (keyId === undefined || owner === keyId) this.#responses.delete(id)
    }
  }

  size(): StoreSize {
    return { entries: this.#responses.size, bytes: 0 }
  }
}

/** A store that counts the calls of another one. */
export class CountedStore implements Store {
  calls = 0
  readonly #store: Store

  constructor(store: Store) {
    this.#store = store
  }

  get(key: string): MaybePromise<string | undefined> {
    return this.#count(this.#store.get(key))
  }

  set(key: string, value: string, options?: WriteOptions): Promise<void> {
    if (options?.quota !== undefined && value.length > options.quota.maxBytes) throw quotaExceededError(options.quota)
    return this.#count(this.#store.set(key, value, options))
  }

  swap(key: string, expected: string | undefined, value: string | undefined, options?: WriteOptions): Promise<boolean> {
    return this.#count(this.#store.swap(key, expected, value, options))
  }

  delete(key: string): Promise<boolean> {
    return this.#count(this.#store.delete(key))
  }

  list(prefix: string, page: { readonly after?: string; readonly limit: number }): Promise<readonly string[]> {
    return this.#count(this.#store.list(prefix, page))
  }

  reserve(request: ReserveRequest): MaybePromise<ReserveResult> {
    return this.#count(this.#store.reserve(request))
  }

  settle(settlement: Settlement): MaybePromise<boolean> {
    return this.#count(this.#store.settle(settlement))
  }

  levels(counters: readonly Claim['counter'][]): MaybePromise<readonly Level[]> {
    return this.#count(this.#store.levels(counters))
  }

  tallies(names: readonly string[]): ReturnType<Store['tallies']> {
    return this.#count(this.#store.tallies(names))
  }

  append(log: string | readonly string[], entry: NewLogEntry): MaybePromise<void> {
    return this.#count(this.#store.append(log, entry))
  }

  entries(log: string, query: LogQuery): Promise<readonly LogEntry[]> {
    return this.#count(this.#store.entries(log, query))
  }

  ping(): Promise<void> {
    return this.#store.ping()
  }

  close(): Promise<void> {
    return this.#store.close()
  }

  #count<Result>(result: Result): Result {
    this.calls++
    return result
  }
}

/** Options that use all of them. */
export function optionsOf(store: CountedStore): GatewayOptions {
  return {
    providers: [echo()],
    store,
    savings: { tiers: (builtIn) => [lastMessages, ...builtIn] },
    cache: { embedder: letters, index: new FlatIndex(), responses: new ResponseMap() },
  }
}
