import { sha256 } from '../../src/platform/hash-node.ts'
import { describe, expect, it } from 'vitest'
import { digestInTurns, digestOf, longBlocksOf, longMediaOf } from '../../src/core/digest.ts'
import type { Prompt } from '../../src/core/prompt.ts'

const LONG = 300 * 1024

function promptWith(data: string): Prompt {
  const source = { type: 'base64', mediaType: 'image/png', data } as const
  const value = { type: 'image', source: { type: 'base64', media_type: 'image/png', data } }
  const part = { type: 'image', source, native: { dialect: 'anthropic', value } } as const
  return {
    native: { dialect: 'anthropic', value: {} },
    model: 'a/b',
    messages: [{ role: 'user', parts: [part] }],
    settings: {},
    tools: [],
    stream: false,
  }
}

describe('the digest of a text', () => {
  it('is the text itself where it is short', () => {
    expect(digestOf({}, 'short', sha256)).toBe('short')
  })

  it('is short for a long text, equal for equal texts and different after any change of one character', () => {
    const text = 'x'.repeat(LONG)
    const name = digestOf({}, text, sha256)
    expect(name.length).toBeLessThan(100)
    expect(digestOf({}, 'x'.repeat(LONG), sha256)).toBe(name)
    for (const at of [0, 256 * 1024 - 1, 256 * 1024, LONG - 1]) {
      expect(digestOf({}, `${text.slice(0, at)}y${text.slice(at + 1)}`, sha256)).not.toBe(name)
    }
    expect(digestOf({}, `${text}x`, sha256)).not.toBe(name)
  })

  it('is the same whether it was computed in turns before or at once', async () => {
    const data = 'abcd'.repeat(LONG / 4)
    const prompt = promptWith(data)
    let turns = 0
    await digestInTurns([...longMediaOf(prompt), ...longBlocksOf(prompt)], {
      hash: sha256,
      pause: async () => void turns++,
    })
    expect(turns).toBe(2)
    const [{ owner } = { owner: {} }] = longMediaOf(prompt)
    expect(digestOf(owner, data, sha256)).toBe(digestOf({}, data, sha256))
  })

  it('is computed ahead for nothing of a prompt without long media', () => {
    const prompt = promptWith('abcd')
    expect([...longMediaOf(prompt), ...longBlocksOf(prompt)]).toEqual([])
  })
})
