import { createHash } from 'node:crypto'
import { describe, expect, it } from 'vitest'
import * as node from '../../src/platform/hash-node.ts'
import * as portable from '../../src/platform/hash-portable.ts'
import { fc } from '../support/properties.ts'

describe.each([
  ['on Node', node.sha256],
  ['on platforms without node:crypto', portable.sha256],
])('sha256 %s', (_, sha256) => {
  const expected = (text: string): string => createHash('sha256').update(text).digest('hex')

  it('returns the SHA-256 for texts of every length and script', () => {
    for (let length = 0; length < 200; length += 1)
      expect(sha256('x'.repeat(length))).toBe(expected('x'.repeat(length)))
    for (const length of [1999, 2000, 50_000]) expect(sha256('ä'.repeat(length))).toBe(expected('ä'.repeat(length)))
    fc.assert(fc.property(fc.string({ unit: 'binary', maxLength: 300 }), (text) => sha256(text) === expected(text)))
  })
})
