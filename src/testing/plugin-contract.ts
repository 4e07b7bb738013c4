import { asArray, asObject, asString, type Json, type JsonObject, parseJson } from '../core/json.ts'
import type { Provider } from '../core/ports.ts'
import { EchoProvider } from './echo-provider.ts'
import type { GatewayUnderTest } from './provider-contract.ts'
import type { TestApi } from './store-suite.ts'

/** The part of a gateway that `testPlugin` calls. */
export interface GatewayWithBatches extends GatewayUnderTest {
  readonly batches: { readonly work: () => Promise<void> }
}

/** A gateway with the plugin under test, and the texts that the suite sends through it. */
export interface PluginSetup {
  readonly gateway: GatewayWithBatches
  /** A question that the plugin lets pass. @default 'What is a sluice? Answer in one sentence.' */
  readonly question?: string
  /** The upstream's response to each question. @default the last message, as the upstream receives it */
  readonly response?: string
  /** The text that callers receive for the question. @default the question */
  readonly expected?: string
  /** A question that the plugin rejects. @default the plugin rejects no question */
  readonly rejected?: string
}

/** How a client writes a question and reads the response in one format. */
interface WireFormat {
  readonly name: string
  readonly path: string
  readonly body: (content: string) => JsonObject
  readonly textOf: (body: Json | undefined) => string
  readonly deltaOf: (event: Json | undefined) => string
}

const MODEL = 'contract/echo'
const MAX_TOKENS = 200
const QUESTION = 'What is a sluice? Answer in one sentence.'

const messagesBody = (content: string): JsonObject => ({
  model: MODEL,
  max_tokens: MAX_TOKENS,
  messages: [{ role: 'user', content }],
})

const messageText = (body: Json | undefined): string =>
  asArray(asObject(body)?.['content'])
    .map((block) => asString(asObject(block)?.['text']) ?? '')
    .join('')

const WIRE_FORMATS: readonly WireFormat[] = [
  {
    name: 'chat completions',
    path: '/v1/chat/completions',
    body: messagesBody,
    textOf: (body) => asString(asObject(firstChoice(body)?.['message'])?.['content']) ?? '',
    deltaOf: (event) => asString(asObject(firstChoice(event)?.['delta'])?.['content']) ?? '',
  },
  {
    name: 'messages',
    path: '/v1/messages',
    body: messagesBody,
    textOf: messageText,
    deltaOf: (event) => asString(asObject(asObject(event)?.['delta'])?.['text']) ?? '',
  },
  {
    name: 'responses',
    path: '/v1/responses',
    body: (input) => ({ model: MODEL, max_output_tokens: MAX_TOKENS, input }),
    textOf: (body) => asArray(asObject(body)?.['output']).map(messageText).join(''),
    deltaOf: (event) => {
      const { type, delta } = asObject(event) ?? {}
      return type === 'response.output_text.delta' ? (asString(delta) ?? '') : ''
    },
  },
]

function firstChoice(body: Json | undefined): JsonObject | undefined {
  return asObject(asArray(asObject(body)?.['choices'])[0])
}

interface Received {
  readonly status: number
  readonly text: string
  readonly hasError: boolean
}

/** Lengths at which the texts of a stream are split, in UTF-16 code units. */
const PIECE_LENGTHS: readonly number[] = [1, 2, 3, 7, Infinity]

/**
 * Declares the tests that every plugin must pass: the same response as JSON and as a stream, in each format, however the
 * upstream splits it; nothing shared between concurrent requests; no failure for tool calls, embeddings, token counts and
 * batches. `make` creates a gateway with the plugin and the provider that it receives.
 *
 * @example
 * testPlugin('redactEmails()', async (provider) => ({
 *   gateway: createGateway({ providers: [provider], plugins: [redactEmails()] }),
 *   question: 'Write to ada@example.com',
 * }), { afterEach, beforeEach, describe, expect, it })
 */
export function testPlugin(name: string, make: (provider: Provider) => Promise<PluginSetup>, api: TestApi): void {
  const { afterEach, beforeEach, describe, expect, it } = api
  let provider: EchoProvider
  let setup: PluginSetup
  let question = ''
  let expected = ''
  let secret = ''

  const send = async (path: string, body?: JsonObject, signal?: AbortSignal): Promise<Response> =>
    setup.gateway.fetch(`http://gateway${path}`, {
      method: body === undefined ? 'GET' : 'POST',
      headers: { authorization: `Bearer ${secret}`, 'content-type': 'application/json', 'cache-control': 'no-store' },
      ...(body !== undefined && { body: JSON.stringify(body) }),
      ...(signal !== undefined && { signal }),
    })

  const ask = async (wire: WireFormat, content: string, stream: boolean): Promise<Received> => {
    const response = await send(wire.path, { ...wire.body(content), ...(stream && { stream }) })
    const body = await response.text()
    if (!stream || response.status !== 200) {
      const parsed = parseJson(body)
      const hasError = (asObject(parsed)?.['error'] ?? null) !== null
      return { status: response.status, text: wire.textOf(parsed), hasError }
    }
    const events = eventsOf(body)
    return {
      status: response.status,
      text: events.map(wire.deltaOf).join(''),
      hasError: events.some(
        (event) => asObject(event)?.['error'] !== undefined || asObject(event)?.['type'] === 'error',
      ),
    }
  }

  describe(`${name} fulfills the plugin contract`, () => {
    beforeEach(async () => {
      provider = new EchoProvider()
      setup = await make(provider)
      provider.response = setup.response
      question = setup.question ?? QUESTION
      expected = setup.expected ?? question
      secret = (await setup.gateway.keys.create({ name: 'contract', budgetLimitCents: 1000 })).value
    })

    afterEach(() => setup.gateway.close())

    for (const wire of WIRE_FORMATS) {
      it(`gives the same response to ${wire.name} as JSON and as a stream, however it is split`, async () => {
        expect(await ask(wire, question, false)).toEqual({ status: 200, text: expected, hasError: false })
        for (const length of PIECE_LENGTHS) {
          provider.pieceLength = length
          expect(await ask(wire, question, true)).toEqual({ status: 200, text: expected, hasError: false })
        }
      })

      it(`shares nothing between concurrent ${wire.name}`, async () => {
        provider.pieceLength = 1
        const questions = Array.from({ length: 6 }, (_, index) => `${question} (${index})`)
        const alone: Received[] = []
        for (const content of questions) alone.push(await ask(wire, content, true))
        expect(await Promise.all(questions.map((content) => ask(wire, content, true)))).toEqual(alone)
      })

      it(`gives the whole response to ${wire.name} after a failed call of the upstream`, async () => {
        provider.failures = 1
        expect(await ask(wire, question, true)).toEqual({ status: 200, text: expected, hasError: false })
        expect(provider.callCount).toBe(2)
      })

      it(`answers further ${wire.name} after a reader has left a stream`, async () => {
        provider.pieceLength = 1
        const leaving = new AbortController()
        const response = await send(wire.path, { ...wire.body(question), stream: true }, leaving.signal)
        const reader = response.body?.getReader()
        await reader?.read()
        leaving.abort()
        await reader?.cancel().catch(() => {})
        expect(await ask(wire, question, true)).toEqual({ status: 200, text: expected, hasError: false })
      })

      it(`rejects ${wire.name} without a call of the upstream`, async () => {
        const { rejected } = setup
        if (rejected === undefined) return
        for (const stream of [false, true]) {
          const { status, hasError } = await ask(wire, rejected, stream)
          expect(status).toBeGreaterThan(399)
          expect(status).toBeLessThan(500)
          expect(hasError).toBe(true)
        }
        expect(provider.callCount).toBe(0)
      })
    }

    it('does not fail for a conversation with a tool call', async () => {
      const call = { type: 'tool_use', id: 'toolu_1', name: 'search', input: { query: question } }
      const result = { type: 'tool_result', tool_use_id: 'toolu_1', content: question }
      const response = await send('/v1/messages', {
        ...messagesBody(question),
        tools: [{ name: 'search', input_schema: { type: 'object' } }],
        messages: [
          { role: 'user', content: question },
          { role: 'assistant', content: [call] },
          { role: 'user', content: [result] },
        ],
      })
      expect(response.status).toBeLessThan(500)
    })

    it('does not fail for embeddings and token counts', async () => {
      const embeddings = await send('/v1/embeddings', { model: 'contract/echo-embedding', input: [question, question] })
      expect(embeddings.status).toBeLessThan(500)
      const { max_tokens: _, ...body } = messagesBody(question)
      expect((await send('/v1/messages/count_tokens', body)).status).toBeLessThan(500)
    })

    it('gives the same response to an item of a batch', async () => {
      const requests = [{ custom_id: 'one', params: messagesBody(question) }]
      const created = asObject(parseJson(await (await send('/v1/messages/batches', { requests })).text()))
      await setup.gateway.batches.work()
      const response = await send(`/v1/messages/batches/${asString(created?.['id'])}/results`)
      const result = asObject(asObject(parseJson(await response.text()))?.['result'])
      expect(result?.['type']).toBe('succeeded')
      expect(messageText(result?.['message'])).toBe(expected)
    })
  })
}

function eventsOf(body: string): readonly (Json | undefined)[] {
  return body
    .split('\n')
    .filter((line) => line.startsWith('data:') && !line.includes('[DONE]'))
    .map((line) => parseJson(line.slice('data:'.length)))
}
