import type { Meter } from '../core/ports.ts'
import type { CutOptions } from './cut.ts'
import type { Talk } from './freeze.ts'
import type { Unit } from './turns.ts'

type Limits = Required<Pick<CutOptions, 'cap' | 'liveCap' | 'newest' | 'noticeRoom'>>

/** About how many tokens a cut prompt has: its cap, or more where the live turn and the newest messages are above it. */
export function expectedSize({ prompt, turns }: Talk, limits: Limits, meter: Pick<Meter, 'estimateOfMessage'>): number {
  const sizeOf = ({ messages }: Pick<Unit, 'messages'>): number =>
    messages.reduce((sum, message) => sum + meter.estimateOfMessage(message), 0)
  const system = sizeOf({ messages: prompt.messages.filter(({ role }) => role === 'system') })
  const live = turns.live.reduce((sum, unit) => sum + sizeOf(unit), 0)
  let room = limits.liveCap - system - live
  if (room < limits.noticeRoom) return limits.cap
  let messages = turns.live.reduce((sum, unit) => sum + unit.messages.length, 0)
  let newest = 0
  for (const unit of turns.old.toReversed()) {
    const size = sizeOf(unit)
    const isEnough = messages >= limits.newest.messages && newest >= limits.newest.tokens
    if (isEnough || size > room) break
    room -= size
    newest += size
    messages += unit.messages.length
  }
  return Math.max(limits.cap, system + live + newest + limits.noticeRoom)
}
