import { createAnthropic } from '@ai-sdk/anthropic'
import { createOpenAI } from '@ai-sdk/openai'
import { createOpenAICompatible } from '@ai-sdk/openai-compatible'
import { APICallError, generateText, jsonSchema, stepCountIs, streamText, type LanguageModel, type ToolSet } from 'ai'
import { afterEach, describe, expect, it } from 'vitest'
import { CHAT_MODEL, MESSAGE_MODEL, startStage, type Stage, type StageOptions } from '../support/stage.ts'

const stages: Stage[] = []
afterEach(async () => {
  await Promise.all(stages.splice(0).map((openStage) => openStage.close()))
})

async function stage(options: StageOptions = {}): Promise<Stage> {
  const started = await startStage(options)
  stages.push(started)
  return started
}

type CreateModel = (stage: Stage, model: string) => LanguageModel

const providers: Record<string, CreateModel> = {
  'openai-compatible': ({ url, secret }, model) =>
    createOpenAICompatible({ name: 'sluice', baseURL: `${url}/v1`, apiKey: secret, includeUsage: true })(model),
  'default openai': ({ url, secret }, model) => createOpenAI({ baseURL: `${url}/v1`, apiKey: secret })(model),
  'openai chat': ({ url, secret }, model) => createOpenAI({ baseURL: `${url}/v1`, apiKey: secret }).chat(model),
  anthropic: ({ url, secret }, model) => createAnthropic({ baseURL: `${url}/v1`, apiKey: secret })(model),
}

const weatherIn = {
  description: 'The weather of a city',
  inputSchema: jsonSchema<{ city: string }>({
    type: 'object',
    properties: { city: { type: 'string' } },
    required: ['city'],
  }),
}
const tools: ToolSet = { weather: weatherIn }

describe.each(Object.entries(providers))('the AI SDK by its %s provider', (_, createModel) => {
  describe.each([
    ['a chat upstream', CHAT_MODEL],
    ['a message upstream', MESSAGE_MODEL],
  ])('with %s', (__, model) => {
    it('generates a text and counts its tokens', async () => {
      const started = await stage({ reply: () => 'Bonjour.' })

      const result = await generateText({
        model: createModel(started, model),
        prompt: 'Hello?',
        maxOutputTokens: 60,
        maxRetries: 0,
      })

      expect(result.text).toBe('Bonjour.')
      expect(result.finishReason).toBe('stop')
      expect(result.usage.outputTokens).toBeGreaterThan(0)
    })

    it('streams a text without unknown parts', async () => {
      const started = await stage({ reply: () => ({ text: ['Bon', 'jour', '.'] }) })

      const result = streamText({
        model: createModel(started, model),
        prompt: 'Hello?',
        maxOutputTokens: 60,
        maxRetries: 0,
      })
      const parts = []
      for await (const part of result.fullStream) parts.push(part)

      expect(parts.filter((part) => part.type === 'error')).toEqual([])
      expect(await result.text).toBe('Bonjour.')
      expect((await result.usage).outputTokens).toBeGreaterThan(0)
    })

    it('calls a tool, whole and streamed', async () => {
      const started = await stage({
        reply: () => ({ toolCalls: [{ id: 'call_1', name: 'weather', input: '{"city":"Paris"}' }] }),
      })
      const call = {
        model: createModel(started, model),
        prompt: 'Weather in Paris?',
        maxOutputTokens: 60,
        maxRetries: 0,
        tools,
      }

      const whole = await generateText(call)
      const streamed = streamText(call)

      for (const calls of [whole.toolCalls, await streamed.toolCalls]) {
        expect(calls).toMatchObject([{ toolCallId: 'call_1', toolName: 'weather', input: { city: 'Paris' } }])
      }
    })

    it('works through several steps, in which a tool runs', async () => {
      const started = await stage({
        reply: ({ index }) =>
          index % 2 === 0
            ? { text: 'I look.', toolCalls: [{ id: 'call_1', name: 'weather', input: '{"city":"Paris"}' }] }
            : 'Sunny.',
      })
      const run = { ...weatherIn, execute: async ({ city }: { city: string }) => `22 degrees in ${city}` }
      const call = {
        model: createModel(started, model),
        prompt: 'Weather in Paris?',
        maxOutputTokens: 60,
        maxRetries: 0,
        tools: { weather: run },
        stopWhen: stepCountIs(3),
      }

      const whole = await generateText(call)
      const streamed = streamText(call)

      expect(whole.text).toBe('Sunny.')
      expect(await streamed.text).toBe('Sunny.')
      for (const index of [1, 3]) {
        expect(started.upstream.requests[index]?.text).toContain('22 degrees in Paris')
        expect(started.upstream.requests[index]?.text).toContain('I look.')
      }
    })

    it('reads the gateway’s error', async () => {
      const started = await stage({ reply: () => ({ kind: 'failure', status: 400, failure: { message: 'Too hot.' } }) })

      const failed = await generateText({
        model: createModel(started, model),
        prompt: 'Hello?',
        maxOutputTokens: 60,
        maxRetries: 0,
      }).catch((error: unknown) => error)

      expect(APICallError.isInstance(failed)).toBe(true)
      expect(failed).toMatchObject({ statusCode: 400, message: 'Too hot.' })
    })
  })
})
