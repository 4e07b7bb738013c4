import type { JsonObject } from '../../src/core/json.ts'
import type { Message, Part, Prompt } from '../../src/core/prompt.ts'
import { chatClient } from '../../src/formats/chat/client.ts'
import { createGateway, openaiCompatible } from '../../src/index.ts'
import type { Method } from './recall.ts'
import { chatFormat, messagesFormat } from '../../test/support/two-way-formats.ts'

export type ClientFormat = 'chat' | 'messages'

const SIZE = { contextWindowTokens: 1_000_000, maxOutputTokens: 8192 }
const RESPONSE = {
  id: 'chatcmpl-bench',
  object: 'chat.completion',
  created: 0,
  model: 'large',
  choices: [{ index: 0, message: { role: 'assistant', content: 'ok' }, finish_reason: 'stop' }],
  usage: { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 },
}

/** Returns a method that sends the prompt through a gateway in a client format and returns the prompt that reaches the upstream. */
export async function throughGateway(clientFormat: ClientFormat, headers: Record<string, string>): Promise<Method> {
  let sent: JsonObject = {}
  const record: typeof fetch = async (_url, init) => {
    const body = JSON.parse(String(init?.body)) as JsonObject
    if (body['model'] === 'large') sent = body
    return Response.json({ ...RESPONSE, model: body['model'] })
  }
  const gateway = createGateway({
    providers: [
      openaiCompatible({
        name: 'mock',
        baseUrl: 'http://mock/v1',
        family: 'mock',
        fetch: record,
        models: [
          { id: 'large', price: { input: 3, output: 15 }, ...SIZE, small: 'small' },
          { id: 'small', price: { input: 0.1, output: 0.4 }, ...SIZE },
        ],
      }),
    ],
    cache: false,
  })
  const { value } = await gateway.keys.create({ name: 'bench' })
  return async (prompt) => {
    const response = await gateway.fetch(
      new Request(`http://gateway${clientFormat === 'chat' ? '/v1/chat/completions' : '/v1/messages'}`, {
        method: 'POST',
        headers: { 'content-type': 'application/json', 'x-api-key': value, ...headers },
        body: bodyOf(prompt, clientFormat) as BodyInit,
      }),
    )
    if (response.status !== 200)
      throw new Error(`Expected status 200 from the gateway, got ${response.status}: ${await response.text()}`)
    await response.text()
    return { ...prompt, messages: chatClient.readPrompt(sent).messages.map(withoutNative) }
  }
}

function bodyOf(prompt: Prompt, clientFormat: ClientFormat): string | Uint8Array {
  const format = clientFormat === 'chat' ? chatFormat : messagesFormat
  return format.writePrompt({ ...prompt, settings: { maxTokens: 256 } }, 'mock/large').body
}

/** Removes the native values, which the prompts of the data do not have. */
function withoutNative({ role, parts }: Message): Message {
  return { role, parts: parts.map(partWithoutNative) }
}

function partWithoutNative(part: Part): Part {
  if (part.type === 'opaque') return part
  const { native: _, ...others } = part
  return others.type === 'tool-result' ? { ...others, content: others.content.map(partWithoutNative) } : others
}
