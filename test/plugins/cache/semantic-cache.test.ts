import { Cancellation } from '../../../src/core/async.ts'
import { describe, expect, it } from 'vitest'
import { GatewayError } from '../../../src/core/errors.ts'
import { hashEmbedding } from '../../../src/plugins/cache/hashing-embedder.ts'
import type { SemanticCacheOptions } from '../../../src/plugins/cache/cache-options.ts'
import type { CacheDirectives } from '../../../src/http/cache-directives.ts'
import { checkGatewayOptions } from '../../../src/options.ts'
import { extractive } from '../../../src/testing/extractive/extractive.ts'
import { REVERSALS, SAME } from './reversals.ts'
import {
  chatPrompt,
  chat,
  constantEmbedder,
  message,
  createFixture,
  flatIndex,
  textResponse,
  scriptedEmbedder,
} from './fixture.ts'
import { everyNth } from '../../support/full.ts'

const CAPITAL = 'What is the capital of France?'
const ALIKE = "what's the capital of France?"

const directives = (given: Partial<CacheDirectives>): { readonly directives: CacheDirectives } => ({
  directives: { allowsRead: true, allowsWrite: true, ...given },
})

describe('the semantic cache', () => {
  it('answers the same text with similarity 1 and without an embedding', async () => {
    const embedder = scriptedEmbedder(hashEmbedding, 1024)
    const { ask, teach } = createFixture({ embedder })
    await teach(CAPITAL, 'Paris')
    const embedded = embedder.embeddedTexts.length
    const found = await ask(`  ${CAPITAL}\n`)

    expect(found).toMatchObject({ hit: true, similarity: 1, completion: { parts: [{ text: 'Paris' }] } })
    expect(embedder.embeddedTexts).toHaveLength(embedded)
  })

  it('computes no embedding in a scope without entries', async () => {
    const embedder = scriptedEmbedder(hashEmbedding, 1024)
    const { ask, teach } = createFixture({ embedder })
    await ask(CAPITAL)
    await teach(CAPITAL, 'Paris')

    expect(embedder.embeddedTexts).toEqual([])
  })

  it('embeds a stored question when a second one arrives in its scope, both in one call', async () => {
    const embedder = scriptedEmbedder(hashEmbedding, 1024)
    const { recall, teach } = createFixture({ embedder })
    await teach(CAPITAL, 'Paris')
    await teach(CAPITAL, 'Paris', { modelName: 'chat/small' })

    expect(await recall(ALIKE)).toBe('Paris')
    expect(embedder.embeddedTexts).toEqual([ALIKE, CAPITAL])
    expect(embedder.calls()).toBe(1)
  })

  it('embeds each question at once if the index is shared', async () => {
    const embedder = scriptedEmbedder(hashEmbedding, 1024)
    const index = flatIndex()
    const { teach } = createFixture({ embedder, index })
    await teach(CAPITAL, 'Paris')

    expect(embedder.embeddedTexts).toEqual([CAPITAL])
  })

  it('answers without a promise if each part is synchronous', async () => {
    const { cache, recall, teach } = createFixture()
    await teach(CAPITAL, 'Paris')
    // The first comparison loads the English lexicon.
    await recall(ALIKE)
    const question = { keyId: 'key-1', modelName: 'chat/large' }
    const found = [CAPITAL, ALIKE, 'How deep is the sea?'].map((text) =>
      cache.lookUp({ ...question, prompt: chatPrompt(text) }),
    )

    expect(found).toMatchObject([{ hit: true }, { hit: true }, { hit: false }])

    const [, , miss] = found
    if (miss === undefined || !('store' in miss)) throw new Error('a miss was expected')

    expect(miss.store(textResponse('Very.'), 10)).toBe(true)
  })

  it('finds a question with a typo or another spelling among many in its scope, without vectors', async () => {
    const { ask, teach } = createFixture()
    const question = (customer: string): string =>
      `What is the current state of the order that customer ${customer} placed?`
    const customers = ['Miller', 'Garcia', 'Novak', 'Okafor', 'Tanaka', 'Lindqvist', 'Haddad', 'Ferreira']
    for (const customer of customers) await teach(question(customer), customer)
    const text = (found: Awaited<ReturnType<typeof ask>>): unknown => found.hit && found.completion.parts[0]

    expect(text(await ask(question('Novak').replace('What is', "what's")))).toMatchObject({ text: 'Novak' })
    expect(text(await ask(question('Okafor').replace('customer', 'custmoer')))).toMatchObject({ text: 'Okafor' })
    expect((await ask(question('Nowak'))).hit).toBe(false)
    expect((await ask(question('Miller, and customer Garcia,'))).hit).toBe(false)
  })

  it('answers an equivalent text', async () => {
    const { recall, teach } = createFixture()
    await teach(CAPITAL, 'Paris')

    expect(await recall(ALIKE)).toBe('Paris')
    expect(await recall('Could you tell me what the capital of France is?')).toBe('Paris')
  })

  it.each(everyNth(3, [0.85, 0.9, 0.95, 1]))(
    'returns no answer to a reversed question at threshold %d, even if all embeddings are equal',
    async (similarityThreshold) => {
      const wrong: string[] = []
      for (const [left, right] of REVERSALS) {
        const { recall, teach } = createFixture({ embedder: constantEmbedder(), similarityThreshold })
        await teach(left, 'left')
        if ((await recall(right)) !== undefined) wrong.push(`${left} | ${right}`)
      }

      expect(wrong).toEqual([])
    },
  )

  it('finds the equivalent question among all reversals, even if all embeddings are equal', async () => {
    const { recall, teach } = createFixture({ embedder: constantEmbedder() })
    for (const [left] of SAME.slice(0, 1)) await teach(left, 'Paris')
    for (const [left] of REVERSALS.slice(0, 10)) await teach(left, 'something else')

    expect(await recall(ALIKE)).toBe('Paris')
  })

  it('returns the best candidate that passes the guard, not the nearest', async () => {
    const near: Record<string, number> = { [CAPITAL]: 0.1, 'What is the capital of Spain?': 0, [ALIKE]: 0 }
    const embedder = scriptedEmbedder(
      (text) => Float32Array.of(Math.cos(near[text] ?? 9), Math.sin(near[text] ?? 9)),
      2,
    )
    const { recall, teach } = createFixture({ embedder })
    await teach(CAPITAL, 'Paris')
    await teach('What is the capital of Spain?', 'Madrid')

    expect(await recall(ALIKE)).toBe('Paris')
  })

  it('misses below the threshold and hits above it', async () => {
    const angle = Math.acos(0.9)
    const embedder = scriptedEmbedder(
      (text) => (text === ALIKE ? Float32Array.of(Math.cos(angle), Math.sin(angle)) : Float32Array.of(1, 0)),
      2,
    )
    const strict = createFixture({ embedder, similarityThreshold: 0.91 })
    await strict.teach(CAPITAL, 'Paris')
    const lenient = createFixture({ embedder, similarityThreshold: 0.89 })
    await lenient.teach(CAPITAL, 'Paris')

    expect(await strict.recall(ALIKE)).toBeUndefined()
    expect(await lenient.recall(ALIKE)).toBe('Paris')
  })

  it('separates keys, unless the operator shares answers', async () => {
    const apart = createFixture()
    await apart.teach(CAPITAL, 'Paris')
    const shared = createFixture({ scope: 'global' })
    await shared.teach(CAPITAL, 'Paris')

    expect(await apart.recall(CAPITAL, { keyId: 'key-2' })).toBeUndefined()
    expect(await shared.recall(CAPITAL, { keyId: 'key-2' })).toBe('Paris')
    expect(await shared.recall(ALIKE, { keyId: 'key-2' })).toBe('Paris')
  })

  it('never answers across models, system prompts, parameters or histories', async () => {
    const { recall, teach } = createFixture({ embedder: constantEmbedder() })
    await teach(CAPITAL, 'Paris')
    const user = { role: 'user', content: CAPITAL }

    expect(await recall(CAPITAL, { modelName: 'chat/small' })).toBeUndefined()
    expect(await recall(chatPrompt(CAPITAL, { temperature: 0.2 }))).toBeUndefined()
    expect(await recall(chat({ messages: [{ role: 'system', content: 'Be rude.' }, user] }))).toBeUndefined()
    expect(await recall(chat({ messages: [user, { role: 'assistant', content: 'x' }, user] }))).toBeUndefined()
  })

  it('compares only the questions, regardless of a long common history', async () => {
    const { recall, teach } = createFixture()
    const long = { role: 'user', content: `${'The contract has many parts. '.repeat(2000)}How many?` }
    const reply = { role: 'assistant', content: 'The contract has two thousand parts.' }
    const turn = (text: string): ReturnType<typeof chat> =>
      chat({ messages: [long, reply, { role: 'user', content: text }] })
    await teach(turn('Who signed it?'), 'Ann')

    expect(await recall(turn('When was it signed?'))).toBeUndefined()
    expect(await recall(turn('who signed it'))).toBe('Ann')
  })

  it('returns an answer stored in one format to a request in the other', async () => {
    const { recall, teach } = createFixture()
    await teach(chat({ messages: [{ role: 'user', content: CAPITAL }], max_tokens: 100 }), 'Paris')

    expect(await recall(message({ messages: [{ role: 'user', content: CAPITAL }] }))).toBe('Paris')
  })

  it('stores only complete answers', async () => {
    const { teach, recall } = createFixture()

    expect(await teach(CAPITAL, textResponse('Par', { finish: 'length' }))).toBe(false)
    expect(await recall(CAPITAL)).toBeUndefined()
  })

  it('keeps an answer for its lifetime, and a time-sensitive one for a minute', async () => {
    const { recall, runtime, teach } = createFixture({ ttlSeconds: 100 })
    await teach(CAPITAL, 'Paris')
    await teach('What is the weather in Rome today?', 'rain')
    runtime.advance(59_999)

    expect(await recall('What is the weather in Rome today?')).toBe('rain')

    runtime.advance(1)

    expect(await recall('What is the weather in Rome today?')).toBeUndefined()

    runtime.advance(39_999)

    expect([await recall(CAPITAL), await recall(ALIKE)]).toEqual(['Paris', 'Paris'])

    runtime.advance(1)

    expect([await recall(CAPITAL), await recall(ALIKE)]).toEqual([undefined, undefined])
  })

  it('keeps an answer for a minute if the user message before is time-sensitive', async () => {
    const { recall, runtime, teach } = createFixture({ ttlSeconds: 100 })
    const followUp = chat({
      messages: [
        { role: 'user', content: 'What is the weather in Rome today?' },
        { role: 'assistant', content: 'Rain.' },
        { role: 'user', content: 'And in Oslo?' },
      ],
    })
    await teach(followUp, 'snow')
    runtime.advance(59_999)

    expect(await recall(followUp)).toBe('snow')

    runtime.advance(1)

    expect(await recall(followUp)).toBeUndefined()
  })

  it('stays within its maximum entries and bytes', async () => {
    const few = createFixture({ maxEntries: 3 })
    for (let count = 0; count < 10; count += 1) await few.teach(`Question ${count}?`, 'x')
    const small = createFixture({ maxBytes: 30_000 })
    for (let count = 0; count < 10; count += 1) await small.teach(`Question ${count}?`, 'x'.repeat(4000))

    expect(few.cache.stats().entries).toBe(3)
    expect(await few.recall('Question 9?')).toBe('x')
    expect(small.cache.stats().bytes).toBeLessThanOrEqual(30_000)
    expect(small.cache.stats().entries).toBeGreaterThan(0)
    expect(await small.teach('Too large?', 'x'.repeat(40_000))).toBe(false)
    expect(small.cache.stats().entries).toBeGreaterThan(0)
  })

  it('evicts an entry of the key with the largest share', async () => {
    const few = createFixture({ maxEntries: 4 })
    await few.teach(CAPITAL, 'Paris', { keyId: 'small' })
    for (let count = 0; count < 20; count += 1) await few.teach(`Question ${count}?`, 'x', { keyId: 'large' })
    const bytes = createFixture({ maxBytes: 30_000 })
    await bytes.teach(CAPITAL, 'Paris', { keyId: 'small' })
    for (let count = 0; count < 20; count += 1)
      await bytes.teach(`Question ${count}?`, 'x'.repeat(3000), { keyId: 'large' })

    expect(await few.recall(CAPITAL, { keyId: 'small' })).toBe('Paris')
    expect(await few.recall('Question 19?', { keyId: 'large' })).toBe('x')
    expect(few.cache.stats().entries).toBe(4)
    expect(await bytes.recall(CAPITAL, { keyId: 'small' })).toBe('Paris')
    expect(bytes.cache.stats().bytes).toBeLessThanOrEqual(30_000)
  })

  it('divides the capacity equally between keys that fill it, even if they share answers', async () => {
    const { cache, recall, teach } = createFixture({ maxEntries: 4, scope: 'global' })
    for (let count = 0; count < 8; count += 1) await teach(`First ${count}?`, 'x', { keyId: 'a' })
    for (let count = 0; count < 8; count += 1) await teach(`Second ${count}?`, 'x', { keyId: 'b' })
    const found = await Promise.all(['First 6?', 'First 7?', 'Second 6?', 'Second 7?'].map((text) => recall(text)))

    expect(found).toEqual(['x', 'x', 'x', 'x'])
    expect(cache.stats().entries).toBe(4)
  })
})

describe('cache directives', () => {
  it('no-store disables reading and writing', async () => {
    const { recall, teach } = createFixture()

    expect(await teach(CAPITAL, 'Paris', directives({ allowsRead: false, allowsWrite: false }))).toBe(false)
    await teach(CAPITAL, 'Paris')
    expect(await recall(CAPITAL, directives({ allowsRead: false, allowsWrite: false }))).toBeUndefined()
  })

  it('no-cache disables reading, and the new answer replaces the old one', async () => {
    const { recall, teach } = createFixture()
    await teach(CAPITAL, 'Lyon')

    expect(await teach(CAPITAL, 'Paris', directives({ allowsRead: false }))).toBe(true)
    expect(await recall(CAPITAL)).toBe('Paris')
  })

  it('a threshold can only be raised', async () => {
    const angle = Math.acos(0.93)
    const embedder = scriptedEmbedder(
      (text) => (text === ALIKE ? Float32Array.of(Math.cos(angle), Math.sin(angle)) : Float32Array.of(1, 0)),
      2,
    )
    const { recall, teach } = createFixture({ embedder, similarityThreshold: 0.92 })
    await teach(CAPITAL, 'Paris')

    expect(await recall(ALIKE)).toBe('Paris')
    expect(await recall(ALIKE, directives({ threshold: 0.94 }))).toBeUndefined()
    expect(await recall(CAPITAL, directives({ threshold: 1 }))).toBe('Paris')

    const strict = createFixture({ embedder, similarityThreshold: 0.95 })
    await strict.teach(CAPITAL, 'Paris')

    expect(await strict.recall(ALIKE, directives({ threshold: 0.1 }))).toBeUndefined()
  })

  it('identical requests share a miss, unless the caller requires a fresh answer', async () => {
    const { ask } = createFixture()
    const [one, same, other, fresh] = await Promise.all([
      ask(CAPITAL),
      ask(` ${CAPITAL}`),
      ask(ALIKE),
      ask(CAPITAL, directives({ allowsRead: false })),
    ])
    const ids = [one, same, other, fresh].map((found) => (found.hit ? 'hit' : found.id))

    expect(ids[0]).toBeDefined()
    expect(ids[1]).toBe(ids[0])
    expect(ids[2]).not.toBe(ids[0])
    expect(ids[3]).toBeUndefined()
  })
})

describe('a failure in the cache is a miss', () => {
  const unwell: readonly [string, () => Float32Array | Promise<Float32Array>][] = [
    ['rejects', () => Promise.reject(new Error('down'))],
    [
      'throws',
      () => {
        throw new Error('down')
      },
    ],
    ['returns NaN', () => new Float32Array(8).fill(Number.NaN)],
    ['returns infinity', () => new Float32Array(8).fill(Number.POSITIVE_INFINITY)],
    ['returns a vector of another length', () => new Float32Array(7).fill(1)],
    ['returns zeros', () => new Float32Array(8)],
  ]

  it.each(unwell)('an embedder that %s', async (_, fail) => {
    let well = true
    const embedder = scriptedEmbedder(() => (well ? new Float32Array(8).fill(1) : fail()))
    const { cache, recall, teach } = createFixture({ embedder })
    await teach(CAPITAL, 'Paris')
    well = false

    expect(await recall(ALIKE)).toBeUndefined()
    expect(await recall(CAPITAL)).toBe('Paris')
    expect(cache.stats().failures).toBe(1)
  })

  it('an answer whose question cannot be embedded is still found by the same text', async () => {
    const { recall, teach } = createFixture({ embedder: scriptedEmbedder(() => Promise.reject(new Error('down'))) })

    expect(await teach(CAPITAL, 'Paris')).toBe(true)
    expect(await recall(CAPITAL)).toBe('Paris')
  })

  it('a late embedder, whose call is aborted', async () => {
    let slow = false
    let ended: AbortSignal | undefined
    const embedder = scriptedEmbedder((_, signal) => {
      ended = signal
      return slow ? new Promise(() => {}) : new Float32Array(8).fill(1)
    })
    const { recall, runtime, teach } = createFixture({ embedder, timeoutMs: 250 })
    await teach(CAPITAL, 'Paris')
    slow = true
    const found = recall(ALIKE)
    while (runtime.pending() === 0) await new Promise(setImmediate)
    runtime.advance(250)

    expect(await found).toBeUndefined()
    expect(ended?.aborted).toBe(true)
    expect(runtime.pending()).toBe(0)
  })

  it('an embedder that keeps failing is paused', async () => {
    const embedder = scriptedEmbedder(() => Promise.reject(new Error('down')))
    const { runtime, teach } = createFixture({ embedder })
    for (let count = 0; count < 6; count += 1) await teach(`Is it ${count}?`, 'x')

    expect(embedder.calls()).toBe(3)

    runtime.advance(10_000)
    await teach('Is it seven?', 'x')

    expect(embedder.calls()).toBe(4)
  })

  it('an embedder that fails for one key is called for the others', async () => {
    const embedder = scriptedEmbedder((text) =>
      text.includes('poison') ? Promise.reject(new Error('bad text')) : Float32Array.of(1, 0, 0, 0, 0, 0, 0, 0),
    )
    const { recall, teach } = createFixture({ embedder })
    for (let count = 0; count < 6; count += 1) await teach(`poison ${count}`, 'x', { keyId: 'key-2' })
    const before = embedder.calls()
    await teach('poison 7', 'x', { keyId: 'key-2' })

    expect(embedder.calls()).toBe(before)

    await teach(CAPITAL, 'Paris')

    expect(await recall(ALIKE)).toBe('Paris')
  })

  it('counts one failure for an unusable vector that a synchronous embedder returns', async () => {
    let calls = 0
    const embed = (texts: readonly string[]): readonly Float32Array[] => {
      calls += 1
      return texts.map(() => new Float32Array(8))
    }
    const { ask, teach } = createFixture({ embedder: { name: 'zero', dimensions: 8, embed } })
    await teach(CAPITAL, 'Paris')
    for (let count = 0; count < 5; count += 1) await ask(ALIKE)

    expect(calls).toBe(3)
  })

  it('an embedder that fails for several keys is paused for all', async () => {
    const embedder = scriptedEmbedder(() => Promise.reject(new Error('down')))
    const { teach } = createFixture({ embedder })
    for (const keyId of ['a', 'b', 'c', 'd', 'e', 'f']) {
      for (const text of ['first', 'second']) await teach(text, 'x', { keyId })
    }

    expect(embedder.calls()).toBeLessThan(6)
  })

  it('an index that rejects, or returns missing entries or entries of another scope', async () => {
    const neighbours: { id: string; similarity: number }[] = [{ id: 'nobody', similarity: 1 }]
    const index = {
      add: async () => {},
      nearest: async () => {
        if (neighbours.length === 0) throw new Error('down')
        return neighbours
      },
      remove: async () => {},
      clear: async () => {},
    }
    const { ask, cache, recall, teach } = createFixture({ index })
    await teach(CAPITAL, 'Paris')
    await teach(CAPITAL, 'secret', { keyId: 'key-2' })
    const other = await ask(CAPITAL, { keyId: 'key-2' })

    expect(await recall(ALIKE)).toBeUndefined()

    if (other.hit) neighbours.splice(0, 1, { id: other.id, similarity: 1 })

    expect(await recall(ALIKE)).toBeUndefined()

    neighbours.length = 0

    expect(await recall(ALIKE)).toBeUndefined()
    expect(cache.stats().failures).toBe(1)
  })

  it('a store that rejects', async () => {
    const down = (): Promise<never> => Promise.reject(new Error('down'))
    const responses = {
      get: down,
      put: down,
      amend: down,
      remove: down,
      hasComparable: down,
      clear: down,
      size: () => ({ entries: 0, bytes: 0 }),
    }
    const { cache, recall, teach } = createFixture({ responses })

    expect(await teach(CAPITAL, 'Paris')).toBe(false)
    expect(await recall(CAPITAL)).toBeUndefined()
    await cache.clear()
    await cache.reportWrongHit('x')
    expect(cache.stats().failures).toBeGreaterThan(0)
  })

  it('a caller that has disconnected', async () => {
    const { cache, recall, teach } = createFixture()
    await teach(CAPITAL, 'Paris')

    expect(await recall(ALIKE, { cancellation: Cancellation.of(AbortSignal.abort()) })).toBeUndefined()
    expect(cache.stats().failures).toBe(0)
  })
})

describe('an operator', () => {
  it('may verify the best candidate', async () => {
    const seen: unknown[] = []
    const { cache, recall, teach } = createFixture({
      verifyHit: (query, entry) => {
        seen.push([query, entry.text])
        return false
      },
    })
    await teach(CAPITAL, 'Paris')

    expect(await recall(ALIKE)).toBeUndefined()
    expect(await recall(CAPITAL)).toBe('Paris')
    expect(seen).toEqual([[{ text: ALIKE, keyId: 'key-1', modelName: 'chat/large' }, CAPITAL]])
    expect(cache.stats().rejections).toEqual({ verifier: 1 })
  })

  it.each([
    ['throws', () => Promise.reject(new Error('down'))],
    ['returns another value', () => 'yes' as unknown as boolean],
  ])('gets a miss if the verifier %s', async (_, verifyHit) => {
    const { recall, teach } = createFixture({ verifyHit })
    await teach(CAPITAL, 'Paris')

    expect(await recall(ALIKE)).toBeUndefined()
  })

  it('raises the threshold of an entry with one report of a wrong hit and removes it with a second', async () => {
    const { ask, cache, recall, teach } = createFixture()
    await teach(CAPITAL, 'Paris')
    const found = await ask(ALIKE)
    if (!found.hit) throw new Error('expected a hit')
    await cache.reportWrongHit(found.id)

    expect(await recall(ALIKE)).toBeUndefined()
    expect(await recall(CAPITAL)).toBe('Paris')

    await cache.reportWrongHit(found.id)

    expect(await recall(CAPITAL)).toBeUndefined()

    await cache.reportWrongHit('nobody')
  })

  it('clears the cache, or the answers of one key', async () => {
    const { cache, recall, teach } = createFixture()
    await teach(CAPITAL, 'one')
    await teach(CAPITAL, 'two', { keyId: 'key-2' })
    await cache.clear({ keyId: 'key-1' })

    expect(await recall(CAPITAL)).toBeUndefined()
    expect(await recall(ALIKE)).toBeUndefined()
    expect(await recall(CAPITAL, { keyId: 'key-2' })).toBe('two')

    await cache.clear()

    expect(await recall(ALIKE, { keyId: 'key-2' })).toBeUndefined()
    expect(cache.stats()).toMatchObject({ entries: 0, bytes: 0 })
  })

  it('can read the statistics', async () => {
    const { ask, cache, recall, teach } = createFixture()
    await teach(CAPITAL, 'Paris')
    await recall(CAPITAL)
    await recall(ALIKE)
    await recall('What is the capital of Spain?')
    await recall('What is the capital of Spain?', directives({ allowsRead: false }))

    expect(cache.stats()).toMatchObject({
      totalRequests: 4,
      hits: 2,
      misses: 2,
      exactHits: 1,
      hitRate: 0.5,
      entries: 1,
    })

    const miss = await ask('Who is it?')
    if (!miss.hit) miss.countAsHit()
    if (!miss.hit) miss.countAsHit()

    expect(cache.stats()).toMatchObject({ totalRequests: 5, hits: 3, misses: 2 })
  })

  it.each<[string, Partial<SemanticCacheOptions>]>([
    ['similarityThreshold', { similarityThreshold: 0.84 }],
    ['similarityThreshold', { similarityThreshold: 1.01 }],
    ['similarityThreshold', { similarityThreshold: Number.NaN }],
    ['ttlSeconds', { ttlSeconds: 0 }],
    ['ttlSeconds', { ttlSeconds: Number.POSITIVE_INFINITY }],
    ['freshTtlSeconds', { freshTtlSeconds: -1 }],
    ['maxEntries', { maxEntries: 0 }],
    ['maxEntries', { maxEntries: 1.5 }],
    ['maxBytes', { maxBytes: -5 }],
    ['timeoutMs', { timeoutMs: 0 }],
    ['scope', { scope: 'tenant' as 'key' }],
  ])('gets an error for an invalid %s when the gateway is created', (option, cache) => {
    const check = (): void => checkGatewayOptions({ providers: [extractive()], cache })

    expect(check).toThrow(GatewayError)
    expect(check).toThrow(`cache.${option}`)
  })
})
