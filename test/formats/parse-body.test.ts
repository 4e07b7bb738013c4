import { randomUUID } from 'node:crypto'
import { describe, expect, it, vi } from 'vitest'
import { parseInSteps } from '../../src/formats/large-bodies.ts'
import { GatewayError } from '../../src/core/errors.ts'
import { bodyText } from '../support/body-text.ts'
import { parseBodyInSteps, type ParsedBody } from '../../src/formats/parse-body.ts'
import { parseBody } from '../../src/formats/parse-body.ts'
import { jsonTextOf } from '../../src/plugins/batches/routes.ts'
import { replaceModel } from '../../src/formats/replace-model.ts'
import type { ParseLimits } from '../../src/formats/scan-json.ts'
import { scanJson } from '../../src/formats/scan-json.ts'
import { yieldToEventLoop } from '../../src/tokens/event-loop.ts'
import { cases, fc } from '../support/properties.ts'

const turns = { pause: yieldToEventLoop, uuid: () => randomUUID() }

function parse(written: string): ParsedBody & { readonly text: string } {
  const bytes = new TextEncoder().encode(written)
  const parsed = parseBody(bytes)
  return { ...parsed, text: jsonTextOf(bytes, parsed) }
}

function failureOf(action: () => unknown): GatewayError {
  try {
    action()
  } catch (error) {
    if (GatewayError.is(error)) return error
    throw error
  }
  throw new Error('nothing was thrown')
}

describe('a body that is not a JSON object', () => {
  it.each([
    ['nothing', ''],
    ['blanks', ' \r\n\t '],
    ['cut JSON', '{"model":"a/b","messages":[{"role":"us'],
    ['null', 'null'],
    ['an array', '[]'],
    ['a number', '1'],
    ['a string', '"text"'],
    ['two documents', '{"a":1}{"a":2}'],
    ['a NaN literal', '{"temperature":NaN}'],
    ['a comment', '{"a":1 /* note */}'],
    ['HTML', '<html><body>no</body></html>'],
    ['a form', 'model=a&messages=b'],
    ['an unclosed string', '{"a":"'],
    ['stray closing signs', '}}]]'],
  ])('is rejected: %s', (_name, text) => {
    const failure = failureOf(() => parse(text))
    expect(failure.kind).toBe('invalid-request')
    expect(failure.message).toMatch(/Send one JSON object/)
  })

  it('is quoted with at most 100 characters', () => {
    const failure = failureOf(() => parse(`${'x'.repeat(5000)}`))
    expect(failure.message.length).toBeLessThan(200)
  })
})

describe('the bytes of a body', () => {
  const within = (bytes: readonly number[]): Uint8Array => {
    const [before, after] = ['{"a":"', '"}'].map((text) => new TextEncoder().encode(text))
    return Uint8Array.from([...(before ?? []), ...bytes, ...(after ?? [])])
  }

  it.each([
    ['a lone continuation byte', within([0x80])],
    ['an overlong form', within([0xc0, 0xaf])],
    ['an encoded surrogate', within([0xed, 0xa0, 0x80])],
    ['a cut character', within([0xe6, 0xbc])],
    ['UTF-16 with its mark', Uint8Array.from([0xff, 0xfe, 0x7b, 0x00, 0x7d, 0x00])],
  ])('are rejected when they contain %s', (_name, bytes) => {
    const failure = failureOf(() => parseBody(bytes))
    expect(failure.kind).toBe('invalid-request')
    expect(failure.message).toMatch(/not valid UTF-8/)
  })

  it('are rejected as UTF-16 without a byte order mark', () => {
    expect(failureOf(() => parseBody(Uint8Array.from([0x7b, 0x00, 0x7d, 0x00]))).kind).toBe('invalid-request')
  })

  it('may begin with a byte order mark, which is removed', () => {
    const { body, text } = parse('\uFEFF{"model":"a/b"}')
    expect(body).toEqual({ model: 'a/b' })
    expect(text).toBe('{"model":"a/b"}')
  })
})

describe('depth and keys', () => {
  const nested = (depth: number): string => `${'{"a":'.repeat(depth)}1${'}'.repeat(depth)}`

  it('are accepted up to 64 levels and 100,000 keys', () => {
    expect(() => parse(nested(64))).not.toThrow()
    const keys = Array.from({ length: 9_990 }, (_, index) => `"k${index}":1`)
    const objects = Array.from({ length: 10 }, () => `{${keys.join(',')}}`)
    expect(() => parse(`{"x":[${objects.join(',')}]}`)).not.toThrow()
  })

  it.each([
    ['65 levels of objects', nested(65), /nested deeper than 64/],
    ['a million levels of arrays', '{"a":' + '['.repeat(1_000_000), /nested deeper than 64/],
    ['200,000 keys', `{"a":[${'{"a":1,"b":1},'.repeat(100_000)}1]}`, /100000 keys/],
    ['300,000 empty objects', `{"a":[${'{},'.repeat(300_000)}{}]}`, /100000 keys/],
  ])('are rejected before parsing: %s', (_name, text, message) => {
    const failure = failureOf(() => parse(text))
    expect(failure.kind).toBe('invalid-request')
    expect(failure.message).toMatch(message)
  })

  it('are counted only outside of strings', () => {
    const text = JSON.stringify({ a: '{[":'.repeat(60_000), b: '\\"{{{"\\\\'.repeat(20_000), c: '\\' })
    expect(parse(text).body).toEqual(JSON.parse(text))
  })

  it('are limited by custom limits', () => {
    expect(() => parseBody(new TextEncoder().encode('{"a":{"b":1}}'), { depth: 1 })).toThrow(/deeper than 1/)
    expect(() => parseBody(new TextEncoder().encode('{"a":1,"b":1}'), { keys: 1 })).toThrow(/more than 1 keys/)
  })
})

describe('array elements and numbers', () => {
  const list = (count: number, element: string): string => `{"a":[${Array(count).fill(element).join(',')}]}`

  it.each([
    ['strings', '"x"'],
    ['literals', 'true'],
    ['arrays', '[]'],
    ['objects', '{}'],
  ])('count as keys: 100,001 %s are rejected', (_name, element) => {
    expect(() => parse(list(99_999, element))).not.toThrow()
    expect(failureOf(() => parse(list(100_000, element))).message).toMatch(/100000 keys and array elements/)
  })

  it('have a separate limit for numbers, which accepts embeddings inputs of 300,000 tokens', () => {
    expect(() => parse(list(500_000, '1'))).not.toThrow()
    expect(failureOf(() => parse(list(500_001, '1'))).message).toMatch(/500000 numbers/)
  })

  it.each(['1e300', '1E-7', '0.5', '-1.5e+3', '1234567890'])(
    'count %s four times, because it is slow to parse',
    (number) => {
      expect(() => parse(list(125_000, number))).not.toThrow()
      expect(failureOf(() => parse(list(125_001, number))).message).toMatch(/500000 numbers/)
    },
  )

  it('do not count negative and 9-digit integers more than once', () => {
    expect(() => parse(list(250_000, '-1,123456789'))).not.toThrow()
    expect(() => parse(list(300_000, '-123456789'))).not.toThrow()
  })

  it('are rejected if the body has more than 4 MiB outside of its strings, including blanks', () => {
    const blanks = (count: number): string => `{"a":"${'x'.repeat(1000)}",${' '.repeat(count)}"b":1}`
    expect(() => parse(blanks(4 * 1024 * 1024 - 20))).not.toThrow()
    expect(failureOf(() => parse(blanks(4 * 1024 * 1024))).message).toMatch(/4194304 bytes outside its strings/)
  })
})

describe('the text of a body', () => {
  const limits = { textBytes: 10_000 }
  const parseText = (value: string): ParsedBody =>
    parseBody(new TextEncoder().encode(JSON.stringify({ a: value })), limits)
  const base64 = 'QUJDREVGR0hJ+/=='.repeat(1000)

  it('is limited, and the error has the code for which clients shorten a prompt', () => {
    expect(() => parseText('word '.repeat(1900))).not.toThrow()
    const failure = failureOf(() => parseText('word '.repeat(2100)))
    expect(failure.message).toMatch(/^prompt is too long/)
    expect(failure.details.code).toBe('context_length_exceeded')
  })

  it.each([
    ['base64', base64],
    ['base64 in a data: URL', `data:image/png;base64,${base64}`],
    ['base64 with line ends', base64.replace(/.{76}/g, '$&\r\n')],
  ])('does not include %s', (_name, value) => {
    expect(parseText(value).body).toEqual({ a: value })
  })

  it('does not include base64 with escaped slashes', () => {
    const text = JSON.stringify({ a: base64 }).replaceAll('/', '\\/')
    expect(parseBody(new TextEncoder().encode(text), limits).body).toEqual({ a: base64 })
  })

  it.each([
    ['ends in a blank', `${base64} `],
    ['is mostly escapes', '\n'.repeat(9000)],
  ])('includes text that resembles base64 but %s', (_name, value) => {
    expect(() => parseText(value)).toThrow(/prompt is too long/)
  })
})

describe('a large body in turns', () => {
  /** Returns the number of event-loop turns during some work. */
  async function countTurns(work: Promise<unknown>): Promise<number> {
    let turns = 0
    let isRunning = true
    const turn = (): void => {
      turns++
      if (isRunning) setImmediate(turn)
    }
    setImmediate(turn)
    await work
    isRunning = false
    return turns
  }

  it.each([
    ['base64', 'QUJD'],
    ['escaped quotes', '\\"ab'],
    ['characters beyond ASCII', 'é漢'],
    ['prose', 'The quick brown fox. '],
  ])('yields to the event loop at least once for each 1.2 MB of %s', async (_name, piece) => {
    const text = `{"model":"a/b","x":"${piece.repeat(12_000_000 / piece.length)}"}`
    const bytes = new TextEncoder().encode(text)

    const limits = { textBytes: piece === 'QUJD' ? 1000 : bytes.length }
    const count = await countTurns(Promise.resolve(parseBodyInSteps(bytes, limits, turns)))

    expect(count).toBeGreaterThan(bytes.length / 1_200_000)
  })

  it('scans base64 in slices, even if quotes at its end delay the search for the end of the string', () => {
    const bytes = Buffer.from(`{"model":"a/b","x":"${'QUJD'.repeat(1_000_000)}${'\\"'.repeat(200_000)}"}`)
    const steps = scanJson(bytes, { textBytes: bytes.length - 10 })
    let count = 1
    while (steps.next().done !== true) count += 1

    expect(count).toBeGreaterThanOrEqual(4_000_000 / (256 * 1024))
  })
})

describe('the long strings of a large body', () => {
  const BLANKS = ' '.repeat(1_100_000)
  const PLACEHOLDER = '0f8b1c5e-0000-4000-8000-000000000000'
  const parseInTurns = async (text: string, limits: ParseLimits = {}): Promise<ParsedBody> =>
    parseBodyInSteps(new TextEncoder().encode(text), limits, { pause: async () => {}, uuid: () => PLACEHOLDER })

  const piece = fc.constantFrom(
    'QUJD',
    'é漢',
    '😀',
    '\\n',
    '\\"',
    '\\\\',
    '\\u0041',
    '\\ud83d\\ude00',
    '\\ud83d',
    'plain ',
    '{[:,',
  )
  const literal = fc
    .record({
      pieces: fc.array(piece, { minLength: 1, maxLength: 4 }),
      length: fc.integer({ min: 0, max: 12_000 }),
    })
    .map(({ pieces, length }) => `"${pieces.join('').repeat(Math.ceil(length / pieces.join('').length))}"`)

  it('equal the result of JSON.parse at every position', async () => {
    const shape = fc.constantFrom('[X,X]', '{"a":X}', '[{"X":X,"__proto__":X}]', '{"a":{"b":[X,[X]]},"c":X}', 'X')
    await fc.assert(
      fc.asyncProperty(fc.array(literal, { minLength: 1, maxLength: 5 }), shape, async (literals, outline) => {
        let next = 0
        const value = outline.replaceAll('"X"', 'X').replaceAll('X', () => literals[next++ % literals.length] ?? '""')
        const text = `{"model":"a/b","x":${value},${BLANKS}"y":1}`
        const { body, hasRepeatedKeys, received } = await parseInTurns(text)
        expect(body).toEqual(JSON.parse(text))
        expect(hasRepeatedKeys).toBe(false)
        expect(received).toBeDefined()
      }),
      { numRuns: cases(60) },
    )
  })

  it.each(['', 'data:image/png;base64,', 'data:image\\/png;base64,', 'data:\\u0069mage/png;x=é;base64,'])(
    'equal the result of JSON.parse for base64 after "%s"',
    async (start) => {
      for (const data of ['QUJD'.repeat(2000), `${'QUJD'.repeat(2000)}\\/`, `${'QUJD'.repeat(400_000)}==`]) {
        const text = `{"model":"a/b",${BLANKS}"x":["${start}${data}"]}`
        const { body } = await parseInTurns(text, { textBytes: 1_000_000 })
        expect(JSON.stringify(body) === JSON.stringify(JSON.parse(text))).toBe(true)
      }
    },
  )

  it('are complete if longer than a step, with escapes and characters at every boundary', async () => {
    for (const piece of ['\\u00e9', '\\\\', '漢', '😀', 'a']) {
      for (let shift = 0; shift < 7; shift++) {
        const text = `{"x":"${'-'.repeat(shift)}${piece.repeat(2_100_000 / piece.length)}"}`
        expect((await parseInTurns(text)).body['x'] === (JSON.parse(text) as { readonly x: string }).x).toBe(true)
      }
    }
  })

  it.each([
    ['a line feed', `{"x":"${'a'.repeat(1_200_000)}\n"}`],
    ['a wrong escape', `{"x":"${'a'.repeat(1_200_000)}\\x"}`],
    ['a cut escape', `{"x":"${'a'.repeat(1_200_000)}\\u00"}`],
    ['no end', `{"x":"${'a'.repeat(1_200_000)}`],
  ])('are rejected without a position in the message if they contain %s', async (_name, text) => {
    const failure = await parseInTurns(text).catch((error: unknown) => error)
    expect(GatewayError.is(failure) && failure.kind).toBe('invalid-request')
    expect(String(failure)).toMatch(/is not valid JSON/)
    expect(String(failure)).not.toMatch(/position/)
  })

  it('have the last value of a repeated key', async () => {
    const [one, other] = ['1', '2'].map((digit) => digit.repeat(600_000))
    const { body, hasRepeatedKeys } = await parseInTurns(`{"x":"${one}","x":"${other}"}`)
    expect(hasRepeatedKeys).toBe(true)
    expect(body['x']).toBe(other)
  })
})

describe('a key __proto__', () => {
  it.each([
    ['plain', '{"model":"a/b","__proto__":{"stream":true},"messages":[{"role":"user","__proto__":{"x":1}}]}'],
    ['escaped', '{"model":"a/b","__\\u0070roto__":{"stream":true},"messages":[{"role":"user","\\u005f_proto__":1}]}'],
  ])('becomes an own property if it is %s, and the text is unchanged', (_name, text) => {
    const { body, text: own, received } = parse(text)
    expect(own).toBe(text)
    expect(received).toBeDefined()
    expect(Object.keys(body)).toEqual(['model', '__proto__', 'messages'])
    expect(body['stream']).toBeUndefined()
    expect(Object.getPrototypeOf(body)).toBe(Object.prototype)
  })

  it('does not change prototypes, and neither does a key constructor', () => {
    parse('{"constructor":{"prototype":{"polluted":true}}}')
    expect('polluted' in {}).toBe(false)
  })
})

describe('the position of the model', () => {
  it.each([
    ['{"model":"a/b","messages":[]}'],
    ['{ "messages" : [ {"model":"no"} ] ,\n "model" :\t"a/b" , "x":{"model":"no"} }'],
    ['{"model":"a\\/b\\"c","z":"\\"model\\":"}'],
    ['{"a":"model","漢":"😀","model":"a/b"}'],
  ])('is found in %s', (text) => {
    const { body, text: own, received } = parse(text)
    expect(own).toBe(text)
    if (received === undefined) throw new Error('no span')
    const { start, end } = received.modelSpan
    expect(JSON.parse(bodyText(received.bytes.subarray(start, end)))).toBe(body['model'])
    const replaced = replaceModel(received, 'other "name"')
    expect(JSON.parse(bodyText(replaced))).toEqual({ ...body, model: 'other "name"' })
    const head = Buffer.from(bodyText(replaced)).subarray(0, start)
    expect(head.equals(received.bytes.subarray(0, start))).toBe(true)
    const longer = JSON.parse(bodyText(replaceModel(received, 'm', { stream_options: { x: 1 } })))
    expect(longer).toEqual({ ...body, model: 'm', stream_options: { x: 1 } })
  })

  it.each([
    ['appears twice', '{"model":"a/b","model":"c/d"}'],
    ['appears twice, once escaped', '{"model":"a/b","mod\\u0065l":"c/d"}'],
    ['has an escaped key', '{"\\u006dodel":"c/d"}'],
    ['is not a string', '{"model":["c/d"],"x":"y"}'],
    ['is only inside', '{"x":{"model":"c/d"}}'],
  ])('is absent if the model %s', (_name, text) => {
    expect(parse(text).received).toBeUndefined()
  })

  it.each([
    ['{"model":"a/b","max_tokens":1,"max_tokens":9}', '{"model":"a/b","max_tokens":9}'],
    ['{"model":"a/b","model":"c/d"}', '{"model":"c/d"}'],
    ['{"model":"a/b","m":[{"content":"x","content":"y"}]}', '{"model":"a/b","m":[{"content":"y"}]}'],
  ])('is found after a repeated key is serialized once with its last value: %s', (text, once) => {
    expect(parse(text)).toEqual({
      body: JSON.parse(once),
      hasRepeatedKeys: true,
      text: once,
      maxSerializedBytes: text.length,
    })
  })
})

describe('a large body with long strings', () => {
  it('is parsed in steps, of which the last one only inserts the strings', () => {
    const text = `"${'long '.repeat(1000)}\\n"`
    const bytes = new TextEncoder().encode(`{"a":${text},"b":[1,[2,${text}]]}`)
    const starts = [5, 5 + text.length + 11]
    const strings = starts.map((start) => ({ start, end: start + text.length, isBase64: false }))
    const parse = vi.spyOn(JSON, 'parse')
    const longStrings = strings.map(({ start, end, isBase64 }) => ({ start: start + 1, end: end - 1, isBase64 }))
    const steps = parseInSteps(bytes, { longStrings, cuts: [] }, '#')

    const parsesPerStep: number[] = []
    for (;;) {
      parse.mockClear()
      const { done, value } = steps.next()
      parsesPerStep.push(parse.mock.calls.length)
      if (done === true) {
        parse.mockRestore()
        expect(value).toEqual(JSON.parse(new TextDecoder().decode(bytes)))
        break
      }
    }

    expect(parsesPerStep.at(-1)).toBe(0)
  })
})

describe('a body with many keys', () => {
  const resultOf = <Result>(steps: Generator<void, Result, undefined>): Result => {
    for (;;) {
      const { done, value } = steps.next()
      if (done === true) return value
    }
  }
  const parseInParts = (text: string, keysPerPart: number): unknown => {
    const bytes = new TextEncoder().encode(text)
    const scan = resultOf(scanJson(bytes, {}, keysPerPart))
    return resultOf(parseInSteps(bytes, scan, 'placeholder'))
  }
  const names = fc.constantFrom('a', 'b', 'c', '__proto__', '2', '1', '', '\\u0061', 'é', '\\"')
  const { json } = fc.letrec<{ json: string }>((tie) => ({
    json: fc.oneof(
      { maxDepth: 6, withCrossShrink: true },
      fc.constantFrom('1', 'null', '-1.50', '"x"', '"[{,:"', '{}', '[]', '[ ]'),
      fc.array(tie('json'), { maxLength: 6 }).map((items) => `[${items.join(', ')}]`),
      fc
        .array(fc.tuple(names, tie('json')), { maxLength: 6 })
        .map((members) => `{${members.map(([name, value]) => `"${name}" : ${value}`).join(',\n')}}`),
    ),
  }))
  const parts = fc.integer({ min: 1, max: 5 })

  it('is equal to the same body parsed at once, wherever it is cut', () => {
    fc.assert(
      fc.property(json, parts, (text, keysPerPart) => {
        const value = parseInParts(text, keysPerPart)
        expect(value).toEqual(JSON.parse(text))
        // The order of the keys, and own keys that are named `__proto__`.
        expect(JSON.stringify(value)).toBe(JSON.stringify(JSON.parse(text)))
      }),
      { numRuns: cases(500) },
    )
  })

  it('is rejected if it is not valid JSON, wherever it is cut', () => {
    const characters = fc.constantFrom('', ',', '[', ']', '{', '}', ':', '"', '1', ' ', '"a":1,', '\\', '\n')
    fc.assert(
      fc.property(json, parts, fc.nat(), fc.nat({ max: 2 }), characters, (text, keysPerPart, at, removed, added) => {
        const position = at % (text.length + 1)
        const changed = text.slice(0, position) + added + text.slice(position + removed)
        const outcome = (parse: () => unknown): string => {
          try {
            return JSON.stringify(parse())
          } catch {
            return 'invalid'
          }
        }
        expect(outcome(() => parseInParts(changed, keysPerPart))).toBe(outcome(() => JSON.parse(changed)))
      }),
      { numRuns: cases(1000) },
    )
  })

  it('is parsed in parts of at most 8,000 keys', async () => {
    const member = '"k10_100":1,'
    const shapes = Array.from({ length: 40 }, (_, shape) =>
      Object.fromEntries(Array.from({ length: 900 }, (_key, index) => [`k${shape + 10}_${index + 100}`, 1])),
    )
    const text = JSON.stringify({ model: 'a/b', x: shapes })
    const parse = vi.spyOn(JSON, 'parse')
    const { body } = await parseBodyInSteps(new TextEncoder().encode(text), {}, turns)
    const longest = Math.max(...parse.mock.calls.map(([part]) => part.length))
    parse.mockRestore()

    expect(body).toEqual(JSON.parse(text))
    expect(longest).toBeLessThan(9_000 * member.length)
    expect(text.length).toBeGreaterThan(30_000 * member.length)
  })

  it('is rejected before parsing if one object has more than 10,000 of them', () => {
    const objectOf = (count: number): string =>
      `{"x":[{${Array.from({ length: count }, (_, index) => `"k${index}":1`).join(',')}}]}`
    expect(() => parse(objectOf(10_000))).not.toThrow()
    expect(failureOf(() => parse(objectOf(10_001))).message).toBe(
      'The request body has an object with more than 10000 keys. Send fewer.',
    )
    expect(() => parseBody(new TextEncoder().encode('{"a":1,"b":1}'), { objectKeys: 1 })).toThrow(/more than 1 keys/)
  })
})
