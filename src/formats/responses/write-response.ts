import { NO_USAGE, type AnswerEvent, type Finish, type Usage } from '../../core/answer.ts'
import type { JsonObject } from '../../core/json.ts'
import type { Metrics, WriteContext } from '../format.ts'
import { writeMetrics } from '../openai/stream-writer.ts'
import { declaredTools, type CalledTool } from './called-tools.ts'
import { outputWriter, type OutputWriter, type ResponseEvent } from './output.ts'
import { responseFrame, responseId, stemOf } from './response.ts'
import { writeFinish, writeUsage } from './usage.ts'

/** Writes one answer as the events of its stream, of which the last one holds the whole response. */
export interface ResponseWriter {
  take(event: AnswerEvent): readonly ResponseEvent[]
  end(metrics: Metrics): readonly [...ResponseEvent[], LastEvent]
}

export type LastEvent = ResponseEvent & { readonly response: JsonObject }

interface Writing {
  head: { readonly frame: JsonObject; readonly output: OutputWriter } | undefined
  usage: Partial<Usage> | undefined
  finish: Finish
}

export function responseWriter(context: WriteContext): ResponseWriter {
  const writing: Writing = { head: undefined, usage: undefined, finish: 'stop' }

  const start = (id: string, model: string): NonNullable<Writing['head']> => {
    const stem = stemOf(context.requestId ?? id)
    return { frame: responseFrame(context, responseId(stem), model), output: outputWriter(stem, calledTools(context)) }
  }
  const begin = (id = '', model = context.prompt.model): readonly ResponseEvent[] => {
    if (writing.head !== undefined) return []
    writing.head = start(id, model)
    const response = { ...writing.head.frame, status: 'in_progress', incomplete_details: null, output: [], usage: null }
    return [
      { type: 'response.created', response },
      { type: 'response.in_progress', response },
    ]
  }

  return {
    take: (event) => {
      if (event.type === 'answer-start') return begin(event.id, event.model)
      if (event.type === 'usage') writing.usage = { ...writing.usage, ...event.usage }
      if (event.type === 'answer-end') writing.finish = event.finish
      if (event.type === 'usage' || event.type === 'answer-end' || event.type === 'done') return []
      const opening = begin()
      return [...opening, ...(writing.head?.output.take(event) ?? [])]
    },
    end: (metrics) => {
      const opening = begin()
      const { frame, output } = writing.head ?? start('', context.prompt.model)
      const ending = writeFinish(writing.finish)
      const closing = output.finish(ending.status)
      const usage = writing.usage === undefined ? null : writeUsage({ ...NO_USAGE, ...writing.usage })
      const svc_metrics = writeMetrics(metrics)
      const response = { ...frame, ...ending, output: output.items(), usage, svc_metrics }
      return [...opening, ...closing, { type: `response.${ending.status}`, response }]
    },
  }
}

/** The tools whose calls this format writes in another way than others: none where all are plain functions. */
function calledTools({ prompt }: WriteContext): ReadonlyMap<string, CalledTool> {
  const { called } = declaredTools(prompt)
  return new Map([...called].filter(([, { isCustom, namespace }]) => isCustom || namespace !== undefined))
}
