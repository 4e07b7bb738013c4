import { describe, expect, it } from 'vitest'
import { toNanoUsd } from '../../../src/core/money.ts'
import { smallModelVerifier, type VerifierModel } from '../../../src/plugins/cache/cache-options.ts'
import { constantEmbedder, createFixture } from './fixture.ts'

const STORED = 'What is the capital of France?'
const PARAPHRASE = 'Which city is the seat of government in France?'

function model(reply: string): VerifierModel & { readonly prompts: string[] } {
  const asked: string[] = []
  return {
    prompts: asked,
    ask: async ({ text }) => {
      asked.push(text)
      return { text: reply, spent: toNanoUsd(700) }
    },
  }
}

describe('the small model as a verifier', () => {
  const options = { embedder: constantEmbedder(), verifyHit: smallModelVerifier() }

  it('accepts a paraphrase that the guard rejects for its wording, and reports the cost', async () => {
    const { ask, teach } = createFixture(options)
    const small = model('YES')
    await teach(STORED, 'Paris')
    const found = await ask(PARAPHRASE, { smallModel: () => small })

    expect(found).toMatchObject({ hit: true, spent: 700, completion: { parts: [{ text: 'Paris' }] } })
    expect(small.prompts.map((text) => JSON.parse(text) as unknown)).toEqual([{ first: STORED, second: PARAPHRASE }])
  })

  it.each(['No.', 'Not sure, yes?', ''])('treats the answer %j as a miss, and reports the cost', async (said) => {
    const { ask, teach } = createFixture(options)
    await teach(STORED, 'Paris')

    expect(await ask(PARAPHRASE, { smallModel: () => model(said) })).toMatchObject({ hit: false, spent: 700 })
  })

  it.each([
    ['What is the capital of France?', 'Which city is the seat of government in Spain?'],
    ['What is 5 percent of the price in euros?', 'How much in euros is 6 percent of the price?'],
    ['Does Anna love Paul?', 'Does Paul love Anna?'],
    ['Is it safe to swim here?', 'Is swimming here not dangerous?'],
    ['What does "gate" mean here?', 'Here, what is the meaning of "gates"?'],
  ])('is not asked about %j and %j, whose facts differ', async (stored, question) => {
    const { ask, teach } = createFixture(options)
    const small = model('YES')
    await teach(stored, 'x')

    expect((await ask(question, { smallModel: () => small })).hit).toBe(false)
    expect(small.prompts).toEqual([])
  })

  it('is called for one candidate of many', async () => {
    const { ask, teach } = createFixture(options)
    const small = model('NO')
    await teach(STORED, 'Paris', { smallModel: () => small })
    await teach('Tell me about the best wine of France', 'Red', { smallModel: () => small })
    small.prompts.length = 0

    expect((await ask(PARAPHRASE, { smallModel: () => small })).hit).toBe(false)
    expect(small.prompts).toHaveLength(1)
  })

  it('is not called for the same text, or if the requested model has no small model', async () => {
    const { ask, teach } = createFixture(options)
    const small = model('YES')
    await teach(STORED, 'Paris')

    expect((await ask(STORED, { smallModel: () => small })).hit).toBe(true)
    expect(small.prompts).toEqual([])
    expect((await ask(PARAPHRASE)).hit).toBe(false)
  })

  it('causes a miss when it fails or is late, and the late call is aborted', async () => {
    const { ask, cache, runtime, teach } = createFixture({ ...options, timeoutMs: 250 })
    await teach(STORED, 'Paris')
    let ended: AbortSignal | undefined
    const failing = { ask: () => Promise.reject(new Error('down')) }
    const late: VerifierModel = {
      ask: ({ signal }) => {
        ended = signal
        return new Promise(() => {})
      },
    }

    expect((await ask(PARAPHRASE, { smallModel: () => failing })).hit).toBe(false)

    const found = ask(PARAPHRASE, { smallModel: () => late })
    while (ended === undefined) await new Promise(setImmediate)
    runtime.advance(250)

    expect((await found).hit).toBe(false)
    expect(ended.aborted).toBe(true)
    expect(cache.stats().failures).toBe(2)
  })

  it('a custom verifier is not called for candidates that the guard rejects', async () => {
    let asked = 0
    const { ask, teach } = createFixture({
      embedder: constantEmbedder(),
      verifyHit: () => {
        asked += 1
        return true
      },
    })
    await teach(STORED, 'Paris')

    expect((await ask(PARAPHRASE)).hit).toBe(false)
    expect(asked).toBe(0)
  })

  it('a wrong hit is reported by the id of the request', async () => {
    const { ask, cache, recall, teach } = createFixture()
    await teach(STORED, 'Paris')
    const reworded = "what's the capital of france"
    await ask(reworded, { requestId: 'req-7' })
    await cache.reportWrongHit('req-7')

    expect(await recall(reworded)).toBeUndefined()
    expect(await recall(STORED)).toBe('Paris')
  })
})
