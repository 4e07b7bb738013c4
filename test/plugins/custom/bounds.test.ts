import { afterEach, describe, expect, it } from 'vitest'
import type { StreamChunk } from '../../../src/core/completion.ts'
import { GatewayError, type Plugin } from '../../../src/index.ts'
import { TransformerChain, TransformingWriter } from '../../../src/plugins/custom/transform-response.ts'
import { CHAT, responseText, sendRequest } from '../../support/send-request.ts'
import { startStage, type Stage, type StageOptions } from '../../support/stage.ts'

const stages: Stage[] = []
afterEach(async () => {
  await Promise.all(stages.splice(0).map((stage) => stage.close()))
})

async function start(plugins: readonly Plugin[], options: StageOptions = {}): Promise<Stage> {
  const stage = await startStage({ plugins, log: () => {}, ...options })
  stages.push(stage)
  return stage
}

describe('a changed prompt', () => {
  it.each<[string, ReturnType<NonNullable<Plugin['transformPrompt']>>, StageOptions]>([
    [
      'makes the vendor read a page, which the operator does not allow',
      {
        messages: [
          { role: 'user', parts: [{ type: 'image', source: { type: 'url', url: 'https://pages.example/a.png' } }] },
        ],
      },
      { vendorTools: 'refuse' },
    ],
    [
      'is longer than limits.promptBytes',
      { messages: [{ role: 'user', parts: [{ type: 'text', text: 'word '.repeat(500) }] }] },
      { limits: { promptBytes: 1000 } },
    ],
    [
      'has a native form that was not received',
      {
        messages: [
          {
            role: 'user',
            parts: [
              { type: 'text', text: 'Hi', native: { dialect: 'chat', value: { type: 'text', text: 'Other words' } } },
            ],
          },
        ],
      },
      {},
    ],
  ])('is rejected if it %s', async (_, change, options) => {
    const stage = await start([{ name: 'change', transformPrompt: () => change }], options)
    const reply = await sendRequest(stage, CHAT.body)

    expect([reply.status, stage.upstream.requests.length]).toEqual([500, 0])
  })
})

it('the key of the caller is in none of the headers that a plugin sees', async () => {
  const seen: string[] = []
  const stage = await start([{ name: 'see', onRequest: ({ headers }) => void seen.push(JSON.stringify(headers)) }])
  for (const name of ['authorization', 'x-api-key', 'x-bf-vk']) {
    const value = name === 'authorization' ? `Bearer ${stage.secret}` : stage.secret
    const headers = { [name]: value, cookie: stage.secret, 'x-tenant': 'blue' }
    expect((await sendRequest(stage, CHAT.body, { secret: null, headers })).status).toBe(200)
  }

  expect(seen).toHaveLength(3)
  for (const headers of seen) {
    expect(headers).toContain('blue')
    expect(headers).not.toContain(stage.secret)
  }
})

it('a failure of an upstream that a plugin calls is a failure of the plugin, and no rejection', async () => {
  const fail = (): never => {
    throw new GatewayError('upstream-rejected', 'The classifier refused its own prompt.')
  }
  const stage = await start([{ name: 'classifier', onRequest: fail }])

  expect((await sendRequest(stage, CHAT.body)).status).toBe(500)
})

it('a reply of onRequest is not transformed, because the prompt was not changed either', async () => {
  const stage = await start([
    { name: 'reply', onRequest: () => ({ content: 'As it is.' }) },
    {
      name: 'shout',
      transformResponse: () => ({
        write: (part) => (part.type === 'text-delta' ? { ...part, text: part.text.toUpperCase() } : undefined),
      }),
    },
  ])

  expect(responseText(await sendRequest(stage, CHAT.body))).toBe('As it is.')
})

describe('a transformed response', () => {
  const failure = new GatewayError('internal', 'The plugin failed.')

  it('ends with a failure of the plugin that returns too much text', () => {
    const text = 'x'.repeat(17 * 1024 * 1024)
    const transformer = { write: () => ({ type: 'text-delta', text }) as const }
    const chain = new TransformerChain([{ plugin: { name: 'flood' }, transformer }], () => failure)
    chain.write({ type: 'text-delta', text: 'a' })
    expect(chain.stop).toBeUndefined()
    chain.write({ type: 'text-delta', text: 'b' })

    expect(chain.stop).toEqual({ failure })
  })

  it('has no text after its end, which the transformers would not check', () => {
    const written: StreamChunk[] = []
    const inner = { write: (chunk: StreamChunk) => (written.push(chunk), []), end: () => [] }
    const writer = new TransformingWriter(inner, () => new TransformerChain([], () => failure))
    writer.write({
      parts: [
        { type: 'text-delta', text: 'Yes.' },
        { type: 'response-end', finish: 'stop' },
      ],
    })
    writer.write({ parts: [{ type: 'text-delta', text: 'Late.' }] })

    expect(JSON.stringify(written)).toContain('Yes.')
    expect(JSON.stringify(written)).not.toContain('Late.')
  })
})
