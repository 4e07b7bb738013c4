import type { Message, Prompt } from '../core/prompt.ts'
import { GAP } from './excerpt.ts'
import type { Selection } from './selection.ts'
import type { Turns, Unit } from './turns.ts'

/** A message of a rewritten prompt, and where it stood in the original; -1 for one that was not there. */
interface Placed {
  readonly message: Message
  readonly place: number
}

/** What is put in place of what is left out. */
export interface Gap {
  /** Empty: nothing. */
  readonly notice: string
  /** The place of a message that was the last user message when the same cut was sent first. */
  readonly asked?: number
  readonly blocks?: readonly Block[]
}

/** Earlier parts of the conversation that stand right before the message at a place. */
export interface Block {
  readonly before: number
  readonly text: string
}

/**
 * The prompt with what was selected. System messages and everything that is in no unit stay where they are; the notice
 * is before the first unit that is cut. Where the format wants alternating roles, messages that have become
 * neighbours are joined, but never with the last user message.
 */
export function rebuild(prompt: Prompt, turns: Turns, selection: Selection, gap: Gap): Prompt {
  const instead = new Map<number, Message | undefined>()
  const units = [...turns.old, ...turns.live]
  for (const unit of units) {
    const messages = selection.get(unit)
    for (const [index, place] of unit.places.entries()) instead.set(place, messages?.[index])
  }
  const missing = placeOfNotice(units, turns, selection)
  const blocks = new Map(gap.blocks?.map((block) => [block.before, block.text]))
  const placed: Placed[] = []
  for (const [place, message] of prompt.messages.entries()) {
    if (place === missing && gap.notice !== '') placed.push(added(gap.notice))
    const block = blocks.get(place)
    if (block !== undefined) placed.push(added(block))
    const kept = instead.has(place) ? instead.get(place) : message
    if (kept !== undefined) placed.push({ message: kept, place })
  }
  const asked = new Set([turns.live[0]?.places[0], gap.asked, ...blocks.keys()])
  const messages = prompt.native.dialect === 'anthropic' ? alternate(placed, asked) : placed.map((one) => one.message)
  return { ...prompt, messages }
}

/** Returns true when some of the unit is left out: all of it, or what its excerpt does not show. */
export function isCut(unit: Unit, selection: Selection): boolean {
  const messages = selection.get(unit)
  return messages === undefined || unit.messages.some((message, at) => message !== messages[at])
}

/** Before the first unit that is cut, but never after the last user message: that would make it the last word. */
function placeOfNotice(units: readonly Unit[], turns: Turns, selection: Selection): number | undefined {
  const missing = units.find((unit) => isCut(unit, selection))?.places[0]
  const asked = turns.live[0]?.places[0]
  return missing === undefined || asked === undefined ? missing : Math.min(missing, asked)
}

function added(text: string): Placed {
  return { message: { role: 'user', parts: [{ type: 'text', text }] }, place: -1 }
}

function alternate(placed: readonly Placed[], asked: ReadonlySet<number | undefined>): readonly Message[] {
  const out: Placed[] = []
  for (const next of placed) {
    const last = out.at(-1)
    const wereNeighbours = last !== undefined && last.place >= 0 && next.place === last.place + 1
    const broken = last !== undefined && last.message.role === next.message.role && !wereNeighbours
    if (!broken || next.message.role === 'system') out.push(next)
    else if (asked.has(next.place)) out.push({ message: bridgeTo(next.message), place: -1 }, next)
    else out[out.length - 1] = { message: join(last.message, next.message), place: next.place }
  }
  return out.map((one) => one.message)
}

/** The last user message stays as it is, so something of the other role must stand before it. */
function bridgeTo(message: Message): Message {
  return { role: message.role === 'user' ? 'assistant' : 'user', parts: [{ type: 'text', text: GAP }] }
}

function join(first: Message, second: Message): Message {
  return { role: first.role, parts: [...first.parts, ...second.parts] }
}
