import type { Message, Prompt } from '../core/prompt.ts'
import type { Talk } from './freeze.ts'
import { queryOf } from './query.ts'
import { rebuild } from './rebuild.ts'
import { select, type Selected, type SelectionTools } from './selection.ts'
import type { TierJob } from './tier.ts'
import type { Unit } from './turns.ts'

/** A prompt of which only the system prompt, the live turn and what the query needs are left. */
export interface Cut {
  readonly prompt: Prompt
  /** Exact. */
  readonly tokens: number
  /** Old units that are still there, whole or in part. */
  readonly kept: number
  /** How many units share a word with the query. */
  readonly matches: number
  /** All that stayed, the live turn included. */
  readonly selected: Selected
  /** What stands in place of what is missing. */
  readonly notice: string
}

export interface CutOptions {
  /** The greatest number of tokens of the whole prompt. */
  readonly cap: number
  /** The live turn stays as it is up to this; beyond, its open tool results are excerpted. @default cap */
  readonly liveCap?: number
  /** The greatest number of tokens once the live turn is excerpted. @default cap */
  readonly excerptCap?: number
  /** What the old units may take where the live turn alone fills the cap. @default 0 */
  readonly leastRoom?: number
  /** The newest messages that stay as they are: so many, live turn included, and at least so many tokens. */
  readonly newest?: { readonly messages: number; readonly tokens: number }
  /** Terms that a small model added to the query. */
  readonly terms?: readonly string[]
  /** What the notice may take. @default 48 */
  readonly noticeRoom?: number
  /** Writes what stands in place of the missing units. @default how much is missing */
  readonly notice?: (missing: readonly Unit[], tokens: number) => Promise<string>
}

const NOTICE_ROOM = 48
const ATTEMPTS = 3

/** Cuts a prompt down to the cap; undefined when there is nothing that could be left out or shortened. */
export async function cutToQuery(
  job: TierJob,
  talk: Talk,
  options: CutOptions,
  tools: SelectionTools,
): Promise<Cut | undefined> {
  const { turns } = talk
  const frame = await tools.meter.countOf({ ...job.prompt, messages: systemOf(job.prompt) }, job.signal)
  const noticeRoom = options.noticeRoom ?? NOTICE_ROOM
  const liveSize = await sizeOf(turns.live, job, tools)
  const liveCap = options.liveCap ?? options.cap
  const overflows = frame + liveSize + noticeRoom > liveCap
  const live = overflows ? turns.live.slice(0, 1) : turns.live
  const steps = overflows ? turns.live.slice(1) : []
  const newest = overflows ? [] : await newestUnits(job, talk, { options, room: liveCap - frame - liveSize }, tools)
  const pinned = [...newest, ...live]
  const units = [...turns.old.slice(0, turns.old.length - newest.length), ...steps]
  if (units.length === 0) return undefined
  const taken = frame + (await sizeOf(pinned, job, tools)) + noticeRoom
  const query = queryOf(turns, options.terms)

  let room = Math.max(options.leastRoom ?? 0, (overflows ? (options.excerptCap ?? options.cap) : options.cap) - taken)
  const cap = taken + room
  for (let attempt = 1; ; attempt++) {
    const picked = await select(
      { units, steps: new Set(steps), query, room, owner: job.owner, signal: job.signal },
      tools,
    )
    const whole: [Unit, readonly Message[]][] = pinned.map((unit) => [unit, unit.messages])
    const selected = { ...picked, selection: new Map([...picked.selection, ...whole]) }
    const cut = await assemble(job, talk, { options, selected }, tools)
    if (cut.tokens <= cap) return cut
    // The cap counts for more than the notice.
    if (room === 0 || attempt === ATTEMPTS) return withoutNotice(job, talk, cut, tools)
    room = Math.max(0, room - (cut.tokens - cap) - NOTICE_ROOM)
  }
}

/** Old units from the newest back, until there are enough messages and tokens, or no room. */
async function newestUnits(
  job: TierJob,
  { turns }: Talk,
  { options, room }: { readonly options: CutOptions; readonly room: number },
  tools: SelectionTools,
): Promise<readonly Unit[]> {
  const { newest } = options
  if (newest === undefined) return []
  let messages = turns.live.reduce((sum, unit) => sum + unit.messages.length, 0)
  let tokens = 0
  let from = turns.old.length
  while (from > 0 && (messages < newest.messages || tokens < newest.tokens)) {
    const unit = turns.old[from - 1]
    const size = unit === undefined ? 0 : await sizeOf([unit], job, tools)
    if (tokens + size > room) break
    tokens += size
    messages += unit?.messages.length ?? 0
    from--
  }
  return turns.old.slice(from)
}

async function assemble(
  job: TierJob,
  talk: Talk,
  { options, selected }: { readonly options: CutOptions; readonly selected: Selected },
  tools: SelectionTools,
): Promise<Cut> {
  const missing = talk.units.filter((unit) => !selected.selection.has(unit))
  const size = await sizeOf(missing, job, tools)
  const notice = options.notice === undefined ? noticeOf(size) : await options.notice(missing, size)
  const prompt = rebuild(job.prompt, talk.turns, selected.selection, { notice })
  return {
    prompt,
    tokens: await tools.meter.countOf(prompt, job.signal),
    kept: talk.turns.old.filter((unit) => selected.selection.has(unit)).length,
    matches: selected.matches,
    selected,
    notice,
  }
}

async function withoutNotice(job: TierJob, { turns }: Talk, cut: Cut, tools: SelectionTools): Promise<Cut> {
  const prompt = rebuild(job.prompt, turns, cut.selected.selection, { notice: '' })
  return { ...cut, prompt, notice: '', tokens: await tools.meter.countOf(prompt, job.signal) }
}

function systemOf(prompt: Prompt): readonly Message[] {
  return prompt.messages.filter((message) => message.role === 'system')
}

/** Exact tokens of units. */
export async function sizeOf(units: readonly Unit[], job: TierJob, { meter }: SelectionTools): Promise<number> {
  let tokens = 0
  for (const unit of units) {
    for (const message of unit.messages) tokens += await meter.countOfMessage(message, job.signal)
  }
  return tokens
}

/** Says that something is missing and about how much, so that a model does not take the rest for the whole. */
function noticeOf(tokens: number): string {
  const about = tokens < 1000 ? 'Some' : `About ${Math.round(tokens / 1000)},000`
  return `[${about} tokens of this conversation are left out, here and between the messages below.]`
}
