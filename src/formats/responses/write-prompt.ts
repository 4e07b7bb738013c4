import { asArray, type JsonObject } from '../../core/json.ts'
import type { Message, Prompt, Tool } from '../../core/prompt.ts'
import type { WrittenPrompt } from '../format.ts'
import { leftOut } from '../origin.ts'
import { originOf } from '../origin-table.ts'
import { replaceModel } from '../parse-body.ts'
import { itemsOf } from './items.ts'
import { isSealed } from './seal.ts'
import { changedSettings, type Changes } from './settings.ts'
import { writeTool } from './tools.ts'
import { cannotCarry, writeItems } from './write-items.ts'

/** The body for an upstream of this format. Unchanged parts leave as they came. */
export function writePrompt(prompt: Prompt, model: string): WrittenPrompt {
  return prompt.native.dialect === 'responses' ? writeOwn(prompt, model) : writeForeign(prompt, model)
}

function writeOwn(prompt: Prompt, model: string): WrittenPrompt {
  const { value, received } = prompt.native
  const changes: Changes = {
    ...changedSettings(value, prompt.settings),
    ...((value['stream'] === true) === prompt.stream ? {} : { stream: prompt.stream }),
    ...changedTools(value, prompt.tools),
    ...changedInput(prompt),
  }
  const isUntouched = Object.keys(changes).length === 0
  if (isUntouched && received !== undefined) {
    return { body: replaceModel(received, model), ignored: [] }
  }
  return { body: JSON.stringify({ ...value, ...changes, model }), ignored: [] }
}

function changedTools(value: JsonObject, tools: readonly Tool[]): Changes {
  const before = asArray(value['tools'])
  const isSame = before.length === tools.length && tools.every((tool, index) => tool.native.value === before[index])
  return isSame ? {} : { tools: tools.length === 0 ? undefined : tools.map(writeTool) }
}

function changedInput(prompt: Prompt): Changes {
  const { value } = prompt.native
  const [first, ...others] = prompt.messages
  const isInstructed = typeof value['instructions'] === 'string' && first?.role === 'system'
  const messages = isInstructed ? others : prompt.messages
  if (isAsItCame(value, messages)) return {}
  const { pathOf } = originOf(prompt)
  const items = writeItems(messages, (index) => pathOf(prompt, index + (isInstructed ? 1 : 0)))
  return { input: items.filter((item) => !isSealed(item)) }
}

function isAsItCame({ input }: JsonObject, messages: readonly Message[]): boolean {
  const items = messages.flatMap(itemsOf)
  if (typeof input === 'string') return items.length === 1 && items[0]?.['content'] === input
  const before = asArray(input)
  return (
    messages.every((message) => message.native !== undefined) &&
    before.length === items.length &&
    items.every((item, index) => item === before[index] && !isSealed(item))
  )
}

/** A prompt of another format, written from the canonical prompt. The upstream keeps nothing. */
function writeForeign(prompt: Prompt, model: string): WrittenPrompt {
  const { beyond, pathOf, names } = originOf(prompt)
  const hints = leftOut(prompt, beyond(prompt), ({ param, what, details }) => cannotCarry(param, what, details))
  prompt.tools.forEach((tool, index) => {
    if (tool.parameters === undefined) throw cannotCarry(`tools[${index}]`, `the tool ${tool.name}`)
  })
  const { stop, topK } = prompt.settings
  if (stop !== undefined && stop.length > 0) throw cannotCarry(names.stop, 'a stop sequence')
  const hasTools = prompt.tools.length > 0
  const { toolChoice: _choice, parallelToolCalls: _parallel, ...withoutTools } = prompt.settings
  const body = {
    model,
    input: writeItems(prompt.messages, (index) => pathOf(prompt, index)),
    store: false,
    ...(hasTools ? { tools: prompt.tools.map(writeTool) } : {}),
    ...changedSettings({}, hasTools ? prompt.settings : withoutTools),
    ...(prompt.stream ? { stream: true } : {}),
  }
  return { body: JSON.stringify(body), ignored: topK === undefined ? hints : [...hints, 'top_k'] }
}
