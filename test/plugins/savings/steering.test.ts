import { describe, expect, it } from 'vitest'
import { GatewayError } from '../../../src/core/errors.ts'
import { readSteeringHeaders } from '../../../src/plugins/savings/tier.ts'

const read = (fields: Record<string, string>) => {
  const headers = new Headers(fields)
  return readSteeringHeaders({ header: (name) => headers.get(name) ?? undefined })
}

describe('readSteeringHeaders', () => {
  it('returns the defaults without headers', () => {
    expect(read({})).toEqual({ vanishing: false, recursive: false })
  })

  it.each(['extreme', 'max', 'med', 'min', 'off', 'EXTREME', ' Med '])('accepts the level "%s"', (level) => {
    expect(read({ 'X-Savings-Level': level }).level).toBe(level.trim().toLowerCase())
  })

  it.each(['', 'huge', '16384', '__proto__', 'extreme, max'])(
    'rejects the level "%s" and names the header',
    (level) => {
      const attempt = () => readSteeringHeaders({ header: (name) => (name === 'x-savings-level' ? level : undefined) })
      expect(attempt).toThrow(GatewayError)
      expect(attempt).toThrow(
        expect.objectContaining({ kind: 'invalid-request', details: { param: 'X-Savings-Level' } }),
      )
    },
  )

  it('quotes only a short printable part of an unknown level', () => {
    const attempt = () =>
      readSteeringHeaders({ header: (name) => (name === 'x-savings-level' ? '\u0000\n漢'.repeat(5000) : undefined) })
    expect(attempt).toThrow(/^X-Savings-Level is "\?{40}"; expected/)
  })

  it.each([
    ['true', true],
    ['TRUE', true],
    ['1', true],
    [' yes ', true],
    ['false', false],
    ['0', false],
    ['No', false],
  ])('reads "%s" in the two other headers as %s', (value, wanted) => {
    expect(read({ 'X-Vanishing-Context': value }).vanishing).toBe(wanted)
    expect(read({ 'X-Svc-RLM': value }).recursive).toBe(wanted)
  })

  it.each(['', 'maybe', 'on', 'true, true', '2'])(
    'rejects "%s" of the two other headers and names the header',
    (value) => {
      for (const param of ['X-Vanishing-Context', 'X-Svc-RLM']) {
        expect(() => read({ [param]: value })).toThrow(
          expect.objectContaining({ kind: 'invalid-request', details: { param } }),
        )
      }
    },
  )
})
