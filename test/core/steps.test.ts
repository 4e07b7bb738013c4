import { describe, expect, it } from 'vitest'
import { parseExactObject } from '../../src/core/exact-json.ts'
import type { Json, JsonObject } from '../../src/core/json.ts'
import {
  forEachInSteps,
  mapSlices,
  runSteps,
  serializeExactlyInSteps,
  serializeInSteps,
  type Steps,
} from '../../src/core/steps.ts'
import { fc } from '../support/properties.ts'

function countYields(steps: Steps<unknown>): number {
  for (let yields = 0; ; yields++) if (steps.next().done === true) return yields
}

const list = (length: number): readonly number[] => Array.from({ length }, (_, index) => index)

describe('a list of 1,000 items', () => {
  it('is mapped and read in slices, in order and completely', () => {
    const numbers = list(1000)
    const read: number[] = []

    expect(runSteps(mapSlices(numbers, (slice, start) => slice.map((item, index) => item + start + index)))).toEqual(
      numbers.map((item) => 2 * item),
    )
    runSteps(forEachInSteps(numbers, (item, index) => read.push(item + index)))
    expect(read).toEqual(numbers.map((item) => 2 * item))
    expect(countYields(mapSlices(numbers, (slice) => slice))).toBe(3)
    expect(countYields(forEachInSteps(numbers, () => {}))).toBe(3)
  })
})

describe('a value that is serialized in steps', () => {
  it('equals its plain serialization, wherever it has long lists', () => {
    const { value } = fc.letrec<{ value: Json; object: JsonObject; array: readonly Json[] }>((tie) => ({
      value: fc.oneof({ maxDepth: 5 }, fc.constantFrom(1, null, 'é"', true), tie('object'), tie('array')),
      object: fc.dictionary(fc.constantFrom('a', 'messages', '__proto__', '"'), tie('value'), { maxKeys: 3 }),
      array: fc
        .tuple(fc.array(tie('value'), { maxLength: 3 }), fc.constantFrom(0, 0, 255, 256, 257, 600))
        .map(([items, more]) => [...items, ...list(more), ...items]),
    }))
    fc.assert(
      fc.property(value, (json) => {
        expect(runSteps(serializeInSteps(json))).toBe(JSON.stringify(json))
      }),
    )
  })

  it('omits undefined fields, and takes a step per 256 elements of any list of a prompt', () => {
    const blocks = list(1000)
    const body = {
      gone: undefined,
      messages: [
        { role: 'user', content: blocks },
        { role: 'user', gone: undefined },
      ],
    }

    expect(runSteps(serializeInSteps(body))).toBe(JSON.stringify(body))
    expect(countYields(serializeInSteps(body))).toBeGreaterThanOrEqual(3)
    expect(countYields(serializeInSteps({ messages: [{ content: [{ content: blocks }] }] }))).toBeGreaterThanOrEqual(3)
  })

  it('keeps the numbers of parsed objects, also if it is built in several steps', () => {
    const input = `{"n":12345678901234567890,"list":[${list(600).join(',')}]}`
    const build = function* (): Steps<JsonObject> {
      const content = [{ type: 'tool_use', input: parseExactObject(input) }]
      yield
      return { messages: list(300).map(() => ({ content })) }
    }

    expect(runSteps(serializeExactlyInSteps(build())).split(input)).toHaveLength(301)
  })
})
