import { describe, expect, it } from 'vitest'
import { createSecret, hashSecret, isSameHash, isSameSecret, prefixOfSecret } from '../../src/governance/virtual-key.ts'

describe('the hash of a secret', () => {
  it('is not computed for texts that cannot be keys', () => {
    expect(hashSecret('')).toBeUndefined()
    expect(hashSecret('x'.repeat(513))).toBeUndefined()
    expect(hashSecret('x'.repeat(512))).toHaveLength(64)
  })
})

describe('a secret', () => {
  it.each(['sk-bf', 'sk-svc'] as const)('of the format %s is that prefix and a UUID', (format) => {
    expect(createSecret(format, () => crypto.randomUUID())).toMatch(
      new RegExp(`^${format}-[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`),
    )
  })

  it('is displayed as its first ten characters', () => {
    expect(prefixOfSecret('sk-bf-0123456789')).toBe('sk-bf-0123')
  })

  it('equals another secret only when the texts are equal', () => {
    expect(isSameSecret('admin', 'admin')).toBe(true)
    expect(isSameSecret('admin', 'Admin')).toBe(false)
    expect(isSameSecret('', '')).toBe(false)
    expect(isSameHash('abc', 'abd')).toBe(false)
    expect(isSameHash('abc', 'abcd')).toBe(false)
  })
})
