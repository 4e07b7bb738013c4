import { isPromise, type Pause } from '../../core/async.ts'
import type { Meter } from '../../core/ports.ts'
import type { Message } from '../../core/prompt.ts'
import type { Segment } from './conversation.ts'
import type { AnalyzeSegment } from './excerpt.ts'
import { createCorpus, expandQuery, findMatches, mapWithPauses, type Query, scoreTexts } from './keywords.ts'
import { sumCounts, type TermCounts } from './term-counts.ts'
import type { Similarities } from './similarities.ts'
import { Packer, type PackerEntry, scoreSnippets } from './packer.ts'

export interface SelectionTools {
  readonly meter: Meter
  readonly analyze: AnalyzeSegment
  readonly pause: Pause
}

export type TextTools = Pick<SelectionTools, 'meter' | 'pause'>

/** Segments without an entry are omitted. */
export type Selection = ReadonlyMap<Segment, readonly Message[]>

export interface SelectionResult {
  readonly selection: Selection
  /** Indexes of the selected snippets of each excerpted segment. */
  readonly picks: ReadonlyMap<Segment, readonly number[]>
  /** Number of segments with a `value` above 0. */
  readonly matches: number
}

export interface SelectionJob {
  readonly segments: readonly Segment[]
  /** Steps of the live turn. */
  readonly steps: ReadonlySet<Segment>
  readonly query: Query
  readonly similarities?: Similarities | undefined
  readonly capacity: number
  /**
   * Segments that are sent whole in any case. They are ranked, but take no capacity. If set, only segments that match
   * the query are added. @default none
   */
  readonly sent?: ReadonlySet<Segment>
  /** Tokens for excerpts from the newest segment, the last response, regardless of the query. */
  readonly lastResponseCapacity?: number
  readonly owner: string
  readonly signal: AbortSignal
}

const INSTRUCTIONS_SHARE = 0.2
const USER_SHARE_WITH_TOOLS = 0.2
const USER_SHARE = 0.75
const HEAD_SHARE = 0.05
const NEWEST_SHARE = 0.06
const STEP_SHARE = 0.5
const NEWEST_STEP_SHARE = 0.3
/** The rest is for excerpts, because most of a tool result is irrelevant. */
const FULL_SEGMENT_SHARE_WITH_TOOLS = 0.5
const MIN_TOOL_SHARE = 0.2
/** Longer segments contain more relevant content, but less than proportionally. */
const LENGTH_POWER = 0.6
const LENGTH_POWER_WITH_TOOLS = 0.75
const PARTNER_SHARE = 0.5
/** A topic spans several turns, so a segment's score gains this fraction of its neighbors' scores. */
const NEIGHBOR_SHARE = 0.1
const NEIGHBOR_DISTANCE = 3
const TOPIC_SHARE = 0.5
const SIMILARITY_SHARE = 0.7
/** With less capacity, neighbors would displace other hits, except in meeting transcripts. */
const MIN_NEIGHBOR_CAPACITY = 8000
/** Old segments of a conversation with tools are often outdated. */
const DECAY = 1
/** Tokens remain unused because snippet sizes are estimates. */
const MAX_FILLING_ROUNDS = 4
const FILLED_SHARE = 0.998

export async function select(job: SelectionJob, tools: SelectionTools): Promise<SelectionResult> {
  const { capacity, sent, signal } = job
  const entries = await analyzeAll(job, tools)
  const { pause } = tools
  const counts = entries.map((entry) => entry.analysis.counts)
  const corpus = createCorpus(counts)
  const toolTokens = sumOfTokens(entries.filter(({ segment }) => segment.kind === 'tool-use'))
  const isToolHeavy = toolTokens / (sumOfTokens(entries) + 1) > MIN_TOOL_SHARE
  const matches = await expandQuery(corpus, await findMatches(counts, job.query, pause), pause)
  const isMeeting = entries.every(({ segment }) => segment.kind === 'user')
  const wordScores = scoreTexts(corpus, matches)
  const segmentScores = isMeeting
    ? addTopicScores(wordScores, await scoreTopics(counts, matches.query, pause))
    : addSimilarities(wordScores, entries, job.similarities)
  const usesNeighbors = !isToolHeavy && (isMeeting || capacity >= MIN_NEIGHBOR_CAPACITY)
  assignValues(entries, usesNeighbors ? addNeighborScores(segmentScores) : segmentScores, isToolHeavy)
  await pause()
  const packer = new Packer(capacity, { ...tools, signal })
  const newestFirst = entries.toReversed()
  const byValue = newestFirst.toSorted((a, b) => b.value - a.value)

  if (sent !== undefined) packer.packSegments(byValue.filter(isUser), capacity * USER_SHARE_WITH_TOOLS)
  else packFixedShares(packer, job, { entries, byValue, newestFirst, isToolHeavy })
  await packer.measureAndTrim(entries)
  const relevant = byValue.filter((entry) => entry.value > 0)
  packer.packSegments(relevant, isToolHeavy ? capacity * FULL_SEGMENT_SHARE_WITH_TOOLS : capacity)
  const analyses = entries.map(({ analysis }) => analysis)
  const scores = await scoreSnippets(analyses, matches, pause)
  for (let round = 0; round < MAX_FILLING_ROUNDS && packer.usedTokens < capacity * FILLED_SHARE; round++) {
    const hasPacked = await packer.packBestSnippets(entries, scores)
    await packer.measureAndTrim(entries)
    if (!hasPacked) break
  }
  if (sent === undefined) packer.packSegments(newestFirst, capacity)
  const packed = entries.filter((entry) => entry.state !== 'out' && sent?.has(entry.segment) !== true)
  return {
    selection: new Map(packed.map((entry) => [entry.segment, entry.messages])),
    picks: new Map(packed.filter((entry) => entry.state === 'excerpt').map((entry) => [entry.segment, picksOf(entry)])),
    matches: relevant.length,
  }
}

function picksOf(entry: PackerEntry): readonly number[] {
  const picked = new Set(entry.pickedSnippets)
  return entry.analysis.snippets.flatMap((snippet, index) => (picked.has(snippet) ? [index] : []))
}

const UNRANKED = { value: 0, relativeScore: 0, messages: [] } as const

async function analyzeAll(job: SelectionJob, tools: SelectionTools): Promise<PackerEntry[]> {
  const entries: PackerEntry[] = []
  for (const segment of job.segments) {
    let tokens = 0
    for (const message of segment.messages) {
      const count = tools.meter.countMessage(message, job.signal)
      tokens += isPromise(count) ? await count : count
    }
    const analyzed = tools.analyze(segment, job.owner)
    const analysis = isPromise(analyzed) ? await analyzed : analyzed
    const isSent = job.sent?.has(segment) === true
    const state = isSent ? 'full' : 'out'
    const usedTokens = isSent ? tokens : 0
    entries.push({ segment, tokens, analysis, ...UNRANKED, state, usedTokens, pickedSnippets: [] })
    const pausing = tools.pause()
    if (pausing === undefined) continue
    await pausing
    job.signal.throwIfAborted()
  }
  return entries
}

function sumOfTokens(entries: readonly PackerEntry[]): number {
  return entries.reduce((sum, entry) => sum + entry.tokens, 0)
}

function addTopicScores(scores: Float64Array, topics: Float64Array): Float64Array {
  return scores.map((score, index) => score + TOPIC_SHARE * (topics[index] ?? 0))
}

/** Squares the similarity, because weak similarities are noise. */
function addSimilarities(
  scores: Float64Array,
  entries: readonly PackerEntry[],
  similarities: Similarities | undefined,
): Float64Array {
  if (similarities === undefined) return scores
  const best = scores.reduce((max, score) => Math.max(max, score), 0)
  const share = SIMILARITY_SHARE * (best > 0 ? best : 1)
  return Float64Array.from(entries, ({ segment }, index) => {
    return (scores[index] ?? 0) + share * (similarities.get(segment) ?? 0) ** 2
  })
}

function addNeighborScores(scores: Float64Array): Float64Array {
  return scores.map((score, index) => {
    let neighbors = 0
    for (let away = 1; away <= NEIGHBOR_DISTANCE; away++)
      neighbors += (scores[index - away] ?? 0) + (scores[index + away] ?? 0)
    return score + NEIGHBOR_SHARE * neighbors
  })
}

function assignValues(entries: readonly PackerEntry[], scores: Float64Array, isToolHeavy: boolean): void {
  const [decay, power] = isToolHeavy ? [DECAY, LENGTH_POWER_WITH_TOOLS] : [0, LENGTH_POWER]
  const best = scores.reduce((max, score) => Math.max(max, score), 1e-9)
  for (const [index, entry] of entries.entries()) {
    const score = scores[index] ?? 0
    const recency = Math.exp((-decay * (entries.length - 1 - index)) / Math.max(1, entries.length))
    entry.relativeScore = (recency * score) / best
    entry.value = (recency * (score + PARTNER_SHARE * partnerScore(entries, scores, index))) / entry.tokens ** power
  }
}

/** The partner of a question is its response, and vice versa. */
function partnerScore(entries: readonly PackerEntry[], scores: Float64Array, entryIndex: number): number {
  const isUser = (index: number): boolean => entries[index]?.segment.kind === 'user'
  const scoreAt = (index: number): number => (index in entries ? (scores[index] ?? 0) : 0)
  const partner = isUser(entryIndex) ? entryIndex + 1 : entryIndex - 1
  if (partner in entries && isUser(partner) !== isUser(entryIndex)) return scoreAt(partner)
  if (!isUser(entryIndex)) return 0
  const around =
    (isUser(entryIndex - 1) ? scoreAt(entryIndex - 1) : 0) + (isUser(entryIndex + 1) ? scoreAt(entryIndex + 1) : 0)
  return around / 4
}

function isUser({ segment }: PackerEntry): boolean {
  return segment.kind === 'user'
}

interface Rankings {
  readonly entries: readonly PackerEntry[]
  readonly byValue: readonly PackerEntry[]
  readonly newestFirst: readonly PackerEntry[]
  readonly isToolHeavy: boolean
}

function packFixedShares(
  packer: Packer,
  job: SelectionJob,
  { entries, byValue, newestFirst, isToolHeavy }: Rankings,
): void {
  const { capacity } = packer
  const [newestStep, ...earlierSteps] = newestFirst.filter((entry) => job.steps.has(entry.segment))
  if (newestStep !== undefined) {
    packer.packSegments([newestStep], capacity * NEWEST_STEP_SHARE)
    packer.packSkeletons([newestStep], capacity)
    packer.packSkeletons(earlierSteps, capacity * STEP_SHARE)
  }
  packer.packSegments(
    newestFirst.filter((entry) => entry.analysis.hasStandingInstruction),
    capacity * INSTRUCTIONS_SHARE,
  )
  const userEntries = entries.filter(isUser)
  const userTokens = sumOfTokens(userEntries)
  const share = !isToolHeavy && userTokens <= capacity * USER_SHARE ? USER_SHARE : USER_SHARE_WITH_TOOLS
  packer.packSegments(userTokens <= capacity * share ? userEntries : byValue.filter(isUser), capacity * share)
  packer.packSegments(entries.slice(0, 1), capacity * HEAD_SHARE)
  const [newest] = newestFirst
  if (newest === undefined) return
  packer.packSegments([newest], capacity * NEWEST_SHARE)
  packer.packLastSnippets(newest, job.lastResponseCapacity ?? 0)
}

const MAX_TOPIC_DISTANCE = 10
const MAX_TOPIC_TERMS = 400

/** In a meeting transcript, the terms of a question occur in different turns of the same topic. */
export async function scoreTopics(texts: readonly TermCounts[], query: Query, pause: Pause): Promise<Float64Array> {
  const reduced = await mapWithPauses(texts, pause, (text) => keepQueryTerms(text, query))
  const topics = await mapWithPauses(reduced, pause, (_, index) => sumCounts(topicAround(reduced, index)))
  return scoreTexts(createCorpus(topics), await findMatches(topics, query, pause))
}

/** Limits the total length of a topic, because a long neighbor is a document with its own topic. */
function topicAround(texts: readonly TermCounts[], index: number): readonly TermCounts[] {
  let length = texts[index]?.length ?? 0
  let distance = 0
  for (; distance < MAX_TOPIC_DISTANCE && length <= MAX_TOPIC_TERMS; distance++) {
    length += (texts[index - distance - 1]?.length ?? 0) + (texts[index + distance + 1]?.length ?? 0)
  }
  const reach = length <= MAX_TOPIC_TERMS ? distance : Math.max(0, distance - 1)
  return texts.slice(Math.max(0, index - reach), index + reach + 1)
}

function keepQueryTerms({ terms, counts, ranks, length }: TermCounts, query: Query): TermCounts {
  const isInQuery = (_: number, index: number): boolean => query.has(terms[index] ?? 0)
  return { terms: terms.filter(isInQuery), counts: counts.filter(isInQuery), ranks: ranks.filter(isInQuery), length }
}
