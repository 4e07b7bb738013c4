import { countTokens } from 'gpt-tokenizer/encoding/o200k_base'
import { describe, expect, it } from 'vitest'
import { createExactCounter } from '../../src/tokens/exact.ts'
import { cases, fc } from '../support/properties.ts'

const count = await createExactCounter('o200k')
const reference = (text: string): number => countTokens(text, { disallowedSpecial: new Set() })

const samples = [
  'Hello, world!',
  "I'll say it's DON'T and WE'RE, he'd",
  'const fooBar = async (JSONText: string) => { return [1, 22, 333, 4444] }\n\n\t// done\r\n',
  'https://example.com/a/b?c=d&e=%20f#g   trailing   ',
  '我们正在构建一个网关,它可以降低成本。',
  'Привет, как дела? Ελληνικά. שלום. नमस्ते. 안녕하세요.',
  '😀🎉👍🏽 ┌──┐│ok│└──┘ e\u0301\u0301 \u0301a',
  '<|endoftext|><|im_start|>system',
  '\u0000\u200d\u2028',
]

describe('exact counts', () => {
  it.each(samples)('agrees with the reference tokenizer on %j', async (text) => {
    expect(await count(text)).toBe(reference(text))
  })

  it('agrees with the reference tokenizer across its own windows', async () => {
    const text = samples.join(' and then\n').repeat(120)
    expect(text.length).toBeGreaterThan(32_768)
    expect(await count(text)).toBe(reference(text))
  })

  it('agrees with the reference tokenizer on random text, and never exceeds its bytes', async () => {
    const mixed = fc.array(
      fc.oneof(fc.constantFrom(...samples), fc.string({ unit: 'grapheme' }), fc.string({ unit: 'binary' })),
      { maxLength: 12 },
    )
    await fc.assert(
      fc.asyncProperty(mixed, async (parts) => {
        const text = parts.join('').replace(/\p{Surrogate}|\ufeff/gu, '')
        expect(await count(text)).toBe(reference(text))
        expect(await count(text)).toBeLessThanOrEqual(Buffer.byteLength(text))
      }),
      { numRuns: cases(150) },
    )
  })

  it('counts an empty text as 0', async () => {
    expect(await count('')).toBe(0)
  })

  it('counts a lone surrogate as the replacement character', async () => {
    expect(await count('a\ud800b')).toBe(await count('a\ufffdb'))
  })

  it.each([
    ['one letter', 'a', 125_000],
    ['spaces', ' ', 7813],
    ['line ends', '\n', 62_500],
    ['one symbol', '<', 125_000],
  ])('counts a megabyte of %s', async (_, sign, expected) => {
    const counted = await count(sign.repeat(1_000_000))
    expect(Math.abs(counted - expected)).toBeLessThanOrEqual(expected * 0.001)
  })

  it('yields while it counts a long text', async () => {
    let turns = 0
    const tick = (): void => {
      turns++
      timer = setImmediate(tick)
    }
    let timer = setImmediate(tick)
    await count('many words in a row '.repeat(50_000))
    clearImmediate(timer)
    expect(turns).toBeGreaterThan(20)
  })

  it('stops when its signal aborts', async () => {
    const leaving = new AbortController()
    const counting = count('word '.repeat(200_000), leaving.signal)
    leaving.abort(new Error('left'))
    await expect(counting).rejects.toThrow('left')
  })
})
