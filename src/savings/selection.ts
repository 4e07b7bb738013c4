import type { Meter } from '../core/ports.ts'
import type { Selection } from './excerpt.ts'
import { createPacker, type Packer, type PackerEntry } from './packer.ts'
import { corpusOf, expandQuery, type Query, scoreSnippets, scoresOf, scoreTopics } from './keywords.ts'
import type { Pause } from '../core/async.ts'
import type { AnalyzeSegment } from './segment-analysis.ts'
import type { Segment } from './conversation.ts'
import type { Similarities } from './tier.ts'

/** Dependencies of a selection. */
export interface SelectionTools {
  readonly meter: Meter
  readonly read: AnalyzeSegment
  /** Called once per item in loops over a conversation. */
  readonly pause: Pause
}

export interface SelectionJob {
  /** Oldest first. */
  readonly segments: readonly Segment[]
  /** Units whose calls should stay even where their results do not fit: the steps of the live turn. */
  readonly steps: ReadonlySet<Segment>
  readonly query: Query
  /** Similarity to the question by an embedder. @default none: by words alone */
  readonly similarities?: Similarities
  /** True when the question asks for an earlier answer: whole answers are selected first. @default false */
  readonly asksForAnswer?: boolean
  /** Maximum tokens of the selection. */
  readonly room: number
  /** Tokens for the newest segment, independent of the query. @default 0 */
  readonly newestRoom?: number
  readonly owner: string
  readonly signal: AbortSignal
}

export interface Selected {
  readonly selection: Selection
  /** The snippets of each excerpt, by their position in the segment's analysis. */
  readonly picks: ReadonlyMap<Segment, readonly number[]>
  /** Number of segments that share a term with the query. */
  readonly matches: number
}

/** Shares of the room that do not depend on the query. */
const STANDING_SHARE = 0.2
const USER_SHARE_WITH_TOOLS = 0.2
const USER_SHARE = 0.75
const HEAD_SHARE = 0.05
const NEWEST_SHARE = 0.06
const STEP_SHARE = 0.5
const NEWEST_STEP_SHARE = 0.3
/** With tools, half of the tokens are for excerpts: most of a tool result is irrelevant. */
const WHOLE_SHARE_WITH_TOOLS = 0.5
const TOOL_TRAFFIC = 0.2
/** Long segments contain more, but less than in proportion to their length. */
const LENGTH_POWER = 0.6
const LENGTH_POWER_WITH_TOOLS = 0.75
/** An answer that the question asks for is long and rarely repeats itself. */
const ANSWER_LENGTH_POWER = 0.2
const ANSWER_LENGTH_PENALTY = 0.4
const ANSWER_SHARE = 0.75
const PARTNER_SHARE = 0.5
/** Without tools a topic spans a few turns, so neighbors of a hit add a share of its score. */
const NEIGHBOR_SHARE = 0.1
const NEIGHBORS = 3
/** With several speakers, the score of the topic around a turn is added to its own. */
const TOPIC_SHARE = 0.5
/** Weight of the similarity by an embedder, as a share of the best score by words. */
const MEANING_SHARE = 0.7
/** Below this size, neighbors of a question and its answer displace other hits. Meetings gain at any size. */
const NEIGHBORS_ROOM = 8000
/** With tools, older segments are more often outdated: the oldest counts 1/e of the newest. */
const AGEING = 1
/** Passages are priced by estimate; what is left after measuring is filled again. */
const FILLING_ROUNDS = 4
const ENOUGH = 0.998

/** Selects what the query needs most, after the fixed shares above. */
export async function select(job: SelectionJob, tools: SelectionTools): Promise<Selected> {
  const entries = await readAll(job, tools)
  const { pause } = tools
  const corpus = await corpusOf(
    entries.map((entry) => entry.analysis.counts),
    pause,
  )
  const withTools = shareOfTools(entries) > TOOL_TRAFFIC
  const wantsAnswers = job.asksForAnswer === true && !withTools
  const lengthPenalty = wantsAnswers ? ANSWER_LENGTH_PENALTY : undefined
  const query = await expandQuery(corpus, job.query, pause, lengthPenalty)
  const isMeeting = entries.every(({ segment }) => segment.kind === 'user')
  const own = await scoresOf(corpus, query, pause, lengthPenalty)
  const scoresOfSegments = isMeeting
    ? withTopics(own, await scoreTopics(corpus.texts, query, pause))
    : withMeaning(own, entries, job.similarities)
  const lends = !withTools && (isMeeting || job.room >= NEIGHBORS_ROOM)
  rank(entries, lends ? withNeighbors(scoresOfSegments) : scoresOfSegments, withTools)
  await pause()
  const packer = createPacker(job.room, tools)
  const byValue = entries.toSorted((a, b) => b.value - a.value || b.place - a.place)
  const newestFirst = entries.toReversed()

  if (wantsAnswers) takeAnswers(packer, entries)
  takeRightful(packer, entries, { byValue, newestFirst, steps: job.steps, newestRoom: job.newestRoom ?? 0, withTools })
  await packer.measure(entries, job.signal)
  const relevant = byValue.filter((entry) => entry.value > 0)
  packer.takeWhole(relevant, withTools ? job.room * WHOLE_SHARE_WITH_TOOLS : job.room)
  const scores = await scoreSnippets(
    entries.map((entry) => entry.analysis),
    query,
    pause,
  )
  for (let round = 0; round < FILLING_ROUNDS && packer.spent() < job.room * ENOUGH; round++) {
    const picked = await packer.takeSnippets(entries, scores)
    await packer.measure(entries, job.signal)
    if (!picked) break
  }
  packer.takeWhole(newestFirst, job.room)
  const kept = entries.filter((entry) => entry.state !== 'out')
  return {
    selection: new Map(kept.map((entry) => [entry.segment, entry.messages])),
    picks: new Map(kept.filter((entry) => entry.state === 'excerpt').map((entry) => [entry.segment, picksOf(entry)])),
    matches: relevant.length,
  }
}

function picksOf(entry: PackerEntry): readonly number[] {
  const picked = new Set(entry.picked)
  return entry.analysis.snippets.flatMap((snippet, at) => (picked.has(snippet) ? [at] : []))
}

async function readAll(job: SelectionJob, tools: SelectionTools): Promise<PackerEntry[]> {
  const entries: PackerEntry[] = []
  for (const [place, segment] of job.segments.entries()) {
    let tokens = 0
    for (const message of segment.messages) tokens += await tools.meter.countOfMessage(message, job.signal)
    const analysis = await tools.read(segment, job.owner)
    entries.push({
      segment,
      place,
      tokens,
      analysis,
      value: 0,
      share: 0,
      state: 'out',
      messages: [],
      picked: [],
      spent: 0,
    })
    const due = tools.pause()
    if (due === undefined) continue
    await due
    job.signal.throwIfAborted()
  }
  return entries
}

function shareOfTools(entries: readonly PackerEntry[]): number {
  let all = 1
  let exchanges = 0
  for (const { segment, tokens } of entries) {
    all += tokens
    if (segment.kind === 'exchange') exchanges += tokens
  }
  return exchanges / all
}

function withTopics(own: Float64Array, topics: Float64Array): Float64Array {
  return own.map((score, at) => score + TOPIC_SHARE * (topics[at] ?? 0))
}

/** Adds to each score a share of the best score, by the similarity to the question. Weak similarity is noise. */
function withMeaning(own: Float64Array, entries: readonly PackerEntry[], similarities?: Similarities): Float64Array {
  if (similarities === undefined) return own
  const best = own.reduce((most, score) => Math.max(most, score), 0)
  const share = MEANING_SHARE * (best > 0 ? best : 1)
  return own.map((score, at) => {
    const segment = entries[at]?.segment
    return score + share * ((segment === undefined ? undefined : similarities.get(segment)) ?? 0) ** 2
  })
}

/** Adds to each score a share of those within three positions. */
function withNeighbors(scores: Float64Array): Float64Array {
  return scores.map((own, at) => {
    let lent = 0
    for (let away = 1; away <= NEIGHBORS; away++) lent += (scores[at - away] ?? 0) + (scores[at + away] ?? 0)
    return own + NEIGHBOR_SHARE * lent
  })
}

/** Sets the value of each segment: its own score and half of its partner's, by length and age. */
function rank(entries: readonly PackerEntry[], scores: Float64Array, withTools: boolean): void {
  const [ageing, power] = withTools ? [AGEING, LENGTH_POWER_WITH_TOOLS] : [0, LENGTH_POWER]
  const greatest = scores.reduce((most, score) => Math.max(most, score), 1e-9)
  for (const [at, entry] of entries.entries()) {
    const own = scores[at] ?? 0
    const fresh = Math.exp((-ageing * (entries.length - 1 - at)) / Math.max(1, entries.length))
    entry.share = (fresh * own) / greatest
    entry.value = (fresh * (own + PARTNER_SHARE * partnerScore(entries, scores, at))) / entry.tokens ** power
  }
}

/**
 * The partner of a question is its answer, and the other way round. Where several people talk and none answers as
 * the assistant, the turns before and after lend half as much, between them.
 */
function partnerScore(entries: readonly PackerEntry[], scores: Float64Array, at: number): number {
  const isUser = (index: number): boolean => entries[index]?.segment.kind === 'user'
  const scoreAt = (index: number): number => (index in entries ? (scores[index] ?? 0) : 0)
  const partner = isUser(at) ? at + 1 : at - 1
  if (partner in entries && isUser(partner) !== isUser(at)) return scoreAt(partner)
  if (!isUser(at)) return 0
  const around = (isUser(at - 1) ? scoreAt(at - 1) : 0) + (isUser(at + 1) ? scoreAt(at + 1) : 0)
  return around / 4
}

/**
 * Packs the answers that match the query best. With the common ranking, short user messages would use the tokens first.
 */
function takeAnswers(packer: Packer, entries: readonly PackerEntry[]): void {
  const worthOf = ({ value, tokens }: PackerEntry): number => value * tokens ** (LENGTH_POWER - ANSWER_LENGTH_POWER)
  const answers = entries.filter(({ segment, share }) => segment.kind === 'assistant' && share > 0)
  packer.takeWhole(
    answers.toSorted((a, b) => worthOf(b) - worthOf(a)),
    packer.room * ANSWER_SHARE,
  )
}

interface Orders {
  readonly byValue: readonly PackerEntry[]
  readonly newestFirst: readonly PackerEntry[]
  readonly steps: ReadonlySet<Segment>
  readonly newestRoom: number
  readonly withTools: boolean
}

/** Packs standing instructions, user messages, the steps of the live turn, the first and the last segment. */
function takeRightful(packer: Packer, entries: readonly PackerEntry[], orders: Orders): void {
  const { room } = packer
  const { byValue, newestFirst, steps } = orders
  const [newestStep, ...earlierSteps] = newestFirst.filter((entry) => steps.has(entry.segment))
  if (newestStep !== undefined) {
    packer.takeWhole([newestStep], room * NEWEST_STEP_SHARE)
    packer.takeSkeletons([newestStep], room)
    packer.takeSkeletons(earlierSteps, room * STEP_SHARE)
  }
  packer.takeWhole(
    newestFirst.filter((entry) => entry.analysis.standing),
    room * STANDING_SHARE,
  )
  const isUser = (entry: PackerEntry): boolean => entry.segment.kind === 'user'
  const words = entries.filter(isUser)
  const all = words.reduce((sum, entry) => sum + entry.tokens, 0)
  const share = !orders.withTools && all <= room * USER_SHARE ? USER_SHARE : USER_SHARE_WITH_TOOLS
  packer.takeWhole(all <= room * share ? words : byValue.filter(isUser), room * share)
  packer.takeWhole(entries.slice(0, 1), room * HEAD_SHARE)
  packer.takeWhole(newestFirst.slice(0, 1), room * NEWEST_SHARE)
  packer.takeLast(newestFirst.slice(0, 1), Math.min(room, orders.newestRoom))
}
