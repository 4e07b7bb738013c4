import { GatewayError } from '../../core/errors.ts'
import type { Json, JsonObject } from '../../core/json.ts'
import type { AnswerShape, Prompt, Settings, ToolChoice } from '../../core/prompt.ts'
import type { WrittenPrompt } from '../format.ts'
import { leftOut } from '../origin.ts'
import { originOf } from '../origin-table.ts'
import { cannotCarry, writeContents } from './write-contents.ts'

/**
 * The body of `generateContent`; the model is part of the address. Throws `invalid-request` that names the field for
 * what this format cannot say and would change the answer.
 */
export function writePrompt(prompt: Prompt, model: string): WrittenPrompt {
  const origin = originOf(prompt)
  const hints = leftOut(prompt, origin.beyond(prompt), ({ param, what, details }) => cannotCarry(param, what, details))
  prompt.tools.forEach((tool, index) => {
    if (tool.parameters === undefined) throw cannotCarry(`tools[${index}]`, `the tool ${tool.name}`)
  })
  // The gateway reads one candidate, and the vendor bills all of them.
  if ((prompt.settings.choices ?? 1) > 1) throw cannotCarry('n', 'more than one choice')
  const pathOf = (index: number): string => origin.pathOf(prompt, index)
  const { settings, tools } = prompt
  const body: JsonObject = {
    ...writeSystem(prompt),
    contents: writeContents(prompt.messages, { pathOf, needsSignature: needsSignature(model) }),
    ...(tools.length > 0 && {
      tools: [{ functionDeclarations: tools.map(writeFunction) }],
      ...(settings.toolChoice !== undefined && {
        toolConfig: { functionCallingConfig: writeChoice(settings.toolChoice) },
      }),
    }),
    ...nonEmpty('generationConfig', writeSettings(settings, model)),
  }
  if (body['contents'] instanceof Array && body['contents'].length > 0) {
    return { body: JSON.stringify(body), ignored: [...hints, ...ignoredOf(settings)] }
  }
  throw new GatewayError('invalid-request', 'messages hold nothing to answer. Send at least one user message.', {
    param: 'messages',
  })
}

/** From version 3 on, a tool call of the present turn without the signature of its thoughts is refused. */
function needsSignature(model: string): boolean {
  return /gemini-(?:[3-9]|\d\d)/.test(model)
}

function ignoredOf({ parallelToolCalls, user }: Settings): readonly string[] {
  return [...(parallelToolCalls === undefined ? [] : ['parallel_tool_calls']), ...(user === undefined ? [] : ['user'])]
}

function writeSystem({ messages }: Prompt): JsonObject {
  const parts = messages
    .filter(({ role }) => role === 'system')
    .flatMap((message) => message.parts.flatMap((part) => (part.type === 'text' ? [{ text: part.text }] : [])))
  return parts.length === 0 ? {} : { systemInstruction: { parts } }
}

function writeFunction({ name, description, parameters }: Prompt['tools'][number]): JsonObject {
  return {
    name,
    ...(description !== undefined && { description }),
    // A function without arguments has no schema in this format.
    ...(parameters?.['properties'] !== undefined && { parametersJsonSchema: parameters }),
  }
}

const MODES = { auto: 'AUTO', none: 'NONE', required: 'ANY' } as const

function writeChoice(choice: ToolChoice): JsonObject {
  return choice.type === 'tool' ? { mode: 'ANY', allowedFunctionNames: [choice.name] } : { mode: MODES[choice.type] }
}

function writeSettings(settings: Settings, model: string): JsonObject {
  const { maxTokens, temperature, topP, topK, stop, shape, effort } = settings
  return {
    ...(maxTokens !== undefined && { maxOutputTokens: maxTokens }),
    ...(temperature !== undefined && { temperature }),
    ...(topP !== undefined && { topP }),
    ...(topK !== undefined && { topK }),
    ...(stop !== undefined && stop.length > 0 && { stopSequences: [...stop] }),
    ...(shape !== undefined && writeShape(shape)),
    ...(effort !== undefined && { thinkingConfig: writeEffort(effort, model) }),
  }
}

function writeShape(shape: AnswerShape): JsonObject {
  const schema: { readonly responseJsonSchema?: Json } =
    shape.type === 'schema' ? { responseJsonSchema: shape.schema } : {}
  return { responseMimeType: 'application/json', ...schema }
}

/** The budgets that Google's own chat-completions endpoint gives to these words. */
const BUDGETS: Readonly<Record<string, number>> = { none: 0, minimal: 1024, low: 1024, medium: 8192, high: 24_576 }

function writeEffort(effort: string, model: string): JsonObject {
  if (needsSignature(model)) return { thinkingLevel: effort === 'none' ? 'minimal' : effort }
  return { thinkingBudget: BUDGETS[effort] ?? 24_576 }
}

function nonEmpty(field: string, value: JsonObject): JsonObject {
  return Object.keys(value).length === 0 ? {} : { [field]: value }
}
