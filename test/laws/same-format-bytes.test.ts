import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { anthropic, createGateway, openaiCompatible, type Gateway } from '../../src/index.ts'
import { serve, type RunningServer } from '../../src/node.ts'
import { cases, fc } from '../support/properties.ts'
import { PRICE } from '../support/stage.ts'
import { startUpstream, type Upstream } from '../support/upstream.ts'

const MODEL = { id: 'org/large', price: PRICE, contextWindowTokens: 1_000_000, maxOutputTokens: 1000 }
const NAME = '"vendor/org/large"'

let upstream: Upstream
let gateway: Gateway
let server: RunningServer
let secret: string

beforeAll(async () => {
  upstream = await startUpstream({
    reply: ({ path }) =>
      path.endsWith('/responses')
        ? { kind: 'json', value: { id: 'resp_1', object: 'response', status: 'completed', output: [], usage: null } }
        : 'Yes.',
  })
  gateway = createGateway({
    providers: [
      openaiCompatible({ name: 'vendor', baseUrl: upstream.baseUrl, models: [MODEL], responses: true }),
      anthropic({ name: 'messages', baseUrl: upstream.url, apiKey: 'k', models: [MODEL] }),
    ],
    cache: false,
    limits: { maxTemperature: 2 },
  })
  server = await serve(gateway, { port: 0 })
  secret = (await gateway.keys.create({ name: 'law' })).value
})

afterAll(async () => {
  await server.close()
  await gateway.close()
  await upstream.close()
})

/** JSON text as other programs write it, with any white space, escapes, exponents and field order. */
const blank = fc.constantFrom('', ' ', '\n', '\t', ' \r\n ')
const number = fc.constantFrom('0', '-0', '1', '1.50', '1e-7', '12E3', '0.1', '123456789012345678901234567890')
const text = fc.oneof(
  fc.string({ maxLength: 12 }).map((words) => JSON.stringify(words)),
  fc.constantFrom('"\\u00e9"', '"é"', '"\\/"', '"\\ud83d\\ude00"', '"model"', '"\\"model\\":1"'),
)
const { value } = fc.letrec<{ value: string }>((tie) => ({
  value: fc.oneof(
    { maxDepth: 3, depthSize: 'small' },
    number,
    text,
    fc.constantFrom('true', 'false', 'null', '[]', '{ }'),
    fc.tuple(blank, fc.array(tie('value'), { maxLength: 3 })).map(([gap, items]) => `[${gap}${items.join(`${gap},`)}]`),
    fc
      .tuple(
        blank,
        fc.uniqueArray(fc.tuple(text, tie('value')), {
          maxLength: 3,
          selector: ([name]) => JSON.parse(name) as string,
        }),
      )
      .map(([gap, fields]) => `{${fields.map(([name, field]) => `${gap}${name}:${gap}${field}`).join(',')}}`),
  ),
}))

/** The required fields of a format, and some optional ones. */
interface Shape {
  readonly path: string
  readonly provider: string
  readonly fields: readonly (readonly [string, fc.Arbitrary<string>])[]
  readonly optional: readonly (readonly [string, fc.Arbitrary<string>])[]
}

const words = fc.string({ minLength: 1, maxLength: 20 }).map((said) => JSON.stringify(`Say ${said}`))
const turns = words.map((said) => `[ {"role":"user" ,"content":${said}} ]`)
const temperature = fc.constantFrom('0', '0.0', '1', '1.0e0')
const schema = fc.constantFrom('{"type":"object","properties":{}}', '{ "type" : "object" }')

const SHAPES: Readonly<Record<string, Shape>> = {
  chat: {
    path: '/v1/chat/completions',
    provider: 'vendor',
    fields: [['messages', turns]],
    optional: [
      ['temperature', temperature],
      ['tools', schema.map((given) => `[{"type":"function","function":{"name":"f","parameters":${given},"x":1.0}}]`)],
      ['reasoning_effort', fc.constantFrom('"low"', '"later"')],
    ],
  },
  message: {
    path: '/v1/messages',
    provider: 'messages',
    fields: [
      ['messages', turns],
      ['max_tokens', fc.constantFrom('1', '1000', '5e2')],
    ],
    optional: [
      ['temperature', temperature],
      ['system', words],
      ['tools', schema.map((given) => `[{"name":"f","input_schema":${given},"x":1.0}]`)],
      ['metadata', fc.constant('{ "user_id" : "u" }')],
    ],
  },
  responses: {
    path: '/v1/responses',
    provider: 'vendor',
    fields: [['input', fc.oneof(words, turns)]],
    optional: [
      ['temperature', temperature],
      [
        'tools',
        schema.map((given) => `[{"type":"custom","name":"f"},{"type":"namespace","name":"n","tools":[${given}]}]`),
      ],
      ['instructions', words],
      ['client_metadata', fc.constant('{"a" : "b"}')],
      ['include', fc.constant('["reasoning.encrypted_content"]')],
    ],
  },
}

function bodyOf({ fields, optional, provider }: Shape): fc.Arbitrary<string> {
  const strange = fc.uniqueArray(fc.tuple(fc.stringMatching(/^zz_[a-z]{1,8}$/), value), {
    maxLength: 4,
    selector: ([name]) => name,
  })
  const name = NAME.replace('vendor', provider)
  const known = fc.subarray([...optional]).chain((chosen) => {
    const all = [...fields, ...chosen, ['model', fc.constant(name)] as const]
    return fc.tuple(...all.map(([field, given]) => given.map((written) => [field, written] as const)))
  })
  return fc
    .tuple(known, strange, blank)
    .chain(([sure, odd, gap]) =>
      fc
        .shuffledSubarray([...sure, ...odd], { minLength: sure.length + odd.length })
        .map(
          (all) =>
            `${gap}{${all.map(([field, given]) => `${gap}"${field}"${gap}:${given}`).join(`${gap},`)}${gap}}${gap}`,
        ),
    )
}

describe('law: a request to a vendor of its own format', () => {
  it.each(Object.entries(SHAPES))('is forwarded byte for byte except for the model: %s', async (_, shape) => {
    const name = NAME.replace('vendor', shape.provider)
    await fc.assert(
      fc.asyncProperty(bodyOf(shape), async (body) => {
        const before = upstream.requests.length
        const responded = await fetch(`${server.url}${shape.path}`, {
          method: 'POST',
          headers: { authorization: `Bearer ${secret}`, 'content-type': 'application/json' },
          body,
        })
        expect([responded.status, await responded.text()]).toEqual([200, expect.any(String)])
        expect(upstream.requests).toHaveLength(before + 1)
        expect(upstream.last.text).toBe(body.replace(name, '"org/large"'))
      }),
      { numRuns: cases(60) },
    )
  })
})
