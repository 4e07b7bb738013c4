import { afterEach, expect, it } from 'vitest'
import type { JsonObject } from '../../src/core/json.ts'
import { sendRequest, CHAT } from '../support/send-request.ts'
import { startStage, type Stage } from '../support/stage.ts'
import { post, getReader } from '../support/read-stream.ts'
import { HANG, type Reply } from '../support/upstream.ts'
import { recordingStore, type RecordingStore } from '../support/recording-store.ts'

const PIECES = 40
const TEXT = ' elephant number'

const stages: Stage[] = []
afterEach(async () => {
  await Promise.all(stages.splice(0).map((stage) => stage.close()))
})

async function start(reply: () => Reply): Promise<{ readonly stage: Stage; readonly store: RecordingStore }> {
  const store = recordingStore()
  const stage = await startStage({ store, reply, key: { name: 'chooser', budget_limit_cents: 100_000 } })
  stages.push(stage)
  return { stage, store }
}

const body = (n: number, stream: boolean): JsonObject => ({ ...CHAT.body, max_tokens: 1000, n, stream })

const delta = (say: (text: string) => JsonObject, index: number): string => {
  const choices = [{ index, delta: say(TEXT), finish_reason: null }]
  return JSON.stringify({ id: 'x', object: 'chat.completion.chunk', created: 1, model: 'large', choices })
}

/**
 * Returns the billed completion tokens of a stream of `n` choices whose caller disconnects after each sent the same
 * content.
 */
async function billTokensAfterDisconnect(n: number, say: (text: string) => JsonObject): Promise<number> {
  const events = Array.from({ length: PIECES * n }, (_, at) => ({ data: delta(say, at % n) }))
  const { stage, store } = await start(() => ({ kind: 'events', items: [...events, HANG] }))
  const reader = getReader(await post(stage, CHAT.path, { body: body(n, true) }))
  const decoder = new TextDecoder()
  for (let text = ''; text.split(TEXT).length <= PIECES * n;) {
    text += decoder.decode((await reader.read()).value, { stream: true })
  }
  await reader.cancel()
  await store.waitUntilSettled()
  return store.dailyTotals().completion
}

it.each([
  ['text', (text: string) => ({ content: text })],
  ['thoughts', (text: string) => ({ reasoning_content: text })],
  ['tool calls', (text: string) => ({ tool_calls: [{ index: 0, id: 'c', function: { name: 'f', arguments: text } }] })],
])('a caller that disconnects from a stream of four choices is billed the %s of all four', async (_, say) => {
  const one = await billTokensAfterDisconnect(1, say)
  expect(one).toBeGreaterThan(PIECES)
  const four = await billTokensAfterDisconnect(4, say)
  // Each delta of a tool call repeats the name, but the first choice sends it once.
  expect(four).toBeGreaterThanOrEqual(4 * one - 4)
})

it('a whole answer of two choices without usage is billed for both', async () => {
  const choice = (index: number): JsonObject => ({
    index,
    message: { role: 'assistant', content: TEXT.repeat(PIECES) },
    finish_reason: 'stop',
  })
  const billed = async (n: number): Promise<number> => {
    const choices = Array.from({ length: n }, (_, index) => choice(index))
    const { stage, store } = await start(() => ({ kind: 'json', value: { id: 'x', model: 'large', choices } }))
    expect((await sendRequest(stage, body(n, false))).status).toBe(200)
    await store.waitUntilSettled()
    return store.dailyTotals().completion
  }
  const one = await billed(1)
  expect(one).toBeGreaterThan(PIECES)
  expect(await billed(2)).toBeGreaterThanOrEqual(2 * one - 2)
})
