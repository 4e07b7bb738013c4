import { describe, expect, it } from 'vitest'
import { readCacheDirectives } from '../../../src/http/cache-directives.ts'

const directives = (headers: Record<string, string>): ReturnType<typeof readCacheDirectives> =>
  readCacheDirectives((name) => headers[name])

describe('the cache headers', () => {
  it.each([
    ['', true, true],
    ['no-store', false, false],
    ['No-Store, max-age=60', false, false],
    ['no-cache', false, true],
    ['max-age=0', false, true],
    ['private, no-cache', false, true],
    ['max-age=60', true, true],
    ['public, max-stale, min-fresh=3, , only-if-cached', true, true],
  ])('Cache-Control: %s reads %s and writes %s', (value, read, write) => {
    expect(directives({ 'cache-control': value })).toEqual({ allowsRead: read, allowsWrite: write })
  })

  it.each([
    ['0.97', 0.97],
    ['1', 1],
    [' 0.5 ', 0.5],
  ])('X-Svc-Cache-Threshold: %s means %d', (value, threshold) => {
    expect(directives({ 'x-svc-cache-threshold': value }).threshold).toBe(threshold)
  })

  it.each(['', 'high', '-1', '0.9.5', 'NaN', 'Infinity', '1e9', '0x1'])(
    'rejects X-Svc-Cache-Threshold: %s',
    (value) => {
      expect(() => directives({ 'x-svc-cache-threshold': value })).toThrow(
        /^X-Svc-Cache-Threshold is .*; expected a number/,
      )
    },
  )

  it.each([
    ['95', ' (did you mean 0.95?)'],
    ['98.5', ' (did you mean 0.985?)'],
    ['1.01', ''],
    ['7', ''],
    ['950', ''],
  ])('rejects X-Svc-Cache-Threshold: %s, which is above 1', (value, hint) => {
    expect(() => directives({ 'x-svc-cache-threshold': value })).toThrow(
      `X-Svc-Cache-Threshold is "${value}"; expected a number from 0 to 1, such as 0.98${hint}. Correct the value`,
    )
  })

  it.each(['no-storefront', 'no-stor', 'junk, no-store', 'max-age=soon', '='])('rejects Cache-Control: %s', (value) => {
    expect(() => directives({ 'cache-control': value })).toThrow(
      expect.objectContaining({ kind: 'invalid-request', details: { param: 'Cache-Control' } }),
    )
  })
})
