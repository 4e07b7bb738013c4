import type { TestApi } from './store-suite.ts'

/** The part of a gateway that `testProvider` calls. */
export interface GatewayUnderTest {
  readonly fetch: (url: string, init: RequestInit) => Promise<Response>
  readonly keys: {
    create(key: { readonly name: string; readonly budgetLimitCents: number }): Promise<{ readonly value: string }>
  }
  close(): Promise<void>
}

/** A gateway with the provider under test. */
export interface ProviderSetup {
  readonly gateway: GatewayUnderTest
  /** A model that answers with text, such as `mine/large`. */
  readonly model: string
  /** @default 'What is a sluice? Answer in one sentence.' */
  readonly question?: string
}

interface FormatUnderTest {
  readonly format: string
  readonly path: string
  readonly body: (model: string, content: unknown) => object
  /** Text of the last event of a stream. */
  readonly end: string
  /** Matches the text of a response or of a stream. */
  readonly text: RegExp
}

const MAX_TOKENS = 200
const FORMATS: readonly FormatUnderTest[] = [
  {
    format: 'chat completions',
    path: '/v1/chat/completions',
    body: (model, content) => ({ model, max_tokens: MAX_TOKENS, messages: [{ role: 'user', content }] }),
    end: '[DONE]',
    text: /"content":\s*"[^"]/,
  },
  {
    format: 'messages',
    path: '/v1/messages',
    body: (model, content) => ({ model, max_tokens: MAX_TOKENS, messages: [{ role: 'user', content }] }),
    end: 'message_stop',
    text: /"text":\s*"[^"]/,
  },
  {
    format: 'responses',
    path: '/v1/responses',
    body: (model, content) => ({ model, max_output_tokens: MAX_TOKENS, input: [{ role: 'user', content }] }),
    end: 'response.completed',
    text: /"(?:text|delta)":\s*"[^"]/,
  },
]

const QUESTION = 'What is a sluice? Answer in one sentence.'
/** A white pixel. */
const PNG = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=='

/**
 * Declares the tests that every provider must pass. They send requests in each format through a gateway, as clients do,
 * to the real upstream or to a fake one.
 *
 * @example
 * testProvider('mine', async () => ({
 *   gateway: createGateway({ providers: [mine({ baseUrl: fake.url })] }),
 *   model: 'mine/large',
 * }), { afterEach, beforeEach, describe, expect, it })
 */
export function testProvider(name: string, make: () => Promise<ProviderSetup>, api: TestApi): void {
  const { afterEach, beforeEach, describe, expect, it } = api
  let setup: ProviderSetup
  let secret = ''

  const send = (path: string, body: object, signal?: AbortSignal): Promise<Response> =>
    setup.gateway.fetch(`http://gateway${path}`, {
      method: 'POST',
      headers: { authorization: `Bearer ${secret}`, 'content-type': 'application/json' },
      body: JSON.stringify(body),
      ...(signal !== undefined && { signal }),
    })

  describe(`${name} fulfills the provider contract`, () => {
    beforeEach(async () => {
      setup = await make()
      secret = (await setup.gateway.keys.create({ name: 'contract', budgetLimitCents: 100 })).value
    })

    afterEach(() => setup.gateway.close())

    it('is healthy', async () => {
      const response = await setup.gateway.fetch('http://gateway/v1/models', {
        headers: { authorization: `Bearer ${secret}` },
      })
      const ids = ((await response.json()) as { readonly data: readonly { readonly id: string }[] }).data
      expect(ids.some(({ id }) => setup.model === id || setup.model.endsWith(`/${id}`))).toBe(true)
    })

    for (const { format, path, body, end, text } of FORMATS) {
      const ask = (more: object = {}, signal?: AbortSignal): Promise<Response> =>
        send(path, { ...body(setup.model, setup.question ?? QUESTION), ...more }, signal)

      it(`answers ${format} with text, and reports the usage from which it is billed`, async () => {
        const response = await ask()
        const received = await response.text()
        expect(response.status).toBe(200)
        expect(text.test(received)).toBe(true)
        expect(response.headers.get('x-svc-estimated')).toBe(null)
        expect(Number(response.headers.get('x-svc-optimized-tokens'))).toBeGreaterThan(0)
      })

      it(`streams ${format} to the last event`, async () => {
        const response = await ask({ stream: true })
        const events = await response.text()
        expect(response.status).toBe(200)
        expect(text.test(events)).toBe(true)
        expect(events.trimEnd().split('\n').slice(-4).join('\n').includes(end)).toBe(true)
        expect(/"error":\s*\{/.test(events)).toBe(false)
      })

      it(`ends a stream of ${format} that its reader leaves`, async () => {
        const leaving = new AbortController()
        const response = await ask({ stream: true }, leaving.signal)
        const reader = response.body?.getReader()
        await reader?.read()
        leaving.abort()
        await reader?.cancel().catch(() => {})
        expect((await (await ask()).text()).length).toBeGreaterThan(0)
      })
    }

    it('answers or rejects content that the upstream may not support', async () => {
      const image = [{ type: 'image', source: { type: 'base64', media_type: 'image/png', data: PNG } }]
      const response = await send('/v1/messages', {
        model: setup.model,
        max_tokens: MAX_TOKENS,
        messages: [{ role: 'user', content: [...image, { type: 'text', text: setup.question ?? QUESTION }] }],
      })
      await response.text()
      expect(response.status).toBeLessThan(500)
    })

    it('answers parallel requests', async () => {
      const statuses = await Promise.all(
        Array.from({ length: 8 }, async (_, index) => {
          const content = `${setup.question ?? QUESTION} (${index})`
          const response = await send('/v1/messages', {
            model: setup.model,
            max_tokens: MAX_TOKENS,
            messages: [{ role: 'user', content }],
          })
          await response.text()
          return response.status
        }),
      )
      expect(statuses).toEqual(statuses.map(() => 200))
    })
  })
}
