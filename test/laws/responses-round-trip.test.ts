import { describe, expect, it } from 'vitest'
import { GatewayError } from '../../src/core/errors.ts'
import type { JsonObject } from '../../src/core/json.ts'
import { Collector } from '../../src/core/completion.ts'
import { parseBody } from '../../src/formats/parse-body.ts'
import { responsesClient } from '../../src/formats/responses/client.ts'
import { responsesUpstream } from '../../src/formats/responses/upstream.ts'
import { bodyText as textOfBody } from '../support/body-text.ts'
import { cases, fc } from '../support/properties.ts'
import { chatFormat, messagesFormat, responsesFormat } from '../support/two-way-formats.ts'

/** Unknown fields: names begin with x_, values are arbitrary. */
const unknown = fc.dictionary(
  fc.string({ unit: 'grapheme', maxLength: 5 }).map((name) => `x_${name}`),
  fc
    .oneof(fc.jsonValue({ maxDepth: 3 }), fc.constant(JSON.parse('{"__proto__":{"polluted":true},"a":1}')))
    .map(asSentByCallers),
  { maxKeys: 3 },
)

/** Any JSON value without negative zero, which JSON text cannot represent, and with `__proto__` as an own property. */
function asSentByCallers(value: unknown): unknown {
  return JSON.parse(JSON.stringify(value))
}

const text = fc.string({ unit: 'grapheme', maxLength: 30 })
const withUnknownFields = (known: fc.Arbitrary<object>): fc.Arbitrary<object> =>
  fc.tuple(known, unknown).map(([fields, others]) => ({ ...fields, ...others }))

const part = withUnknownFields(
  fc.oneof(
    fc.record({ type: fc.constantFrom('input_text', 'output_text'), text }),
    fc.record({ type: fc.constant('refusal'), refusal: text }),
    fc.record({ type: fc.constant('input_image'), image_url: text }),
    fc.record({ type: fc.constant('input_image'), file_id: text }),
    fc.record({ type: fc.constant('input_file'), file_data: text, file_url: text }, { requiredKeys: ['type'] }),
    fc.record({ type: text.map((name) => `x_${name}`) }),
  ),
)
const content = fc.oneof(text, fc.array(part, { maxLength: 3 }))
const item = withUnknownFields(
  fc.oneof(
    fc.record({ role: fc.constantFrom('user', 'assistant', 'system', 'developer'), content }),
    fc.record({ type: fc.constant('message'), role: fc.constantFrom('user', 'assistant'), content }),
    fc.record({ type: fc.constant('function_call'), call_id: text, name: text, arguments: fc.oneof(fc.json(), text) }),
    fc.record({ type: fc.constant('function_call_output'), call_id: text, output: content }),
    fc.record({
      type: fc.constant('reasoning'),
      id: text,
      summary: fc.array(fc.record({ type: fc.constant('summary_text'), text }), { maxLength: 2 }),
      encrypted_content: fc.option(text),
    }),
    fc.record({ type: fc.constantFrom('item_reference', 'web_search_call', 'x_later_output'), id: text }),
  ),
)
const body = withUnknownFields(
  fc.record(
    {
      model: fc.constantFrom('openai/gpt-4o', 'a/b/c'),
      input: fc.oneof(text, fc.array(item, { minLength: 1, maxLength: 6 })),
      instructions: fc.option(text),
      max_output_tokens: fc.option(fc.integer({ min: 1, max: 10_000 })),
      temperature: fc.double({ min: 0, max: 2, noNaN: true }).map((value) => value + 0),
      top_p: fc.option(fc.constantFrom(0, 0.5, 1)),
      tools: fc.array(
        withUnknownFields(
          fc.oneof(
            fc.record({ type: fc.constant('function'), name: text }),
            fc.record({ type: fc.constant('web_search') }),
          ),
        ),
        { maxLength: 3 },
      ),
      tool_choice: fc.oneof(fc.constantFrom('auto', 'none', 'required'), unknown),
      parallel_tool_calls: fc.boolean(),
      previous_response_id: fc.option(text),
      store: fc.option(fc.boolean()),
      metadata: unknown,
      user: text,
      reasoning: withUnknownFields(fc.record({ effort: fc.constantFrom('low', 'high') }, { requiredKeys: [] })),
      text: withUnknownFields(
        fc.record({
          format: fc.oneof(
            fc.constant({ type: 'text' }),
            withUnknownFields(fc.record({ type: fc.constant('json_schema'), name: text, schema: unknown })),
          ),
        }),
      ),
      stream: fc.boolean(),
    },
    { requiredKeys: ['model', 'input'] },
  ),
)

/** Serializes a body with any white space. */
const bodyText = fc
  .tuple(body, fc.constantFrom(undefined, 1, '\t'))
  .map(([value, space]) => JSON.stringify(value, null, space))

describe('law: write(read(body)) = body for responses requests', () => {
  it('as the same text, if it is unchanged', () => {
    fc.assert(
      fc.property(bodyText, (sent) => {
        const parsed = parseBody(new TextEncoder().encode(sent))
        const prompt = responsesClient.readPrompt(parsed.body, parsed.received)
        const { body, ignored } = responsesUpstream.writePrompt(prompt, prompt.model)
        expect([textOfBody(body), ignored]).toEqual([sent, []])
      }),
    )
  })

  it('as equal values, if its text was not retained', () => {
    fc.assert(
      fc.property(body, (sent) => {
        const value = JSON.parse(JSON.stringify(sent)) as JsonObject
        const prompt = responsesClient.readPrompt(value)
        expect(JSON.parse(textOfBody(responsesUpstream.writePrompt(prompt, prompt.model).body))).toEqual(value)
      }),
    )
  })

  it('in every item but those of the message that was rewritten', () => {
    fc.assert(
      fc.property(body, fc.nat(), (sent, seed) => {
        const value = JSON.parse(JSON.stringify(sent)) as JsonObject
        const prompt = responsesClient.readPrompt(value)
        const first = typeof value['instructions'] === 'string' ? 1 : 0
        const at = first + (seed % (prompt.messages.length - first))
        const messages = prompt.messages.with(at, { role: 'user', parts: [{ type: 'text', text: 'new' }] })
        const written = JSON.parse(
          textOfBody(responsesUpstream.writePrompt({ ...prompt, messages }, prompt.model).body),
        ) as JsonObject
        const items = typeof value['input'] === 'string' ? [{}] : (value['input'] as readonly JsonObject[])
        const touched = itemCount(prompt.messages[at]?.native?.value)
        const before = prompt.messages.slice(first, at).reduce((sum, one) => sum + itemCount(one.native?.value), 0)
        expect(written).toEqual({
          ...value,
          input: items.toSpliced(before, touched, { role: 'user', content: 'new' }),
        })
      }),
    )
  })
})

function itemCount(native: JsonObject | undefined): number {
  const items = native?.['type'] === undefined && native?.['role'] === undefined ? native?.['items'] : undefined
  return Array.isArray(items) ? items.length : 1
}

/** Runs an action that must not throw anything but a GatewayError. */
function expectOnlyGatewayErrors(action: () => void): void {
  try {
    action()
  } catch (error) {
    if (!GatewayError.is(error)) throw error
  }
}

const junk = fc.jsonValue({ maxDepth: 4 }).map((value) => value as JsonObject)

/** A valid body with one value replaced by junk. */
const mutated = fc.tuple(body, fc.nat(), junk).map(([sound, seed, value]) => {
  const copy = JSON.parse(JSON.stringify(sound)) as JsonObject
  return mutate(copy, seed, value) as JsonObject
})

function mutate(node: unknown, seed: number, value: unknown): unknown {
  if (typeof node !== 'object' || node === null) return value
  const keys = Object.keys(node)
  const key = keys[seed % Math.max(1, keys.length)]
  if (key === undefined || seed % 7 === 0) return value
  const inner: unknown = Reflect.get(node, key)
  Reflect.set(node, key, mutate(inner, Math.floor(seed / 3), value))
  return node
}

describe('law: junk', () => {
  it('in a request causes a GatewayError or is forwarded, in any format of the upstream', () => {
    fc.assert(
      fc.property(mutated, (sent) => {
        for (const format of [responsesFormat, chatFormat, messagesFormat]) {
          expectOnlyGatewayErrors(() => {
            const { body, received } = parseBody(new TextEncoder().encode(JSON.stringify(sent)))
            const whole =
              responsesClient.turns?.resolveReferences(body, {
                previousTurn: undefined,
                referencedResponses: new Map(),
                upstreamIds: new Set<string>(),
              }) ?? body
            expect(responsesClient.turns?.referencesIn(body).referencedTurnIds).toBeInstanceOf(Array)
            const prompt =
              whole === body ? responsesClient.readPrompt(body, received) : responsesClient.readPrompt(whole)
            format.writePrompt(prompt, 'm')
          })
        }
      }),
      { numRuns: cases(400) },
    )
  })

  it('from an upstream causes a GatewayError or is read', () => {
    const response = fc.oneof(
      fc.dictionary(fc.string(), junk),
      fc.record(
        { id: junk, model: junk, status: junk, output: fc.oneof(fc.array(fc.oneof(item, junk)), junk), usage: junk },
        { requiredKeys: [] },
      ),
    )
    const event = fc.record(
      {
        type: fc.constantFrom(
          'response.created',
          'response.output_item.added',
          'response.output_item.done',
          'response.content_part.added',
          'response.output_text.delta',
          'response.function_call_arguments.delta',
          'response.completed',
          'response.failed',
          'error',
          'x_later',
        ),
        response: fc.oneof(response, junk),
        item: fc.oneof(item, junk),
        part: fc.oneof(part, junk),
        output_index: junk,
        delta: fc.oneof(text, junk),
      },
      { requiredKeys: ['type'] },
    )
    fc.assert(
      fc.property(response, fc.array(event, { maxLength: 6 }), (value, events) => {
        expectOnlyGatewayErrors(() => void responsesUpstream.readCompletion(value as JsonObject))
        expectOnlyGatewayErrors(() => {
          const collected = new Collector()
          const read = responsesUpstream.createReader()
          for (const one of events) collected.add(read({ data: JSON.stringify(one) }))
          collected.completion()
        })
      }),
      { numRuns: cases(400) },
    )
  })
})
