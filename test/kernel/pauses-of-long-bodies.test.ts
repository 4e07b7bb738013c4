import { expect, it, vi } from 'vitest'
import { chatClient } from '../../src/formats/chat/client.ts'
import type * as Portable from '../../src/formats/portable.ts'
import { messagesUpstream } from '../../src/formats/messages/upstream.ts'
import { anthropic, createGateway, memoryStore, openaiCompatible, type Store } from '../../src/index.ts'

const price = { input: 1, output: 2 }
const completion = {
  id: 'x',
  choices: [{ index: 0, message: { role: 'assistant', content: 'Yes.' }, finish_reason: 'stop' }],
  usage: { prompt_tokens: 10, completion_tokens: 1, total_tokens: 11 },
}

/** Returns the turns of the event loop in which the prompt is read, its cost is reserved, and the upstream is called. */
async function turnsOf(messageCount: number): Promise<readonly number[]> {
  let turn = 0
  let isRunning = true
  const turns: number[] = []
  const count = (): void => {
    turn += 1
    if (isRunning) setImmediate(count)
  }
  const memory = memoryStore()
  const reserve: Store['reserve'] = (request) => {
    turns.push(turn)
    return memory.reserve(request)
  }
  const store: Store = Object.assign(Object.create(memory) as typeof memory, { reserve })
  const gateway = createGateway({
    store,
    providers: [
      openaiCompatible({
        name: 'test',
        baseUrl: 'http://upstream/v1',
        models: [{ id: 'large', price, contextWindowTokens: 10_000_000, maxOutputTokens: 100 }],
      }),
    ],
    runtime: {
      fetch: () => {
        turns.push(turn)
        return Promise.resolve(Response.json(completion))
      },
    },
  })
  const key = await gateway.keys.create({ name: 'test', budgetLimitCents: 100_000 })
  const ask = async (length: number): Promise<number> => {
    const messages = Array.from({ length }, (_, index) => ({ role: index % 2 ? 'assistant' : 'user', content: 'a' }))
    const response = await gateway.fetch('http://gateway/v1/chat/completions', {
      method: 'POST',
      headers: { authorization: `Bearer ${key.value}`, 'content-type': 'application/json' },
      body: JSON.stringify({ model: 'test/large', max_tokens: 5, messages }),
    })
    return response.status
  }
  // The first request loads modules.
  expect(await ask(3)).toBe(200)
  turns.length = 0
  const { readPrompt } = chatClient
  const read = vi.spyOn(chatClient, 'readPrompt').mockImplementation((...given) => {
    turns.push(turn)
    return readPrompt(...given)
  })
  setImmediate(count)
  expect(await ask(messageCount)).toBe(200)
  isRunning = false
  read.mockRestore()
  await gateway.close()
  return turns
}

it('lets other requests run between the steps of a request with 9,999 messages, and of no small request', async () => {
  const long = await turnsOf(9999)
  const small = await turnsOf(5)

  expect(long).toHaveLength(3)
  expect(new Set(long).size).toBe(3)
  expect(small).toHaveLength(3)
  expect(new Set(small).size).toBe(1)
})

const translations = vi.hoisted(() => ({ report: (): void => {} }))
vi.mock('../../src/formats/portable.ts', async (load) => {
  const original = await load<typeof Portable>()
  const portableInSteps: typeof original.portableInSteps = function* (...given) {
    const portable = yield* original.portableInSteps(...given)
    translations.report()
    return portable
  }
  return { ...original, portableInSteps }
})

it('lets other requests run between the translation of 9,999 messages and the writing of the body, which takes many steps', async () => {
  let turn = 0
  let isRunning = true
  const count = (): void => {
    turn += 1
    if (isRunning) setImmediate(count)
  }
  const turns: number[] = []
  translations.report = () => void turns.push(turn)
  let steps = 0
  const { writeInSteps } = messagesUpstream
  if (writeInSteps === undefined) throw new Error('the format has no steps')
  const writing = vi.spyOn(messagesUpstream, 'writeInSteps').mockImplementation(function* (...given) {
    turns.push(turn)
    const writing = writeInSteps(...given)
    for (let step = writing.next(); ; step = writing.next()) {
      if (step.done === true) return step.value
      steps += 1
      yield
    }
  })
  const message = {
    id: 'm',
    type: 'message',
    role: 'assistant',
    content: [],
    usage: { input_tokens: 1, output_tokens: 1 },
  }
  const gateway = createGateway({
    providers: [
      anthropic({
        apiKey: 'none',
        models: [{ id: 'large', price, contextWindowTokens: 10_000_000, maxOutputTokens: 100 }],
      }),
    ],
    runtime: { fetch: () => Promise.resolve(Response.json(message)) },
  })
  const key = await gateway.keys.create({ name: 'test' })
  const ask = async (length: number): Promise<number> => {
    const messages = Array.from({ length }, (_, index) => ({ role: index % 2 ? 'assistant' : 'user', content: 'a' }))
    const response = await gateway.fetch('http://gateway/v1/chat/completions', {
      method: 'POST',
      headers: { authorization: `Bearer ${key.value}`, 'content-type': 'application/json' },
      body: JSON.stringify({ model: 'anthropic/large', max_tokens: 5, messages }),
    })
    return response.status
  }
  // The first request loads modules.
  expect(await ask(3)).toBe(200)
  turns.length = 0
  setImmediate(count)
  expect(await ask(9999)).toBe(200)
  isRunning = false
  writing.mockRestore()
  await gateway.close()

  expect(turns).toHaveLength(2)
  expect(new Set(turns).size).toBe(2)
  // At least three passes over slices of at most 300 messages: the checks, the blocks and the text.
  expect(steps).toBeGreaterThan((3 * 9999) / 300)
})
