import type { Steering } from '../../src/plugins/savings/tier.ts'
import type { WaterfallOptions } from '../../src/plugins/savings/waterfall.ts'
import { loadConversations, neededLines, readCaseLines, type ChatMessage } from './data.ts'
import type { LocomoChat } from './locomo.ts'
import { replay, type Replay, type Turn } from './replay.ts'
import { mixedChats, requestsOf } from './running-chats.ts'
import type { CacheTable } from './upstream-cache.ts'

export const RUNNING_KINDS = ['chats', 'agents', 'meetings', 'services'] as const
export type RunningKind = (typeof RUNNING_KINDS)[number]

export interface RunningOptions {
  readonly root: string
  readonly kind: RunningKind
  /** Every second source. What is tuned on one half is verified on the other. */
  readonly half: 0 | 1
  readonly locomo: readonly LocomoChat[]
  readonly table: CacheTable
  readonly steering?: Steering
  readonly waterfall?: Partial<WaterfallOptions>
  /** Uses every `step`-th conversation of the half, and at most `requests` requests of each. @default all */
  readonly step?: number
  readonly requests?: number
  /** Requests before the questions of a chat. @default all */
  readonly lead?: number
}

export interface RunningFigures {
  readonly conversations: number
  readonly requests: number
  readonly rewritten: number
  readonly measured: number
  /** Share of the evidence at the measured requests, in percent. 100 if every request is sent unchanged. */
  readonly kept: number
  /** Cost including small-model calls, in percent of the list price of all prompt tokens. */
  readonly share: number
  readonly plainShare: number
  /** Number of conversations that cost more than sending everything, and the largest excess in percent. */
  readonly moreExpensive: number
  readonly maxExcess: number
}

/** Plays whole conversations turn by turn: what they keep and what they cost. */
export async function measureRunning(options: RunningOptions): Promise<RunningFigures> {
  const { step = 1, requests = Number.POSITIVE_INFINITY } = options
  const played: Replay[] = []
  let number = 0
  for (const { id, turns } of runningConversations(options)) {
    if (number++ % step !== 0) continue
    const { table, steering, waterfall } = options
    const limited = takeFirst(turns, requests)
    played.push(
      await replay(id, limited, {
        table,
        ...(steering !== undefined && { steering }),
        ...(waterfall && { waterfall }),
      }),
    )
  }
  const sum = (field: 'requests' | 'rewritten' | 'measured' | 'list' | 'plain' | 'paid'): number =>
    played.reduce((total, one) => total + one[field], 0)
  const shares = played.flatMap((one) => one.shares)
  const excess = played.map(({ paid, plain }) => (100 * paid) / plain - 100)
  return {
    conversations: played.length,
    requests: sum('requests'),
    rewritten: sum('rewritten'),
    measured: shares.length,
    kept: sum('rewritten') === 0 ? 100 : (100 * shares.reduce((total, share) => total + share, 0)) / shares.length,
    share: (100 * sum('paid')) / sum('list'),
    plainShare: (100 * sum('plain')) / sum('list'),
    moreExpensive: excess.filter((percent) => percent > 0.05).length,
    maxExcess: Math.max(0, ...excess),
  }
}

function* takeFirst(turns: Iterable<Turn>, count: number): Generator<Turn> {
  let number = 0
  for (const turn of turns) {
    if (number++ >= count) return
    yield turn
  }
}

interface Running {
  readonly id: string
  readonly turns: Iterable<Turn>
}

function runningConversations({ root, kind, half, locomo, lead }: RunningOptions): Iterable<Running> {
  if (kind === 'chats') {
    return mixedChats(root, { half, parts: 5, locomo }).map((chat) => ({ id: chat.id, turns: requestsOf(chat, lead) }))
  }
  if (kind === 'services') return serviceCalls(root, half)
  return kind === 'agents' ? agentSessions(root, half) : meetings(root, half)
}

const SYSTEM: ChatMessage = { role: 'system', content: 'You are a careful assistant.' }

function* agentSessions(root: string, half: 0 | 1): Generator<Running> {
  const cases = readCaseLines(root, 'specstory')
  for (const [number, { id, messages }] of loadConversations(root, 'specstory').entries()) {
    if (number % 2 !== half) continue
    const atoms = new Map(cases.filter(({ conv }) => conv === id).map((line) => [line.upto, line.atoms ?? []]))
    yield { id, turns: turnsOfSession(messages, atoms) }
  }
}

/** Calls of a service desk, whose evidence is not known. */
function* serviceCalls(root: string, half: 0 | 1): Generator<Running> {
  for (const [number, { id, messages }] of loadConversations(root, 'taubench').entries()) {
    if (number % 2 === half) yield { id, turns: turnsOfSession(messages, new Map()) }
  }
}

function* turnsOfSession(
  messages: readonly ChatMessage[],
  atoms: ReadonlyMap<number | undefined, readonly string[]>,
): Generator<Turn> {
  for (const [at, { role }] of messages.entries()) {
    const past = messages.slice(0, at)
    const wanted = atoms.get(at)
    if (at === 0 || (role !== 'assistant' && wanted === undefined)) continue
    yield { messages: [SYSTEM, ...past], ...(wanted !== undefined && { needed: neededLines(past, wanted) }) }
  }
}

/** Questions about a meeting, one after the other. */
function* meetings(root: string, half: 0 | 1): Generator<Running> {
  const cases = readCaseLines(root, 'qmsum')
  for (const [number, { id, messages }] of loadConversations(root, 'qmsum').entries()) {
    if (number % 2 !== half) continue
    const questions = cases
      .filter(({ conv }) => conv === id)
      .map(({ question = '', answer: response = '', evidence = [] }) => ({
        text: question,
        response,
        evidence: evidence.map((at) => messages[at]?.content ?? ''),
      }))
    yield { id, turns: requestsOf({ id, messages, questions }) }
  }
}
