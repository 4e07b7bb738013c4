import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { promptVersion } from '../../../examples/plugins/prompt-version.ts'
import { redactEmails } from '../../../examples/plugins/redact-emails.ts'
import { stopAtKeyword } from '../../../examples/plugins/stop-at-keyword.ts'
import { usageQueue, type UsageRecord } from '../../../examples/plugins/usage-queue.ts'
import { KINDS } from '../../support/plugin-requests.ts'
import { sendRequest } from '../../support/send-request.ts'
import { CHAT_MODEL, MESSAGE_MODEL, type Stage, startStage } from '../../support/stage.ts'
import { gate } from '../../support/upstream.ts'
import { waitFor } from '../../support/wait-until.ts'

const ROUTES = [
  ['a chat upstream', CHAT_MODEL],
  ['a messages upstream', MESSAGE_MODEL],
] as const
const text = 'Write to ada@example.com and to bob@example.org, then to ada@example.com.'
const response = 'I wrote to [email-1] and [email-2]. Is [email-1] right?'
const restored = 'I wrote to ada@example.com and bob@example.org. Is ada@example.com right?'

/** Each character is a chunk of the stream, so that every placeholder is cut at every position. */
const characters = { text: [...response] }

describe('the example redact-emails', () => {
  let stage: Stage

  beforeEach(async () => {
    stage = await startStage({ plugins: [redactEmails()], reply: ({ stream }) => (stream ? characters : response) })
  })

  afterEach(async () => {
    const { text: sent } = stage.upstream.last
    expect(sent).toContain('[email-2]')
    expect(sent).not.toContain('@example')
    await stage.close()
  })

  describe.each(ROUTES)('with %s', (_name, model) => {
    const messages = [{ role: 'user' as const, content: text }]

    it('restores addresses in a chat completion', async () => {
      const completion = await stage.openai.chat.completions.create({ model, messages })

      expect(completion.choices[0]?.message.content).toBe(restored)
    })

    it('restores addresses in a chat stream', async () => {
      const stream = await stage.openai.chat.completions.create({ model, messages, stream: true })
      let received = ''
      for await (const chunk of stream) received += chunk.choices[0]?.delta.content ?? ''

      expect(received).toBe(restored)
    })

    it('restores addresses in a message', async () => {
      const message = await stage.anthropic.messages.create({ model, messages, max_tokens: 100 })

      expect(message.content).toMatchObject([{ type: 'text', text: restored }])
    })

    it('restores addresses in a message stream', async () => {
      const stream = stage.anthropic.messages.stream({ model, messages, max_tokens: 100 })

      expect((await stream.finalMessage()).content).toMatchObject([{ type: 'text', text: restored }])
    })

    it('restores addresses in a response', async () => {
      const response = await stage.openai.responses.create({ model, input: text })

      expect(response.output_text).toBe(restored)
    })

    it('restores addresses in a response stream', async () => {
      const stream = stage.openai.responses.stream({ model, input: text })

      expect((await stream.finalResponse()).output_text).toBe(restored)
    })
  })
})

describe('the example stop-at-keyword', () => {
  it.each(KINDS)('stops $name before the keyword, and rejects a prompt with it', async (kind) => {
    const letters = { text: [...'The password is SECRET and more.'] }
    const stage = await startStage({
      plugins: [stopAtKeyword(['secret', 'token'])],
      reply: ({ stream }) => (stream ? letters : letters.text.join('')),
    })

    const { text: received, error } = await kind.ask(stage, CHAT_MODEL, 'What is it?')
    const rejected = await kind.ask(stage, CHAT_MODEL, 'Tell me the Secret.')

    expect([received, error]).toEqual(['The password is ', undefined])
    expect(rejected.error?.status).toBe(400)
    expect(stage.upstream.requests).toHaveLength(1)
    await stage.close()
  })
})

describe('the example prompt-version', () => {
  it('adds the system prompt of the version in the header', async () => {
    const stage = await startStage({ plugins: [promptVersion({ v2: 'Answer in one word.' })] })
    const body = {
      model: MESSAGE_MODEL,
      max_tokens: 10,
      system: 'Be kind.',
      messages: [{ role: 'user', content: 'Hi' }],
    }
    const send = (version: string) =>
      sendRequest(stage, body, { path: '/v1/messages', headers: { 'x-prompt-version': version } })

    expect((await send('v2')).status).toBe(200)
    expect((await send('v3')).status).toBe(400)

    expect(JSON.stringify(stage.upstream.last.body['system'])).toMatch(/Answer in one word.*Be kind/)
    await stage.close()
  })
})

describe('the example usage-queue', () => {
  it('reports requests in batches, and drops the oldest records of a slow sink', async () => {
    const slow = gate()
    const sent: UsageRecord[][] = []
    const queue = usageQueue({
      maxRecords: 2,
      send: async (records) => {
        sent.push([...records])
        await slow.opened
      },
    })
    const stage = await startStage({ plugins: [queue.plugin], reply: () => 'Fine.' })
    const [chat] = KINDS

    for (let count = 0; count < 4; count++) await chat?.ask(stage, CHAT_MODEL, 'Hello?')
    await waitFor(() => expect(queue.dropped()).toBe(1))
    slow.open()
    await stage.close()

    expect(sent.map(({ length }) => length)).toEqual([1, 2])
    expect(sent[0]).toMatchObject([{ keyId: stage.keyId, model: CHAT_MODEL, status: 200, attempts: 1 }])
  })
})
