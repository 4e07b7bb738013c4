import { describe, expect, it } from 'vitest'
import type { Json, JsonObject } from '../../src/core/json.ts'
import { fillSchema, MAX_CHARACTERS, MAX_VALUES } from '../../src/testing/extractive/fill-schema.ts'

const LEVELS = 8

function countValues(value: Json | undefined): number {
  if (Array.isArray(value)) return 1 + value.reduce((sum: number, item: Json) => sum + countValues(item), 0)
  if (typeof value !== 'object' || value === null) return 1
  return 1 + Object.values(value).reduce((sum: number, item) => sum + countValues(item), 0)
}

/** Counts how often a property of the schema is read, including elements of arrays. */
function countReads(schema: JsonObject): { readonly watched: JsonObject; readonly reads: () => number } {
  let reads = 0
  const watch = <T extends object>(object: T): T =>
    new Proxy(object, {
      get: (target, name, receiver) => {
        reads++
        const value: unknown = Reflect.get(target, name, receiver)
        return typeof value === 'object' && value !== null ? watch(value) : value
      },
    })
  return { watched: watch(schema), reads: () => reads }
}

function nest(levels: number, wrap: (inner: JsonObject) => JsonObject, innermost: JsonObject = {}): JsonObject {
  return levels === 0 ? innermost : wrap(nest(levels - 1, wrap, innermost))
}

const tenItems = (items: JsonObject): JsonObject => ({ type: 'array', minItems: 10, items })
const names = Array.from({ length: 20 }, (_, index) => `field${index}`)
const twentyFields = (inner: JsonObject): JsonObject => ({
  type: 'object',
  properties: Object.fromEntries(names.map((name) => [name, inner])),
  required: names,
})
const recursive: JsonObject = {
  $ref: '#/$defs/node',
  $defs: { node: twentyFields({ $ref: '#/$defs/node' }) },
}

describe('fillSchema', () => {
  it.each<[string, JsonObject]>([
    ['nested arrays', nest(LEVELS, tenItems)],
    ['nested objects', nest(4, twentyFields)],
    ['a recursive reference', recursive],
    ['alternatives in arrays', nest(4, (inner) => ({ anyOf: [tenItems({ allOf: [inner] })] }))],
  ])('fills at most a fixed number of values of %s', (_, schema) => {
    expect(countValues(fillSchema(schema, 'x'))).toBeLessThanOrEqual(MAX_VALUES)
  })

  it.each<[string, JsonObject]>([
    ['long constants', nest(3, tenItems, { const: 'word '.repeat(2000) })],
    ['constants with many elements', nest(3, tenItems, { const: Array.from({ length: 5000 }, () => 1) })],
    ['long alternatives', nest(3, tenItems, { enum: ['word '.repeat(2000)] })],
    ['long names', nest(3, tenItems, { type: 'object', required: ['name'.repeat(2000)] })],
  ])('limits the length of an answer with %s', (_, schema) => {
    expect(JSON.stringify(fillSchema(schema, 'x')).length).toBeLessThan(2 * MAX_CHARACTERS)
  })

  it.each<[string, JsonObject]>([
    ['choices', { enum: Array.from({ length: 5000 }, (_, index) => `choice${index}`) }],
    ['choices that are not text', { enum: Array.from({ length: 5000 }, () => [1]) }],
    ['types', { type: Array.from({ length: 5000 }, () => 'null') }],
    ['names that are not text', { type: 'object', required: Array.from({ length: 5000 }, () => 1) }],
    ['numbers instead of a minimum', { type: 'number', minimum: Array.from({ length: 5000 }, () => 1) }],
    ['alternatives', { anyOf: Array.from({ length: 5000 }, () => ({ type: 'null' })) }],
  ])('reads a bounded part of a schema with many %s in nested arrays', (_, innermost) => {
    const { watched, reads } = countReads(nest(3, tenItems, innermost))
    fillSchema(watched, 'none of them')
    expect(reads()).toBeLessThan(200 * MAX_VALUES)
  })

  it('keeps the structure of a schema within the limits', () => {
    const schema = twentyFields(tenItems({ type: 'integer' }))
    const value = fillSchema(schema, '7')
    expect(value).toEqual(Object.fromEntries(names.map((name) => [name, Array.from({ length: 10 }, () => 7)])))
  })

  it('finds values at the start and at the end of a long text', () => {
    const text = `Order "red shoes" ${'and wait. '.repeat(20_000)} then "blue hats"`
    const schema = { type: 'array', minItems: 2, items: { type: 'string' } }
    expect(fillSchema(schema, text)).toEqual(['red shoes', 'blue hats'])
  })
})
