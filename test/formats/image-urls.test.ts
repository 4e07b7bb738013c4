import { afterEach, expect, it } from 'vitest'
import { post } from '../support/read-stream.ts'
import { startStage, type Stage } from '../support/stage.ts'

let stage: Stage | undefined
afterEach(async () => stage?.close())

const images = [{ type: 'image_url', index: 0, image_url: { url: 'https://example.com/a.png' } }]
const common = { id: 'c', created: 1, model: 'm' }
const usage = { prompt_tokens: 3, completion_tokens: 4, total_tokens: 7 }

it('names an image of a chat vendor that is only a URL, which a response cannot contain', async () => {
  const delta = { role: 'assistant', content: 'Here:', images }
  stage = await startStage({
    reply: ({ stream }) =>
      stream
        ? {
            kind: 'events',
            items: [
              { data: JSON.stringify({ ...common, choices: [{ index: 0, delta, finish_reason: 'stop' }], usage }) },
              { data: '[DONE]' },
            ],
          }
        : {
            kind: 'json',
            value: { ...common, choices: [{ index: 0, message: delta, finish_reason: 'stop' }], usage },
          },
  })
  const body = { model: 'chat/large', input: 'Draw.' }
  const whole = await post(stage, '/v1/responses', { body })
  expect(whole.headers.get('x-svc-ignored')).toBe('output (image)')
  const streamed = await (await post(stage, '/v1/responses', { body: { ...body, stream: true } })).text()
  expect(streamed).toContain('"ignored":["output (image)"]')
})

it('names audio of a chat vendor, which other formats cannot contain', async () => {
  const message = { role: 'assistant', content: null, audio: { id: 'a', data: 'c291bmQ=', transcript: 'Hi' } }
  const value = { ...common, choices: [{ index: 0, message, finish_reason: 'stop' }], usage }
  stage = await startStage({ reply: () => ({ kind: 'json', value }) })
  const response = await post(stage, '/v1/responses', { body: { model: 'chat/large', input: 'Speak.' } })
  const messages = [{ role: 'user', content: 'Speak.' }]
  const asked = await post(stage, '/v1/messages', { body: { model: 'chat/large', max_tokens: 9, messages } })

  expect(response.headers.get('x-svc-ignored')).toBe('output (audio)')
  expect(asked.headers.get('x-svc-ignored')).toBe('content (audio)')
})
