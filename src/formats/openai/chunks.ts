import type { AnswerEvent, Finish, Frame, Usage } from '../../core/answer.ts'
import { NO_USAGE } from '../../core/answer.ts'
import type { JsonObject } from '../../core/json.ts'
import { writeFinish, writeUsage } from './usage.ts'

/** Makes the chunks of one answer from canonical events. */
export interface ChunkMaker {
  /** The frames of an event that can leave now. */
  frames(event: AnswerEvent): readonly Frame[]
  /** The chunk that tells why the answer ended, once it is known. */
  finish(): Frame | undefined
  /** The chunk with the usage, once it is known. */
  usage(): Frame | undefined
}

/** One id, one time and one model on every chunk; the role comes first. */
export function chunkMaker(created: number): ChunkMaker {
  let head: JsonObject | undefined
  let finish: Finish | undefined
  let usage: Partial<Usage> | undefined
  const silentCalls = new Set<number>()

  const frame = (fields: JsonObject): Frame => ({ data: JSON.stringify({ ...head, ...fields }) })
  const delta = (fields: JsonObject, reason: string | null = null): Frame =>
    frame({ choices: [{ index: 0, delta: fields, logprobs: null, finish_reason: reason }] })

  /** The role, in front of whatever comes first. */
  const begin = (id: string, model: string): readonly Frame[] => {
    if (head !== undefined) return []
    head = { id, object: 'chat.completion.chunk', created, model }
    return [delta({ role: 'assistant', content: '' })]
  }

  const callFrames = (
    event: Extract<AnswerEvent, { type: 'tool-call-start' | 'tool-call-delta' }>,
  ): readonly Frame[] => {
    const { index } = event
    if (event.type === 'tool-call-start') {
      silentCalls.add(index)
      const { id, name } = event
      return [delta({ tool_calls: [{ index, id, type: 'function', function: { name, arguments: '' } }] })]
    }
    if (event.input === '') return []
    silentCalls.delete(index)
    return [argumentsOf(index, event.input)]
  }
  const argumentsOf = (index: number, text: string): Frame =>
    delta({ tool_calls: [{ index, function: { arguments: text } }] })

  const contentFrames = (event: AnswerEvent): readonly Frame[] => {
    switch (event.type) {
      case 'text-delta':
        return [delta({ content: event.text })]
      case 'thinking-delta':
        return event.text === undefined || event.text === '' ? [] : [delta({ reasoning_content: event.text })]
      case 'tool-call-start':
      case 'tool-call-delta':
        return callFrames(event)
      case 'answer-end':
        finish = event.finish
        // A call without arguments is still called with JSON.
        return [...silentCalls].map((index) => argumentsOf(index, '{}'))
      default:
        return []
    }
  }

  return {
    frames: (event) => {
      if (event.type === 'answer-start') return begin(event.id, event.model)
      if (event.type === 'usage') usage = { ...usage, ...event.usage }
      const content = contentFrames(event)
      return content.length === 0 ? [] : [...begin('', ''), ...content]
    },
    finish: () => (finish === undefined ? undefined : delta({}, writeFinish(finish))),
    usage: () =>
      usage === undefined ? undefined : frame({ choices: [], usage: writeUsage({ ...NO_USAGE, ...usage }) }),
  }
}
