import { ChatAnthropic } from '@langchain/anthropic'
import type { BaseChatModel } from '@langchain/core/language_models/chat_models'
import { HumanMessage, ToolMessage, type AIMessageChunk } from '@langchain/core/messages'
import { ChatOpenAI, OpenAIEmbeddings } from '@langchain/openai'
import { afterEach, describe, expect, it } from 'vitest'
import { respondedRecords, startAgentEnvironment, type AgentEnvironment } from '../support/agent-environment.ts'
import { WEATHER, weatherVendor } from '../support/weather-vendor.ts'

let agent: AgentEnvironment | undefined
afterEach(() => agent?.close())

type CreateModel = (agent: AgentEnvironment) => BaseChatModel

const models: Record<string, CreateModel> = {
  ChatOpenAI: ({ url, secret }) =>
    new ChatOpenAI({ model: 'gpt-5-mini', apiKey: secret, configuration: { baseURL: `${url}/v1` }, maxRetries: 0 }),
  'ChatOpenAI by the responses format': ({ url, secret }) =>
    new ChatOpenAI({
      model: 'gpt-5-mini',
      apiKey: secret,
      configuration: { baseURL: `${url}/v1` },
      maxRetries: 0,
      useResponsesApi: true,
    }),
  ChatAnthropic: ({ url, secret }) =>
    new ChatAnthropic({ model: 'claude-sonnet-4-5', apiKey: secret, anthropicApiUrl: url, maxRetries: 0 }),
}

const weather = {
  type: 'function',
  function: {
    name: 'weather',
    description: 'The weather of a city',
    parameters: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] },
  },
}

describe.each(Object.entries(models))('LangChain by its %s', (_, createModel) => {
  it('calls a tool and answers with a bare model name', async () => {
    agent = await startAgentEnvironment(weatherVendor())
    const model = createModel(agent).bindTools?.([weather])
    const question = new HumanMessage('What is the weather in Paris?')

    const called = await model?.invoke([question])
    const [call] = called?.tool_calls ?? []
    expect(call).toMatchObject({ name: 'weather', args: { city: 'Paris' } })
    const result = new ToolMessage({ content: '21 degrees', tool_call_id: call?.id ?? '' })
    const response = await model?.invoke([question, ...(called === undefined ? [] : [called]), result])

    expect(response?.text).toBe(WEATHER)
    expect(response).toMatchObject({ usage_metadata: { output_tokens: expect.any(Number) as number } })
    expect(respondedRecords(agent.log)).toHaveLength(2)
  })

  it('streams an answer', async () => {
    agent = await startAgentEnvironment(weatherVendor())
    let whole: AIMessageChunk | undefined
    for await (const chunk of await createModel(agent).stream('What is the weather in Paris?')) {
      whole = whole === undefined ? chunk : whole.concat(chunk)
    }

    expect(whole?.text).toContain(WEATHER)
  })
})

describe('LangChain by its OpenAIEmbeddings', () => {
  it('embeds texts', async () => {
    agent = await startAgentEnvironment(({ body }) => ({
      kind: 'json',
      value: {
        object: 'list',
        model: body['model'] ?? '',
        data: [{ object: 'embedding', index: 0, embedding: [1, 0] }],
        usage: { prompt_tokens: 2, total_tokens: 2 },
      },
    }))
    const embeddings = new OpenAIEmbeddings({
      model: 'text-embedding-3-small',
      apiKey: agent.secret,
      configuration: { baseURL: `${agent.url}/v1` },
      encodingFormat: 'float',
      maxRetries: 0,
    })

    expect(await embeddings.embedQuery('Hello')).toEqual([1, 0])
  })
})
