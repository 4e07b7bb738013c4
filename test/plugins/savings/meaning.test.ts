import { describe, expect, it } from 'vitest'
import type { Embedder } from '../../../src/core/cache.ts'
import { toNanoUsd } from '../../../src/core/money.ts'
import { textOfMessage } from '../../../src/core/messages.ts'
import { type Message, type Prompt } from '../../../src/core/prompt.ts'
import { createGateway, openaiCompatible } from '../../../src/index.ts'
import type { WaterfallResult } from '../../../src/plugins/savings/tier.ts'
import { jobOf, waterfallOf } from './bench.ts'
import { promptOf, prose, text } from './conversation.ts'

const ADVICE = 'Put the sleeping bag near the radiator, and drink cocoa before bed.'
const QUESTION = 'How can I stay warm at night?'
const STEERING = { level: 'extreme', vanishing: false, recursive: false } as const

/** Returns a long chat in which the one relevant answer shares no word with the question. */
function chat(questions: readonly string[] = [QUESTION]): Prompt {
  const messages: Message[] = []
  const say = (role: 'user' | 'assistant', words: string): void => void messages.push({ role, parts: [text(words)] })
  for (let at = 0; at < 40; at++) {
    say('user', `Tell me about ${prose(at, 300)}`)
    say('assistant', at === 11 ? `${ADVICE} ${prose(900, 300)}` : prose(100 + at, 600))
  }
  for (const question of questions.slice(0, -1)) {
    say('user', question)
    say('assistant', 'Fine.')
  }
  say('user', questions.at(-1) ?? '')
  return promptOf(messages, 'chat')
}

/** Creates an embedder that maps the question and the advice to one direction and all other texts to another. */
function warmEmbedder(more: Partial<Embedder> = {}): { readonly embedder: Embedder; readonly texts: string[] } {
  const texts: string[] = []
  const embedder: Embedder = {
    name: 'warm',
    dimensions: 2,
    embed: async (given) => {
      texts.push(...given)
      return given.map((one) => Float32Array.of(...(/warm at night|radiator/.test(one) ? [3, 0] : [0, 2])))
    },
    ...more,
  }
  return { embedder, texts }
}

const shorten = (embedder?: Embedder, prompt = chat()): Promise<WaterfallResult> =>
  waterfallOf({ slider: 'query', ...(embedder !== undefined && { embedder }) })(jobOf(prompt, { steering: STEERING }))

const sentText = ({ rewrite }: WaterfallResult): string => rewrite?.prompt.messages.map(textOfMessage).join('\n') ?? ''

describe('savings.embedder', () => {
  it('selects the answer that is most similar to the question', async () => {
    expect(sentText(await shorten())).not.toContain(ADVICE)
    expect(sentText(await shorten(warmEmbedder().embedder))).toContain(ADVICE)
  })

  it('also ranks for tier 2', async () => {
    const steering = { vanishing: true, recursive: false }
    const { rewrite } = await waterfallOf({ embedder: warmEmbedder().embedder })(
      jobOf(chat(['What about radiator cocoa night?', QUESTION]), { steering }),
    )

    expect(rewrite?.tier).toBe(2)
    expect(rewrite?.prompt.messages.map(textOfMessage).join('\n')).toContain(ADVICE)
  })

  it('embeds each text once per conversation, and at most 800 characters of it', async () => {
    const { embedder, texts } = warmEmbedder()
    const waterfall = waterfallOf({ slider: 'query', embedder })
    await waterfall(jobOf(chat(), { steering: STEERING }))
    const first = texts.length
    await waterfall(jobOf(chat([QUESTION, 'And in the morning?']), { steering: STEERING }))

    expect(first).toBe(81)
    expect(texts.slice(first)).toEqual(['And in the morning?', 'Fine.'])
    expect(Math.max(...texts.map((one) => one.length))).toBe(800)
  })

  it('embeds a text again for another key', async () => {
    const { embedder, texts } = warmEmbedder()
    const waterfall = waterfallOf({ slider: 'query', embedder })
    for (const owner of ['key-1', 'key-2']) await waterfall(jobOf(chat(), { owner, steering: STEERING }))

    expect(texts).toHaveLength(162)
  })

  const failures: readonly (readonly [string, Partial<Embedder>])[] = [
    ['rejects', { embed: () => Promise.reject(new Error('down')) }],
    [
      'throws',
      {
        embed: () => {
          throw new Error('down')
        },
      },
    ],
    ['returns vectors of another length', { dimensions: 3 }],
    ['returns too few vectors', { embed: async () => [] }],
    ['returns a vector of zeros', { embed: async (texts) => texts.map(() => new Float32Array(2)) }],
  ]
  it.each(failures)('ranks by words alone if the embedder %s', async (_, broken) => {
    const { rewrite } = await shorten(warmEmbedder(broken).embedder)

    expect(rewrite?.prompt).toEqual((await shorten()).rewrite?.prompt)
  })

  it('ranks by words alone if the embedder takes longer than three seconds, and aborts its calls', async () => {
    const signals: (AbortSignal | undefined)[] = []
    const { embedder } = warmEmbedder({
      embed: (_, signal) => {
        signals.push(signal)
        return new Promise(() => {})
      },
    })
    const after = (ms: number, callback: () => void): (() => void) => {
      if (ms === 3000) queueMicrotask(callback)
      return () => undefined
    }
    const { rewrite } = await waterfallOf({ slider: 'query', embedder, after })(jobOf(chat(), { steering: STEERING }))

    expect(rewrite?.prompt).toEqual((await shorten()).rewrite?.prompt)
    expect(signals.map((signal) => signal?.aborted)).toEqual([true])
  })

  it('embeds exchanges with words of the question first, uses the vectors that arrived before the timeout, and embeds the others on the next turn', async () => {
    let expire: (() => void) | undefined
    const after = (ms: number, callback: () => void): (() => void) => {
      if (ms === 3000) expire = callback
      return () => undefined
    }
    const counts: number[] = []
    const { embedder: warm, texts } = warmEmbedder()
    const embed: Embedder['embed'] = (given, signal) => {
      counts.push(given.length)
      // The last call of the first turn, and that of the second turn.
      if (given.length < 32) setImmediate(() => expire?.())
      return counts.length === 1 ? warm.embed(given, signal) : new Promise(() => {})
    }
    const { embedder } = warmEmbedder({ embed, textsPerCall: 32 })
    const waterfall = waterfallOf({ slider: 'query', embedder, after })
    const { messages, ...rest } = chat()
    const asked: Message = { role: 'user', parts: [text('One more thing, about the tent at night.')] }
    const adviceIndex = messages.findIndex((message) => textOfMessage(message).includes(ADVICE))
    const prompt: Prompt = { ...rest, messages: messages.with(adviceIndex - 1, asked) }
    const first = await waterfall(jobOf(prompt, { steering: STEERING }))
    await waterfall(jobOf(prompt, { steering: STEERING }))

    expect(texts.slice(0, 3)).toEqual([
      QUESTION,
      expect.stringContaining('tent at night'),
      expect.stringContaining(ADVICE),
    ])
    expect(sentText(first)).toContain(ADVICE)
    expect(counts).toEqual([32, 32, 17, 32, 17])
  })

  it('ranks the other texts if the vector of one text is unusable', async () => {
    const warm = warmEmbedder().embedder
    const embed: Embedder['embed'] = async (texts) =>
      (await warm.embed(texts)).map((vector, index) => (index === 5 ? new Float32Array(2) : vector))

    expect(sentText(await shorten(warmEmbedder({ embed }).embedder))).toContain(ADVICE)
  })

  it('does not call an embedder that failed twice in a conversation', async () => {
    let calls = 0
    const { embedder } = warmEmbedder({
      embed: () => {
        calls++
        return Promise.reject(new Error('down'))
      },
    })
    const waterfall = waterfallOf({ slider: 'query', embedder })
    for (let at = 0; at < 4; at++) await waterfall(jobOf(chat(), { steering: STEERING }))

    expect(calls).toBe(2)
  })

  it('is not called for a meeting, in which each turn is a user message', async () => {
    const { embedder, texts } = warmEmbedder()
    const turns = Array.from({ length: 60 }, (_, at): Message => ({ role: 'user', parts: [text(prose(at, 300))] }))
    const { rewrite } = await shorten(embedder, promptOf(turns, 'chat'))

    expect(rewrite?.tier).toBe(5)
    expect(texts).toEqual([])
  })

  it('adds the price of its calls to the cost of the request', async () => {
    const { embedder } = warmEmbedder({ price: 0.02 })
    const waterfall = waterfallOf({ slider: 'query', embedder })
    const first = await waterfall(jobOf(chat(), { steering: STEERING }))
    const second = await waterfall(jobOf(chat(), { steering: STEERING }))

    expect(first.spent).toBeGreaterThan(0)
    expect(second.spent).toBe(toNanoUsd(0))
  })

  it('raises X-Svc-Actual-Cost of a request to the gateway, and is not called for X-Svc-Explain', async () => {
    const body = JSON.stringify({
      model: 'mock/large',
      messages: chat().messages.map((message) => ({ role: message.role, content: textOfMessage(message) })),
    })
    const costOf = async (embedder: Embedder, headers: Record<string, string> = {}): Promise<string | null> => {
      const gateway = createGateway({ providers: [upstream()], cache: false, savings: { embedder } })
      const { value } = await gateway.keys.create({ name: 'test' })
      const response = await gateway.fetch(
        new Request('http://gateway/v1/chat/completions', {
          method: 'POST',
          headers: { 'content-type': 'application/json', 'x-api-key': value, 'x-savings-level': 'extreme', ...headers },
          body,
        }),
      )
      expect(response.status).toBe(200)
      await response.text()
      return response.headers.get('x-svc-actual-cost')
    }
    const free = await costOf(warmEmbedder().embedder)
    const priced = await costOf(warmEmbedder({ price: 1000 }).embedder)
    const explained = warmEmbedder()
    await costOf(explained.embedder, { 'x-svc-explain': 'true' })

    expect(Number(priced?.slice(1))).toBeGreaterThan(Number(free?.slice(1)) + 1)
    expect(explained.texts).toEqual([])
  })

  it('must have dimensions and a method embed', () => {
    const embedder = { name: 'broken' } as Embedder

    expect(() => createGateway({ providers: [upstream()], savings: { embedder } })).toThrow(/savings\.embedder/)
  })
})

function upstream(): ReturnType<typeof openaiCompatible> {
  const size = { contextWindowTokens: 1_000_000, maxOutputTokens: 1000 }
  return openaiCompatible({
    name: 'mock',
    baseUrl: 'http://mock/v1',
    family: 'mock',
    models: [{ id: 'large', price: { input: 3, output: 15 }, ...size }],
    fetch: async () =>
      Response.json({
        id: 'chatcmpl-1',
        object: 'chat.completion',
        created: 0,
        model: 'large',
        choices: [{ index: 0, message: { role: 'assistant', content: 'ok' }, finish_reason: 'stop' }],
        usage: { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 },
      }),
  })
}
