import type { Message, Prompt } from '../core/prompt.ts'
import { queryOf } from './query.ts'
import { rebuild } from './rebuild.ts'
import { select, type Selection, type SelectionTools } from './selection.ts'
import type { TierJob } from './tier.ts'
import { splitTurns, type Turns, type Unit } from './turns.ts'

/** A prompt of which only the system prompt, the live turn and what the query needs are left. */
export interface Cut {
  readonly prompt: Prompt
  /** Exact. */
  readonly tokens: number
  /** Old units that are still there, whole or in part, of how many. */
  readonly kept: number
  readonly total: number
}

export interface CutOptions {
  /** The greatest number of tokens of the whole prompt. */
  readonly cap: number
  /** Terms that a small model added to the query. */
  readonly terms?: readonly string[]
}

/** What the notice and a bridging message take. */
const NOTICE_ROOM = 48
const ATTEMPTS = 3

/** Cuts a prompt down to the cap; undefined when no unit can be left out or shortened. */
export async function cutToQuery(job: TierJob, options: CutOptions, tools: SelectionTools): Promise<Cut | undefined> {
  const { prompt } = job
  const turns = splitTurns(prompt.messages)
  const frame = await tools.meter.countOf({ ...prompt, messages: systemOf(prompt) }, job.signal)
  const liveSize = await sizeOf(turns.live, job, tools)
  const overflows = frame + liveSize + NOTICE_ROOM > options.cap
  const pinned = overflows ? turns.live.slice(0, 1) : turns.live
  const steps = overflows ? turns.live.slice(1) : []
  const units = [...turns.old, ...steps]
  if (units.length === 0) return undefined
  const taken = frame + (overflows ? await sizeOf(pinned, job, tools) : liveSize) + NOTICE_ROOM
  const query = queryOf(turns, options.terms)

  let room = Math.max(0, options.cap - taken)
  for (let attempt = 1; ; attempt++) {
    const selected = await select(
      { units, steps: new Set(steps), query, room, owner: job.owner, signal: job.signal },
      tools,
    )
    const cut = await assemble(job, { turns, pinned, selected }, tools)
    if (cut.tokens <= options.cap || room === 0 || attempt === ATTEMPTS) return cut
    room = Math.max(0, room - (cut.tokens - options.cap) - NOTICE_ROOM)
  }
}

interface Pieces {
  readonly turns: Turns
  readonly pinned: readonly Unit[]
  readonly selected: Selection
}

async function assemble(job: TierJob, pieces: Pieces, tools: SelectionTools): Promise<Cut> {
  const { turns, pinned, selected } = pieces
  const whole: [Unit, readonly Message[]][] = pinned.map((unit) => [unit, unit.messages])
  const selection: Selection = new Map([...selected, ...whole])
  const dropped = [...turns.old, ...turns.live].filter((unit) => !selection.has(unit))
  const missing = await sizeOf(dropped, job, tools)
  const prompt = rebuild(job.prompt, turns, selection, noticeOf(missing))
  return {
    prompt,
    tokens: await tools.meter.countOf(prompt, job.signal),
    kept: turns.old.filter((unit) => selection.has(unit)).length,
    total: turns.old.length,
  }
}

function systemOf(prompt: Prompt): readonly Message[] {
  return prompt.messages.filter((message) => message.role === 'system')
}

async function sizeOf(units: readonly Unit[], job: TierJob, { meter }: SelectionTools): Promise<number> {
  let tokens = 0
  for (const unit of units) {
    for (const message of unit.messages) tokens += await meter.countOfMessage(message, job.signal)
  }
  return tokens
}

/** Says that something is missing and about how much, so that a model does not take the rest for the whole. */
export function noticeOf(tokens: number): Message {
  const about = tokens < 1000 ? 'Some' : `About ${Math.round(tokens / 1000)},000`
  const text = `[${about} tokens of this conversation are left out, here and between the messages below.]`
  return { role: 'user', parts: [{ type: 'text', text }] }
}
