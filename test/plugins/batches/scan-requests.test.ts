import { describe, expect, it } from 'vitest'
import { scanRequests } from '../../../src/plugins/batches/batch-requests.ts'
import { fc } from '../../support/properties.ts'

const decoder = new TextDecoder()

function runScan(text: string): {
  readonly elements: readonly string[]
  readonly rest: string
  readonly turns: number
} {
  const bytes = new TextEncoder().encode(text)
  const elements: string[] = []
  const scan = scanRequests(bytes)
  for (let turns = 0; ;) {
    const { value, done } = scan.next()
    if (done === true) return { elements, rest: decoder.decode(value), turns }
    if (value === undefined) turns += 1
    else elements.push(decoder.decode(bytes.subarray(value.start, value.end)))
  }
}

/** Names similar to `requests`, and texts with structural characters. */
const word = fc.oneof(
  fc.constantFrom('requests', 'request', '"requests":[', '\\', '\\"', ']', '[,]', '漢😀'),
  fc.string(),
)
const json = fc.jsonValue({ maxDepth: 4 })

describe('scanRequests', () => {
  it('finds the elements of the top-level array and returns the rest unchanged', () => {
    const others = fc.dictionary(
      word.filter((name) => name !== 'requests' && name !== '__proto__'),
      fc.oneof(json, fc.record({ requests: fc.array(json) }), word),
      { noNullPrototype: true },
    )
    const element = fc.oneof(
      json,
      fc.record({ custom_id: word, params: fc.record({ requests: fc.array(word) }) }),
      word,
    )
    fc.assert(
      fc.property(
        others,
        fc.array(element),
        others,
        fc.constantFrom(undefined, 1, '\t'),
        (before, list, after, space) => {
          const body = { ...before, requests: list, ...after }
          const { elements, rest } = runScan(JSON.stringify(body, undefined, space))
          expect(elements.map((text) => JSON.parse(text) as unknown)).toEqual(JSON.parse(JSON.stringify(list)))
          expect(JSON.parse(rest)).toEqual(JSON.parse(JSON.stringify({ ...body, requests: [] })))
        },
      ),
    )
  })

  it.each([
    ['an empty array', '{"requests": [ ]}', [], '{"requests": []}'],
    ['a missing element', '{"requests":[1,,2]}', ['1', '', '2'], '{"requests":[]}'],
    ['a trailing comma', '{"requests":[1,]}', ['1', ''], '{"requests":[]}'],
    ['a lone comma', '{"requests":[,]}', ['', ''], '{"requests":[]}'],
    ['an object instead of an array', '{"requests":{"requests":[1]}}', [], '{"requests":{"requests":[1]}}'],
    ['an array as the body', '["requests",[1]]', [], '["requests",[1]]'],
    ['an unterminated array', '{"requests":[1,2', ['1'], '{"requests":[1,2'],
    ['a duplicate key', '{"requests":[1],"requests":[2]}', ['1'], '{"requests":[],"requests":[2]}'],
    ['an empty body', '', [], ''],
  ])('leaves other input to the JSON parser: %s', (_, text, elements, rest) => {
    expect(runScan(text)).toMatchObject({ elements, rest })
  })

  it.each([
    ['before an element', '{"requests":[\u0001{"a":1}]}', ['\u0001{"a":1}']],
    ['after an element', '{"requests":[{"a":1}\u0001]}', ['{"a":1}\u0001']],
    ['instead of an element', '{"requests":[\u0000]}', ['\u0000']],
  ])('keeps a control character %s, which is not white space in JSON', (_, text, elements) => {
    expect(runScan(text).elements).toEqual(elements)
  })

  it('yields within a long string, a long array and long whitespace', () => {
    const long = 3_000_000
    for (const text of [
      `{"requests":["${'\\"'.repeat(long / 2)}"]}`,
      `{"requests":[[${'1,'.repeat(long / 2)}1]]}`,
      `{"requests":[${' '.repeat(long)}]}`,
    ]) {
      expect(runScan(text).turns).toBeGreaterThanOrEqual(10)
    }
  })
})
