import { queryOf } from './query.ts'
import type { Block } from './rebuild.ts'
import { select, type Selection, type SelectionTools } from './selection.ts'
import { tellUnit } from './summary.ts'
import type { Talk } from './freeze.ts'
import type { TierJob } from './tier.ts'

const HEADING = '[Earlier parts of this conversation that may matter for the next message:]'
/** Less than this says nothing. */
const LEAST_ROOM = 200

export interface LookUp {
  readonly room: number
  /** The parts that are in the prompt anyway. */
  readonly selection: Selection
  readonly blocks: readonly Block[]
}

/** What a new question needs and a frozen cut left out; undefined within an agent's loop, which has asked already. */
export async function lookUp(
  job: TierJob,
  { turns }: Talk,
  { room, selection, blocks }: LookUp,
  tools: SelectionTools,
): Promise<Block | undefined> {
  const before = turns.live[0]?.places[0]
  if (room < LEAST_ROOM || turns.live.length !== 1 || before === undefined) return undefined
  if (blocks.some((block) => block.before === before)) return undefined
  const units = turns.old.filter((unit) => selection.get(unit) !== unit.messages)
  const query = queryOf(turns)
  const found = await select({ units, steps: new Set(), query, room, owner: job.owner, signal: job.signal }, tools)
  if (found.matches === 0) return undefined
  const lines = units.flatMap((unit) => {
    const messages = found.selection.get(unit)
    return messages === undefined ? [] : [tellUnit({ ...unit, messages }, 'whole')]
  })
  return lines.length === 0 ? undefined : { before, text: [HEADING, ...lines].join('\n\n') }
}
