import type { Json, JsonObject } from '../../../src/core/json.ts'
import type { Dialect } from '../../../src/core/prompt.ts'
import { prose } from './conversation.ts'

/** A session in the shape of the requests that an agent sends. `bodyAt` returns the body of one turn. */
export interface AgentSession {
  readonly name: string
  readonly dialect: Dialect
  bodyAt(steps: number): JsonObject
}

/** Words of a tool result. */
const RESULT_WORDS = 420
const ASKS_EVERY = 6

const result = (step: number): string => prose(step, RESULT_WORDS)
const steps = (count: number): readonly number[] => Array.from({ length: count }, (_, step) => step)
const asks = (step: number): boolean => step > 0 && step % ASKS_EVERY === 0
const question = (step: number): string => `Now look at ${prose(step + 77, 12)}.`
const parameters = { type: 'object', properties: { path: { type: 'string' } }, required: ['path'] }
const functionTool = { type: 'function', function: { name: 'read_file', description: 'Reads.', parameters } }

/** Marks the system prompt and the last two user messages, adds reminders beside results, and system messages after questions. */
const claudeCode: AgentSession = {
  name: 'Claude Code',
  dialect: 'messages',
  bodyAt(count) {
    const marker = { cache_control: { type: 'ephemeral' } }
    const instructions = { role: 'system', content: 'Skills and agents are listed here.' }
    const messages: JsonObject[] = [{ role: 'user', content: [{ type: 'text', text: 'Fix the tests.' }] }, instructions]
    for (const step of steps(count)) {
      const id = `toolu_${step}`
      const isLast = step >= count - 2
      messages.push(
        {
          role: 'assistant',
          content: [
            { type: 'thinking', thinking: prose(step + 3, 30), signature: `sig${step}` },
            { type: 'text', text: prose(step + 5, 12) },
            { type: 'tool_use', id, name: 'Read', input: { file_path: `/src/${step}.ts` } },
          ],
        },
        {
          role: 'user',
          content: [
            { type: 'tool_result', tool_use_id: id, content: result(step), ...(isLast && marker) },
            { type: 'text', text: '<system-reminder>The todo list is empty.</system-reminder>' },
          ],
        },
      )
      if (!asks(step)) continue
      messages.push(
        { role: 'assistant', content: [{ type: 'text', text: 'Done.' }] },
        { role: 'user', content: [{ type: 'text', text: question(step) }] },
        instructions,
      )
    }
    return {
      model: 'mock/large',
      max_tokens: 32_000,
      system: [
        { type: 'text', text: 'You are an agent.' },
        { type: 'text', text: prose(1, 200), ...marker },
      ],
      messages,
      tools: [{ name: 'Read', description: 'Reads.', input_schema: parameters }],
      thinking: { type: 'enabled', budget_tokens: 10_000 },
      metadata: { user_id: 'user_1' },
    }
  },
}

/** Declares tools in an item, sends encrypted reasoning without ids, and calls custom tools in a namespace. */
const codex: AgentSession = {
  name: 'Codex',
  dialect: 'responses',
  bodyAt(count) {
    const input: JsonObject[] = [
      { type: 'additional_tools', role: 'developer', tools: [{ type: 'custom', name: 'exec' }] },
      { type: 'message', role: 'developer', content: [{ type: 'input_text', text: '<permissions>all</permissions>' }] },
      { type: 'message', role: 'user', content: [{ type: 'input_text', text: 'Fix the tests.' }] },
    ]
    for (const step of steps(count)) {
      const call_id = `call_${step}`
      const isFunction = step % 4 === 3
      input.push({ type: 'reasoning', summary: [], encrypted_content: `gAAAA${step}${prose(step, 10)}` })
      if (step % 3 === 0) {
        const content = [{ type: 'output_text', text: prose(step + 2, 20) }]
        input.push({ type: 'message', role: 'assistant', content, phase: 'commentary' })
        input.push({ type: 'reasoning', summary: [], encrypted_content: `gBBBB${step}` })
      }
      input.push(
        isFunction
          ? { type: 'function_call', call_id, namespace: 'clock', name: 'sleep', arguments: `{"ms":${step}}` }
          : { type: 'custom_tool_call', call_id, namespace: 'functions', name: 'exec', input: `cat ${step}.ts` },
        isFunction
          ? { type: 'function_call_output', call_id, output: result(step) }
          : { type: 'custom_tool_call_output', call_id, output: [{ type: 'input_text', text: result(step) }] },
      )
      if (!asks(step)) continue
      const content = [{ type: 'output_text', text: 'Done.' }]
      input.push({ type: 'message', role: 'assistant', content, phase: 'final_answer' })
      input.push({ type: 'message', role: 'user', content: [{ type: 'input_text', text: question(step) }] })
    }
    return {
      model: 'mock/large',
      instructions: prose(1, 200),
      input,
      tools: [{ type: 'web_search', external_web_access: false }],
      store: false,
      include: ['reasoning.encrypted_content'],
      prompt_cache_key: 'session-1',
      parallel_tool_calls: true,
    }
  },
}

interface ChatShape {
  readonly content: Json
  readonly fields?: JsonObject
  readonly parallel?: number
  readonly resultFields?: JsonObject
}

/** Agents of the chat format differ in the content beside a call, in further fields, and in the number of calls. */
function chatAgent(name: string, shape: ChatShape): AgentSession {
  return {
    name,
    dialect: 'chat',
    bodyAt(count) {
      const messages: JsonObject[] = [
        { role: 'system', content: prose(1, 200) },
        { role: 'user', content: [{ type: 'text', text: 'Fix the tests.' }] },
      ]
      for (const step of steps(count)) {
        const ids = Array.from({ length: shape.parallel ?? 1 }, (_, at) => `call_${step}_${at}`)
        messages.push({
          role: 'assistant',
          content: shape.content,
          ...shape.fields,
          tool_calls: ids.map((id) => ({
            id,
            type: 'function',
            function: { name: 'read_file', arguments: '{"path":"a"}' },
          })),
        })
        for (const id of ids)
          messages.push({ role: 'tool', tool_call_id: id, content: result(step), ...shape.resultFields })
        if (asks(step))
          messages.push({ role: 'assistant', content: 'Done.' }, { role: 'user', content: question(step) })
      }
      return { model: 'mock/large', messages, tools: [functionTool], tool_choice: 'auto', temperature: 0 }
    },
  }
}

/** Agents without native tools write calls and edits as text. */
function textAgent(name: string, call: (step: number) => string): AgentSession {
  return {
    name,
    dialect: 'chat',
    bodyAt(count) {
      const messages: JsonObject[] = [{ role: 'system', content: prose(1, 200) }]
      for (const step of steps(count))
        messages.push({ role: 'user', content: `Result:\n${result(step)}` }, { role: 'assistant', content: call(step) })
      return { model: 'mock/large', messages: [...messages, { role: 'user', content: question(count) }] }
    },
  }
}

/** The items of a response keep their ids, and the vendor stores nothing. */
function responsesAgent(name: string, parallel: number): AgentSession {
  return {
    name,
    dialect: 'responses',
    bodyAt(count) {
      const input: JsonObject[] = [{ role: 'user', content: 'Fix the tests.' }]
      for (const step of steps(count)) {
        const ids = Array.from({ length: parallel }, (_, at) => `call_${step}_${at}`)
        input.push({ type: 'reasoning', id: `rs_${step}`, summary: [], encrypted_content: `gAAAA${step}` })
        for (const call_id of ids)
          input.push({
            type: 'function_call',
            id: `fc_${call_id}`,
            call_id,
            name: 'read_file',
            arguments: '{"path":"a"}',
          })
        for (const call_id of ids) input.push({ type: 'function_call_output', call_id, output: result(step) })
        if (!asks(step)) continue
        const content = [{ type: 'output_text', text: 'Done.', annotations: [] }]
        input.push({ type: 'message', id: `msg_${step}`, role: 'assistant', status: 'completed', content })
        input.push({ role: 'user', content: question(step) })
      }
      return {
        model: 'mock/large',
        instructions: prose(1, 200),
        input,
        tools: [{ type: 'function', name: 'read_file', parameters }],
      }
    },
  }
}

/** All results of a step are in one user message, and calls have no reasoning. */
function messagesAgent(name: string, parallel: number): AgentSession {
  return {
    name,
    dialect: 'messages',
    bodyAt(count) {
      const messages: JsonObject[] = [{ role: 'user', content: 'Fix the tests.' }]
      for (const step of steps(count)) {
        const ids = Array.from({ length: parallel }, (_, at) => `toolu_${step}_${at}`)
        const calls = ids.map((id) => ({ type: 'tool_use', id, name: 'read_file', input: { path: 'a' } }))
        const results = ids.map((id) => ({
          type: 'tool_result',
          tool_use_id: id,
          is_error: false,
          content: [{ type: 'text', text: result(step) }],
        }))
        messages.push({ role: 'assistant', content: calls }, { role: 'user', content: results })
        if (asks(step))
          messages.push({ role: 'assistant', content: 'Done.' }, { role: 'user', content: question(step) })
      }
      const tools = [{ name: 'read_file', description: 'Reads.', input_schema: parameters }]
      return { model: 'mock/large', max_tokens: 4096, system: prose(1, 200), messages, tools }
    },
  }
}

export const AGENT_SESSIONS: readonly AgentSession[] = [
  claudeCode,
  codex,
  responsesAgent('OpenAI Agents SDK', 1),
  responsesAgent('Mastra and AI SDK (OpenAI)', 2),
  messagesAgent('AI SDK and LangChain (Anthropic)', 2),
  messagesAgent('opencode and pydantic-ai (Anthropic)', 1),
  chatAgent('LangChain (OpenAI)', { content: '', resultFields: { name: 'read_file' } }),
  chatAgent('pydantic-ai (OpenAI)', { content: null }),
  chatAgent('Qwen Code', { content: 'I read it.', fields: { reasoning_content: 'Which file?' }, parallel: 2 }),
  textAgent('aider', (step) => `a.ts\n<<<<<<< SEARCH\n${prose(step, 9)}\n=======\nnew\n>>>>>>> REPLACE`),
  textAgent('Cline', (step) => `I look.\n<read_file>\n<path>${step}.ts</path>\n</read_file>`),
]
