import { NO_USAGE, type AnswerEvent, type Finish, type Frame, type Usage } from '../../core/answer.ts'
import type { JsonObject } from '../../core/json.ts'
import { writeFinish, writeUsage } from './usage.ts'

/** Makes the chunks of one answer from canonical events. */
export interface ChunkMaker {
  /** The frames of an event that can leave now. */
  frames(event: AnswerEvent): readonly Frame[]
  /** The chunk with the finish reason, once it is known. */
  finish(): Frame | undefined
  /** The chunk with the usage, once it is known. */
  usage(): Frame | undefined
}

/** One id, one time and one model on every chunk; the role comes first. */
export function chunkMaker(created: number): ChunkMaker {
  let head: JsonObject | undefined
  let finish: Finish | undefined
  let usage: Partial<Usage> | undefined
  const deltas = deltaMaker()

  const frame = (fields: JsonObject): Frame => ({ data: JSON.stringify({ ...head, ...fields }) })
  const chunk = (delta: JsonObject, reason: string | null = null): Frame =>
    frame({ choices: [{ index: 0, delta, logprobs: null, finish_reason: reason }] })
  const begin = (id: string, model: string): readonly Frame[] => {
    if (head !== undefined) return []
    head = { id, object: 'chat.completion.chunk', created, model }
    return [chunk({ role: 'assistant', content: '' })]
  }

  return {
    frames: (event) => {
      if (event.type === 'answer-start') return begin(event.id, event.model)
      if (event.type === 'usage') usage = { ...usage, ...event.usage }
      if (event.type === 'answer-end') finish = event.finish
      const said = deltas(event)
      return said.length === 0 ? [] : [...begin('', ''), ...said.map((delta) => chunk(delta))]
    },
    finish: () => (finish === undefined ? undefined : chunk({}, writeFinish(finish))),
    usage: () =>
      usage === undefined ? undefined : frame({ choices: [], usage: writeUsage({ ...NO_USAGE, ...usage }) }),
  }
}

/** What an event adds to the message. A call without arguments is still called with JSON: it gets `{}` at the end. */
function deltaMaker(): (event: AnswerEvent) => readonly JsonObject[] {
  const silentCalls = new Set<number>()
  const argumentsOf = (index: number, text: string): JsonObject => ({
    tool_calls: [{ index, function: { arguments: text } }],
  })
  return (event) => {
    switch (event.type) {
      case 'text-delta':
        return [{ content: event.text }]
      case 'thinking-delta':
        return event.text === undefined || event.text === '' ? [] : [{ reasoning_content: event.text }]
      case 'tool-call-start': {
        const { index, id, name } = event
        silentCalls.add(index)
        return [{ tool_calls: [{ index, id, type: 'function', function: { name, arguments: '' } }] }]
      }
      case 'tool-call-delta':
        if (event.input === '') return []
        silentCalls.delete(event.index)
        return [argumentsOf(event.index, event.input)]
      case 'answer-end': {
        const closing = [...silentCalls].map((index) => argumentsOf(index, '{}'))
        silentCalls.clear()
        return closing
      }
      default:
        return []
    }
  }
}
