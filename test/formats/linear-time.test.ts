/** Counts steps instead of measuring time: twice the items may take at most about twice the steps. */
import { Session } from 'node:inspector/promises'
import { describe, expect, it } from 'vitest'
import type { Json, JsonObject } from '../../src/core/json.ts'
import type { Prompt, UpstreamDialect } from '../../src/core/prompt.ts'
import { chatUpstream } from '../../src/formats/chat/upstream.ts'
import { geminiUpstream } from '../../src/formats/gemini/upstream.ts'
import { createReader } from '../../src/formats/messages/response-reader.ts'
import { messagesClient } from '../../src/formats/messages/client.ts'
import { messagesUpstream } from '../../src/formats/messages/upstream.ts'
import { portablePrompt } from '../../src/formats/portable.ts'
import { responsesClient } from '../../src/formats/responses/client.ts'
import { responsesUpstream } from '../../src/formats/responses/upstream.ts'
import { allocationCounter } from '../support/cost/counters.ts'
import { countSteps } from '../support/count-steps.ts'

const ITEMS = 200

/** Returns the steps for twice the items, divided by the steps for the items. Linear work returns about 2. */
function growthOf(stepsFor: (itemCount: number) => number): number {
  return stepsFor(2 * ITEMS) / stepsFor(ITEMS)
}

const MAX_GROWTH = 2.2

function responsesPrompt(body: JsonObject): Prompt {
  return responsesClient.readPrompt({ model: 'a/b', input: 'Hello', ...body })
}

/** The number of tools in items is not limited, unlike the number of tools in the body. */
function promptWithTools(tools: readonly Json[], input: readonly Json[] = []): Prompt {
  return responsesPrompt({ input: [{ role: 'user', content: 'Hello' }, { type: 'additional_tools', tools }, ...input] })
}

function repeat(count: number, itemAt: (index: number) => Json): readonly Json[] {
  return Array.from({ length: count }, (_, index) => itemAt(index))
}

function translate(received: Prompt, dialect: UpstreamDialect): unknown {
  const { prompt } = portablePrompt(received, { dialect, model: {}, isLossy: true })
  const upstreams = {
    chat: chatUpstream,
    messages: messagesUpstream,
    responses: responsesUpstream,
    gemini: geminiUpstream,
  }
  return upstreams[dialect].writePrompt(prompt, 'upstream-model')
}

describe('the work of a translation is linear', () => {
  it.each(['chat', 'messages', 'gemini'] as const)('in the number of response items sent to %s', (dialect) => {
    const growth = growthOf((itemCount) => {
      const input = repeat(itemCount, (index) => ({ role: index % 2 === 0 ? 'user' : 'assistant', content: 'a' }))
      const prompt = responsesPrompt({ input })
      return countSteps(() => translate(prompt, dialect))
    })

    expect(growth).toBeLessThan(MAX_GROWTH)
  })

  it('in the number of rewritten response items', () => {
    const growth = growthOf((itemCount) => {
      const input = repeat(itemCount, (index) => ({ role: index % 2 === 0 ? 'user' : 'assistant', content: 'a' }))
      const { messages, ...prompt } = responsesPrompt({ input })
      const rewritten = { ...prompt, messages: messages.map(({ role, parts }) => ({ role, parts })) }
      return countSteps(() => responsesUpstream.writePrompt(rewritten, 'upstream-model'))
    })

    expect(growth).toBeLessThan(MAX_GROWTH)
  })

  it('in the number of assistant items in a row', () => {
    const growth = growthOf((itemCount) => {
      const input = repeat(itemCount, () => ({ type: 'reasoning', summary: [] }))
      return countSteps(() => responsesPrompt({ input }))
    })

    expect(growth).toBeLessThan(MAX_GROWTH)
  })

  it.each([
    ['one short name', () => 'search'],
    ['one name of the maximum length', () => 'a'.repeat(64)],
    ['names with equal beginnings', (index: number) => 'a'.repeat(61) + String(100 + (index % 100))],
  ] as const)('in the number of tools with %s', (_names, nameOf) => {
    const growth = growthOf((toolCount) => {
      const prompt = promptWithTools(repeat(toolCount, (index) => ({ type: 'function', name: nameOf(index) })))
      return countSteps(() => translate(prompt, 'chat'))
    })

    expect(growth).toBeLessThan(MAX_GROWTH)
  })

  it('in the number of calls of custom tools', () => {
    const growth = growthOf((callCount) => {
      const tools = repeat(callCount, (index) => ({ type: 'custom', name: `tool_${index}` }))
      const input = repeat(callCount, (index) => ({
        type: 'custom_tool_call',
        call_id: `call_${index}`,
        name: `tool_${index}`,
        input: 'a',
      }))
      const prompt = promptWithTools(tools, input)
      return countSteps(() => translate(prompt, 'chat'))
    })

    expect(growth).toBeLessThan(MAX_GROWTH)
  })

  it('in the number of fields of a strict schema', () => {
    const growth = growthOf((fieldCount) => {
      const names = repeat(fieldCount, (index) => `field_${index}`)
      const properties = Object.fromEntries(names.map((name) => [name, { type: 'string' }]))
      const schema = { type: 'object', properties, required: names, additionalProperties: false }
      const prompt = messagesClient.readPrompt({
        model: 'a/b',
        max_tokens: 9,
        messages: [{ role: 'user', content: 'Hello' }],
        output_config: { format: { type: 'json_schema', schema } },
      })
      return countSteps(() => translate(prompt, 'chat'))
    })

    expect(growth).toBeLessThan(MAX_GROWTH)
  })
})

describe('the memory to read a block that only the messages format supports is linear', () => {
  const fields = Object.fromEntries(Array.from({ length: 2000 }, (_, index) => [`field_${index}`, 'a']))

  it.each([
    ['in the number of deltas', fields, Array<JsonObject>(2000).fill({ text: 'a' })],
    ['in the number of fields of a delta', {}, [fields]],
  ])('%s', async (_title, block, deltas) => {
    const events = [
      { type: 'content_block_start', index: 0, content_block: { type: 'other', ...block } },
      ...deltas.map((delta) => ({ type: 'content_block_delta', index: 0, delta: { type: 'other_delta', ...delta } })),
      { type: 'content_block_stop', index: 0 },
    ].map((event) => ({ data: JSON.stringify(event) }))
    const read = createReader()

    const bytes = await allocatedBy(() => events.forEach(read))

    expect(bytes).toBeLessThan(MAX_ALLOCATED_BYTES)
  })
})

it.each([
  ['fields', (index: number) => ({ [`field_${index}`]: 1 })],
  ['iterations', (index: number) => ({ iterations: index === 0 ? Array<JsonObject>(2000).fill(COMPACTION) : null })],
])('the memory to read the usage of a messages stream is linear in its events and %s', async (_title, more) => {
  const events = Array.from({ length: 2000 }, (_, index) => {
    const usage = { output_tokens: index, ...more(index) }
    return { data: JSON.stringify({ type: 'message_delta', delta: {}, usage }) }
  })
  const read = createReader()

  const bytes = await allocatedBy(() => events.forEach(read))

  expect(bytes).toBeLessThan(MAX_ALLOCATED_BYTES)
})

const COMPACTION: JsonObject = { type: 'compaction', input_tokens: 1, output_tokens: 1 }

/** Measured: 3.5 MB. A copy of the fields per delta or per field allocates about 400 MB. */
const MAX_ALLOCATED_BYTES = 16_000_000

async function allocatedBy(run: () => void): Promise<number> {
  const session = new Session()
  session.connect()
  const counter = allocationCounter(session)
  await counter.start()
  run()
  const bytes = await counter.stop()
  session.disconnect()
  return bytes
}
