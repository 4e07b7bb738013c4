import type { Completion, Step } from '../core/answer.ts'
import { stepsOf } from '../core/steps.ts'
import type { Prompt } from '../core/prompt.ts'
import type { Route } from './route.ts'
import type { Answered, Parts, Planned, UpstreamCall } from './stages.ts'

/** Caller headers that belong to the message format and are passed on to an upstream of it. */
const FORMAT_HEADERS = ['anthropic-version', 'anthropic-beta'] as const

/** Gets the answer, or its first step. Retries and fallbacks happen here, before any header has left: 502 503 504. */
export async function ask(planned: Planned, parts: Parts): Promise<Answered> {
  const { plan, prompt, resolved } = planned
  if (plan.kind === 'replay') {
    const completion = underOwnId(plan.completion, planned, parts)
    const answer = prompt.stream
      ? ({ kind: 'streamed', steps: replay(completion) } as const)
      : ({ kind: 'whole', completion } as const)
    return { ...planned, answer, route: undefined, ignored: [] }
  }
  const call: UpstreamCall = {
    promptFor: (route) => promptFor(plan.prompt, route, planned),
    headers: formatHeaders(planned.request.headers),
    signal: planned.signal,
    keyId: planned.key.id,
    startedAt: planned.startedAt,
    abort: planned.abort,
  }
  const routes = plan.tries.watch(resolved.routes)
  if (prompt.stream) {
    const { answer, route, ignored } = await parts.upstream.stream(routes, call)
    return { ...planned, answer: { kind: 'streamed', steps: answer }, route, ignored }
  }
  const { answer, route, ignored } = await parts.upstream.complete(routes, call)
  return { ...planned, answer: { kind: 'whole', completion: answer }, route, ignored }
}

/**
 * Where streams are had again by their ids, an answer from memory is an answer of its own: its events and its bill are
 * not those of the one that was stored.
 */
function underOwnId(completion: Completion, { format }: Planned, parts: Parts): Completion {
  if (format.answerId === undefined) return completion
  const id = format.answerId(parts.runtime.uuid().replaceAll('-', ''))
  const { native, ...others } = completion
  if (native === undefined || native.dialect !== format.dialect) return { ...completion, id }
  return { ...others, id, native: { dialect: native.dialect, value: { ...native.value, id } } }
}

async function* replay(completion: Completion): AsyncGenerator<Step, void, undefined> {
  yield* stepsOf(completion)
}

/**
 * The answer's limit is said only where it must be: the caller asked for more than the budget pays for, or asked for
 * nothing and the upstream demands a limit or does not enforce one itself.
 */
function promptFor(prompt: Prompt, route: Route, planned: Planned): Prompt {
  const asked = planned.prompt.settings.maxTokens
  const granted = planned.reservation.outputTokens
  const { model, provider } = route
  const silent = asked === undefined && granted >= model.maxOutputTokens
  const free = model.enforcesMaxOutput !== false && provider.dialect !== 'anthropic'
  if (asked === undefined ? silent && free : asked <= granted) return prompt
  return { ...prompt, settings: { ...prompt.settings, maxTokens: Math.min(granted, model.maxOutputTokens) } }
}

export function formatHeaders(headers: Headers): Record<string, string> {
  const passed: Record<string, string> = {}
  for (const name of FORMAT_HEADERS) {
    const value = headers.get(name)
    if (value !== null) passed[name] = value
  }
  return passed
}
