import Anthropic from '@anthropic-ai/sdk'
import { createAnthropic } from '@ai-sdk/anthropic'
import { createOpenAI } from '@ai-sdk/openai'
import { ChatAnthropic } from '@langchain/anthropic'
import type { BaseChatModel } from '@langchain/core/language_models/chat_models'
import { HumanMessage, ToolMessage, type BaseMessage } from '@langchain/core/messages'
import { ChatOpenAI } from '@langchain/openai'
import { generateText, jsonSchema, stepCountIs, type LanguageModel, type ModelMessage } from 'ai'
import OpenAI from 'openai'
import { OUTPUT } from './vendor.ts'

interface Target {
  /** Without `/v1`. */
  readonly url: string
  readonly secret: string
}

const SYSTEM = 'You read the files of a harbour.'
const ASKS = ['Read the logs.', 'Read them again.'] as const
const GPT = 'gpt-5-mini'
const CLAUDE = 'claude-sonnet-4-5'
const description = 'Reads a file, such as “été.ts”'
const parameters = {
  type: 'object' as const,
  properties: { path: { type: 'string' }, share: { type: 'number', minimum: 0.5, maximum: 1 } },
  required: ['path'],
}
const read = (path: string): string => `${path}: ${OUTPUT}`

interface ToolInput {
  readonly path: string
}

async function openaiChat({ url, secret }: Target): Promise<void> {
  const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: secret, maxRetries: 0 })
  let messages: OpenAI.ChatCompletionMessageParam[] = [{ role: 'system', content: SYSTEM }]
  for (const content of ASKS) {
    const runner = client.chat.completions.runTools({
      model: GPT,
      messages: [...messages, { role: 'user', content }],
      tools: [
        {
          type: 'function',
          function: {
            name: 'read_file',
            description,
            parameters,
            parse: (text: string) => JSON.parse(text) as ToolInput,
            function: ({ path }: ToolInput) => read(path),
          },
        },
      ],
    })
    await runner.finalContent()
    messages = runner.messages
  }
}

async function openaiResponses({ url, secret }: Target): Promise<void> {
  const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: secret, maxRetries: 0 })
  const input: OpenAI.Responses.ResponseInputItem[] = []
  for (const content of ASKS) {
    input.push({ role: 'user', content })
    for (let calls = 1; calls > 0;) {
      const response = await client.responses.create({
        model: GPT,
        instructions: SYSTEM,
        input,
        store: false,
        include: ['reasoning.encrypted_content'],
        tools: [{ type: 'function', name: 'read_file', description, parameters, strict: false }],
      })
      calls = 0
      for (const item of response.output) {
        if (item.type === 'reasoning' || item.type === 'message' || item.type === 'function_call') input.push(item)
        if (item.type !== 'function_call') continue
        calls += 1
        input.push({ type: 'function_call_output', call_id: item.call_id, output: read(item.arguments) })
      }
    }
  }
}

async function anthropicMessages({ url, secret }: Target): Promise<void> {
  const client = new Anthropic({ baseURL: url, apiKey: secret, maxRetries: 0 })
  const messages: Anthropic.MessageParam[] = []
  for (const content of ASKS) {
    messages.push({ role: 'user', content })
    for (let calls = 1; calls > 0;) {
      const { content: blocks } = await client.messages.create({
        model: CLAUDE,
        max_tokens: 4096,
        system: SYSTEM,
        thinking: { type: 'enabled', budget_tokens: 2048 },
        messages,
        tools: [{ name: 'read_file', description, input_schema: parameters }],
      })
      messages.push({ role: 'assistant', content: blocks })
      const uses = blocks.filter((block) => block.type === 'tool_use')
      calls = uses.length
      const results = uses.map(({ id, input }) => ({
        type: 'tool_result' as const,
        tool_use_id: id,
        content: read(JSON.stringify(input)),
      }))
      if (calls > 0) messages.push({ role: 'user', content: results })
    }
  }
}

async function aiSdk(model: LanguageModel, providerOptions: NonNullable<unknown> = {}): Promise<void> {
  const messages: ModelMessage[] = []
  const schema = jsonSchema<ToolInput>({ ...parameters, properties: { path: { type: 'string' } } })
  for (const content of ASKS) {
    messages.push({ role: 'user', content })
    const { response } = await generateText({
      model,
      instructions: SYSTEM,
      messages,
      maxRetries: 0,
      tools: {
        read_file: { description, inputSchema: schema, execute: async ({ path }: ToolInput) => read(path) },
      },
      stopWhen: stepCountIs(5),
      ...providerOptions,
    })
    messages.push(...response.messages)
  }
}

async function langchain(model: BaseChatModel): Promise<void> {
  const tool = { type: 'function', function: { name: 'read_file', description, parameters } }
  const bound = model.bindTools?.([tool])
  const messages: BaseMessage[] = []
  for (const content of ASKS) {
    messages.push(new HumanMessage(content))
    for (let calls = 1; calls > 0;) {
      const response = await bound?.invoke(messages)
      if (response === undefined) return
      messages.push(response)
      const asked = response.tool_calls ?? []
      calls = asked.length
      for (const { id, args } of asked)
        messages.push(new ToolMessage({ content: read(JSON.stringify(args)), tool_call_id: id ?? '' }))
    }
  }
}

/** Clients that are packages of this repository. */
export const NODE_CLIENTS: Readonly<Record<string, (target: Target) => Promise<void>>> = {
  'openai-js-chat': openaiChat,
  'openai-js-responses': openaiResponses,
  'anthropic-js': anthropicMessages,
  'ai-sdk-chat': ({ url, secret }) => aiSdk(createOpenAI({ baseURL: `${url}/v1`, apiKey: secret }).chat(GPT)),
  'ai-sdk-responses': ({ url, secret }) =>
    aiSdk(createOpenAI({ baseURL: `${url}/v1`, apiKey: secret })(GPT), {
      providerOptions: { openai: { store: false, include: ['reasoning.encrypted_content'] } },
    }),
  'ai-sdk-messages': ({ url, secret }) =>
    aiSdk(createAnthropic({ baseURL: `${url}/v1`, apiKey: secret })(CLAUDE), {
      providerOptions: { anthropic: { thinking: { type: 'enabled', budgetTokens: 2048 } } },
    }),
  'langchain-chat': ({ url, secret }) =>
    langchain(new ChatOpenAI({ model: GPT, apiKey: secret, configuration: { baseURL: `${url}/v1` }, maxRetries: 0 })),
  'langchain-responses': ({ url, secret }) =>
    langchain(
      new ChatOpenAI({
        model: GPT,
        apiKey: secret,
        configuration: { baseURL: `${url}/v1` },
        maxRetries: 0,
        useResponsesApi: true,
        zdrEnabled: true,
      }),
    ),
  'langchain-messages': ({ url, secret }) =>
    langchain(
      new ChatAnthropic({
        model: CLAUDE,
        apiKey: secret,
        anthropicApiUrl: url,
        maxRetries: 0,
        maxTokens: 4096,
        thinking: { type: 'enabled', budget_tokens: 2048 },
      }),
    ),
}
