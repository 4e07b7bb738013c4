import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterEach, expect, it } from 'vitest'
import type { Gateway } from '../../src/index.ts'
import type { JsonObject } from '../../src/core/json.ts'
import { startUpstream, type Upstream } from '../support/upstream.ts'

const root = fileURLToPath(new URL('../..', import.meta.url))
const closing: (() => unknown)[] = []
afterEach(async () => {
  for (const close of closing.splice(0).toReversed()) await close()
})

interface Page {
  readonly gateway: Gateway
  readonly upstream: Upstream
  send(path: string, body: JsonObject | FormData): Promise<Response>
}

/** Runs the code of docs/passthrough.md in front of a fake vendor. */
async function openPage(): Promise<Page> {
  const upstream = await startUpstream({ reply: () => ({ kind: 'json', value: { data: [] } }) })
  closing.push(upstream.close)
  const markdown = readFileSync(join(root, 'docs/passthrough.md'), 'utf8')
  const code = /```ts\n([\s\S]*?)```/.exec(markdown)?.[1] ?? ''
  const provider = `openai({ apiKey: 'sk-upstream', baseUrl: '${upstream.baseUrl}' })`
  const folder = mkdtempSync(join(root, 'test/docs/run-'))
  closing.push(() => rmSync(folder, { recursive: true }))
  const file = join(folder, 'page.ts')
  writeFileSync(file, `${code.replace('openai()', provider)}\nexport { gateway }\n`)
  const { gateway } = (await import(file)) as { readonly gateway: Gateway }
  closing.push(() => gateway.close())
  const { value } = await gateway.keys.create({ name: 'docs', budget_limit_cents: 1000, budget_reset_duration: '1d' })
  const send = (path: string, body: JsonObject | FormData): Promise<Response> =>
    gateway.fetch(
      new Request(`http://gateway${path}`, {
        method: 'POST',
        headers: {
          authorization: `Bearer ${value}`,
          ...(!(body instanceof FormData) && { 'content-type': 'application/json' }),
        },
        body: body instanceof FormData ? body : JSON.stringify(body),
      }),
    )
  return { gateway, upstream, send }
}

const IMAGE = { model: 'gpt-image-1.5', prompt: 'A lake.' }

it('the example of docs/passthrough.md bills each image at the largest price of its model, at the margin of 1.5', async () => {
  const { send } = await openPage()

  for (const [body, images] of [
    [IMAGE, 1],
    [{ ...IMAGE, n: null }, 1],
    [{ ...IMAGE, n: 10 }, 10],
  ] as const) {
    const response = await send('/v1/images/generations', body)
    const expected = 1.5 * (images * 0.21 + JSON.stringify(body).length * 5e-6)
    expect(response.status).toBe(200)
    expect(Number(response.headers.get('x-svc-billed-amount')?.slice(1))).toBeCloseTo(expected, 5)
  }
})

it.each([
  ['/v1/images/generations', { n: 0 }],
  ['/v1/images/generations', { n: [] }],
  ['/v1/images/generations', { n: ['10'] }],
  ['/v1/images/generations', { n: '1e-9' }],
  ['/v1/images/generations', { n: 1e-9 }],
  ['/v1/images/generations', { n: -1 }],
  ['/v1/images/generations', { n: 0.5 }],
  ['/v1/images/generations', { n: 1e6 }],
  ['/v1/images/generations', { n: {} }],
  ['/v1/images/generations', { n: false }],
  ['/v1/images/generations', { model: 'a-newer-model' }],
  ['/v1/images/generations', { model: 'constructor' }],
  ['/v1/images/generations', { model: undefined }],
  ['/v1/images/edits', {}],
  ['/v1/audio/speech', { input: 'Hello' }],
  ['/v1/audio/speech', { model: '__proto__', input: 'Hello' }],
] as const)('the example of docs/passthrough.md refuses a request to %s with %j', async (path, fields) => {
  const { gateway, upstream, send } = await openPage()
  const response = await send(path, { ...IMAGE, ...fields } as JsonObject)

  expect(response.status).toBe(400)
  expect(await response.json()).toMatchObject({ error: { code: 'price_unknown' } })
  expect(upstream.requests).toEqual([])
  const { records } = await gateway.audit.read({})
  expect(records.map(({ costUsd }) => costUsd)).toEqual([0])
})

it('the example of docs/passthrough.md bills speech at the price per character, and transcripts at the longest audio', async () => {
  const { send } = await openPage()
  const input = 'a'.repeat(4096)
  const speech = await send('/v1/audio/speech', { model: 'openai/tts-1', voice: 'coral', input })
  const billed = Number(speech.headers.get('x-svc-billed-amount')?.slice(1))

  // The vendor charges $15 per million characters.
  expect(billed).toBeGreaterThanOrEqual(1.5 * 4096 * 15e-6)
  expect(billed).toBeLessThan(1.5 * 4196 * 15e-6)

  const form = new FormData()
  form.set('model', 'gpt-4o-transcribe')
  form.set('file', new File([new Uint8Array(1000)], 'speech.flac'))
  const transcript = await send('/v1/audio/transcriptions', form)
  expect(transcript.headers.get('x-svc-billed-amount')).toBe('$0.225000')
  form.set('model', 'whisper-1')
  expect((await send('/v1/audio/transcriptions', form)).status).toBe(400)
})
