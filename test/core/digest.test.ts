import { sha256 } from '../../src/platform/hash-node.ts'
import { describe, expect, it } from 'vitest'
import {
  digestJson,
  digestJsonInSteps,
  digestText,
  digestWithPauses,
  longBlockDigests,
  longMediaDigests,
} from '../../src/core/cache.ts'
import type { Prompt } from '../../src/core/prompt.ts'

const LONG = 300 * 1024

function promptWith(data: string): Prompt {
  const source = { type: 'base64', mediaType: 'image/png', data } as const
  const value = { type: 'image', source: { type: 'base64', media_type: 'image/png', data } }
  const part = { type: 'image', source, native: { dialect: 'messages', value } } as const
  return {
    native: { dialect: 'messages', value: {} },
    model: 'a/b',
    messages: [{ role: 'user', parts: [part] }],
    settings: {},
    tools: [],
    stream: false,
  }
}

describe('the digest of a text', () => {
  it('equals a short text', () => {
    expect(digestText({}, 'short', sha256)).toBe('short')
  })

  it('is short for a long text, equal for equal texts and different after any change of one character', () => {
    const text = 'x'.repeat(LONG)
    const name = digestText({}, text, sha256)
    expect(name.length).toBeLessThan(100)
    expect(digestText({}, 'x'.repeat(LONG), sha256)).toBe(name)
    for (const at of [0, 256 * 1024 - 1, 256 * 1024, LONG - 1]) {
      expect(digestText({}, `${text.slice(0, at)}y${text.slice(at + 1)}`, sha256)).not.toBe(name)
    }
    expect(digestText({}, `${text}x`, sha256)).not.toBe(name)
  })

  it('distinguishes surrogate pairs at any position, and lone surrogates', () => {
    const before = 'x'.repeat(256 * 1024 - 1)
    const rest = 'y'.repeat(1000)
    const signs = ['\u{1F600}', '\u{1F601}', '\u{20000}', '\uD83Dz', '\uD83Ez', '\uFFFDz', 'z\uDE00']
    const names = signs
      .flatMap((sign) => [`${before}${sign}${rest}`, `${sign}${before}${rest}`])
      .map((text) => digestText({}, text, sha256))

    expect(new Set(names).size).toBe(2 * signs.length)
  })

  it('is equal if computed in turns and if computed synchronously', async () => {
    const data = 'abcd'.repeat(LONG / 4)
    const prompt = promptWith(data)
    let turns = 0
    const digests = [...longMediaDigests(prompt, sha256), ...longBlockDigests(prompt, sha256)]
    await digestWithPauses(digests, async () => void turns++)
    expect(turns).toBe(2)
    const [part] = prompt.messages[0]?.parts ?? []
    if (part?.type !== 'image' || part.source.type !== 'base64' || part.native === undefined)
      throw new Error('no image')
    const neverAgain = (): string => expect.fail('digested again')
    expect(digestText(part.source, data, neverAgain)).toBe(digestText({}, data, sha256))
    expect(digestJson(part.native.value, neverAgain)).toBe(digestJson({ ...part.native.value }, sha256))
  })

  it('distinguishes objects that differ only in which field is long, is null, or resembles a digest', () => {
    const long = 'x'.repeat(LONG)
    const [, digest] = digestJson({ long }, sha256).split(' 2 ')
    const names = [
      { a: long, b: null },
      { a: null, b: long },
      { a: long, b: long },
      { a: null, b: null },
      { a: digest ?? '', b: null },
      { a: [long, null], b: null },
      { a: [null, long], b: null },
      { a: `${long}x`, b: null },
    ].map((value) => digestJson(value, sha256))
    expect(digest).toMatch(/^sha256 /)
    expect(new Set(names).size).toBe(names.length)
  })

  it('of a small object is its JSON, also if computed in turns', async () => {
    const value = { text: 'x'.repeat(1000), none: null }
    await digestWithPauses([digestJsonInSteps(value, () => expect.fail('hashed'))], async () => {})
    expect(digestJson(value, sha256)).toBe(JSON.stringify(value))
  })

  it('is not computed in advance for a prompt without long media', () => {
    const prompt = promptWith('abcd')
    expect([...longMediaDigests(prompt, sha256), ...longBlockDigests(prompt, sha256)]).toEqual([])
  })
})
