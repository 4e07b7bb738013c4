import { afterEach, describe, expect, it } from 'vitest'
import { memoryStore, type MemoryStoreOptions } from '../../src/index.ts'
import { sendRequest } from '../support/send-request.ts'
import { messageIdOf, post, readStream } from '../support/read-stream.ts'
import { buildEvents, HANG } from '../support/upstream.ts'
import { CHAT_MODEL, MESSAGE_MODEL, startStage, type Stage, type StageOptions } from '../support/stage.ts'

const stages: Stage[] = []
afterEach(async () => {
  await Promise.all(stages.splice(0).map((stage) => stage.close()))
})

/** Starts a gateway with a small store and a second key that floods it. */
async function stageWith(
  bounds: MemoryStoreOptions,
  options: StageOptions = {},
): Promise<Stage & { readonly hostile: string }> {
  const stage = await startStage({ store: memoryStore(bounds), ...options })
  stages.push(stage)
  return { ...stage, hostile: (await stage.gateway.keys.create({ name: 'hostile' })).value }
}

const SMALL = { expiring: { entries: 30, bytes: 10_000_000 } }
const FLOOD = 60

const chat = (content: string) => ({ model: CHAT_MODEL, messages: [{ role: 'user', content }] })

describe('a key that floods the store', () => {
  it('does not cause another key to be billed twice under an Idempotency-Key', async () => {
    const { hostile, ...stage } = await stageWith(SMALL)
    const headers = { 'idempotency-key': 'mine' }
    const first = await sendRequest(stage, chat('One?'), { headers })
    for (let n = 0; n < FLOOD; n += 1) {
      await sendRequest(stage, chat('Flood.'), { secret: hostile, headers: { 'idempotency-key': `flood-${n}` } })
    }
    const calls = stage.upstream.requests.length

    const second = await sendRequest(stage, chat('One?'), { headers })

    expect(second.text).toBe(first.text)
    expect(stage.upstream.requests).toHaveLength(calls)
  })

  it('does not evict the responses and streams of another key', async () => {
    const { hostile, ...stage } = await stageWith(SMALL)
    const response = await stage.openai.responses.create({ model: CHAT_MODEL, input: 'One?' })
    const message = await stage.anthropic.messages.create({
      model: MESSAGE_MODEL,
      max_tokens: 20,
      messages: [{ role: 'user', content: 'Two?' }],
    })
    for (let n = 0; n < FLOOD; n += 1) {
      await sendRequest(stage, { model: CHAT_MODEL, input: 'Flood.' }, { path: '/v1/responses', secret: hostile })
      await sendRequest(
        stage,
        { ...chat('Flood.'), model: MESSAGE_MODEL, max_tokens: 20 },
        { path: '/v1/messages', secret: hostile },
      )
    }

    const kept = await stage.openai.responses.retrieve(response.id)
    const replayed = await sendRequest(stage, {}, { path: `/v1/messages/${message.id}/streams` })

    expect(kept.output_text).toBe('Hello from upstream.')
    expect(replayed.status).toBe(200)
  })

  it('does not prevent the recording of another key’s streams', async () => {
    const bounds = { streams: { entries: 4 } }
    const { hostile, ...stage } = await stageWith({}, bounds)
    stage.upstream.reply = (request) =>
      request.text.includes('Flood')
        ? { kind: 'events', items: [...buildEvents(request, { text: 'Flood.' }).slice(0, 4), HANG] }
        : 'Hello.'
    const body = { ...chat('Flood.'), model: MESSAGE_MODEL, max_tokens: 20, stream: true }
    const flood = await Promise.all(
      Array.from({ length: 6 }, () => post({ ...stage, secret: hostile }, '/v1/messages', { body })),
    )
    const readers = flood.map(readStream)
    await Promise.all(readers.map((reader) => reader.readEvents(1)))
    const asked = { ...chat('Mine?'), model: MESSAGE_MODEL, max_tokens: 20, stream: true }
    const first = await (await post(stage, '/v1/messages', { body: asked })).text()

    const again = await post(stage, `/v1/messages/${messageIdOf(first)}/streams`)

    expect(again.status).toBe(200)
    expect(await again.text()).toBe(first)
    await Promise.all(readers.map((reader) => reader.cancel()))
  })

  it('does not evict audit records of another key', async () => {
    const { hostile, ...stage } = await stageWith({ logs: { entries: 60, bytes: 10_000_000, maxEntriesPerLog: 50 } })
    for (let n = 0; n < 3; n += 1) await sendRequest(stage, chat(`${n}?`))
    for (let n = 0; n < FLOOD; n += 1) await sendRequest(stage, chat('Flood.'), { secret: hostile })

    const { records } = await stage.gateway.audit.read({ keyId: stage.keyId })
    const all = await stage.gateway.audit.read({ limit: 1_000 })

    expect(records).toHaveLength(3)
    expect(all.records.filter((record) => record.keyId === stage.keyId)).toHaveLength(3)
  })
})

describe('requests that are rejected', () => {
  it('do not evict billed audit records of the same key', async () => {
    const { gateway, keyId, ...stage } = await stageWith({
      logs: { entries: 60, bytes: 10_000_000, maxEntriesPerLog: 50 },
    })
    for (let n = 0; n < 5; n += 1) await sendRequest(stage, chat(`${n}?`))
    for (let n = 0; n < FLOOD; n += 1) await sendRequest(stage, { ...chat('Flood.'), model: 'chat/none' })

    const { records } = await gateway.audit.read({ keyId, limit: 1_000 })

    expect(records.filter(({ outcome }) => outcome === 'answered')).toHaveLength(5)
    expect(records.filter(({ outcome }) => outcome === 'refused').length).toBeGreaterThan(10)
  })
})
