import type { Prompt } from '../../core/prompt.ts'
import type { KeptEvidence, Tier, TierJob } from './tier.ts'
import { usesTools } from './uses-tools.ts'

/**
 * - `request`: at most two responses, such as a long document and a question.
 * - `chat`: more answers, and no tools.
 * - `agent`: with tools.
 */
export type ConversationKind = 'request' | 'chat' | 'agent'

/** How a tier chooses the content that it sends unchanged: again for each question, or once for many turns. */
export type SelectionMethod = 'by-question' | 'running'

/** The share of the received prompt that is sent, and the share of the evidence that is then kept. */
type Point = readonly [sent: number, kept: number]

interface Curve {
  /** Mean size of the received prompts in tokens. */
  readonly received: number
  readonly points: readonly Point[]
}

const MAX_RESPONSES_OF_REQUEST = 2

/** Reads only the structure of the prompt, so that it can be called before anything is counted. */
export function kindOf(prompt: Prompt): ConversationKind {
  return usesTools(prompt) ? 'agent' : isRequest(prompt) ? 'request' : 'chat'
}

/** A conversation with at most two responses counts as one long request. */
export function isRequest({ messages }: Prompt): boolean {
  let responses = 0
  for (const { role } of messages) if (role === 'assistant' && ++responses > MAX_RESPONSES_OF_REQUEST) return false
  return true
}

/** Meetings and questions about them (qmsum). Documents are easier (mtragun: 96% in 20%), but look the same. */
const REQUESTS: readonly Curve[] = [
  {
    received: 14_900,
    points: [
      [0.2, 0.499],
      [0.35, 0.672],
      [0.5, 0.783],
      [0.6, 0.832],
      [0.7, 0.881],
      [0.8, 0.919],
      [0.9, 0.95],
    ],
  },
]

/** Chats merged from dialogs of mtragun and conversations of LoCoMo, and questions about earlier turns. */
const CHATS: readonly Curve[] = [
  {
    received: 25_500,
    points: [
      [0.2, 0.722],
      [0.35, 0.853],
      [0.5, 0.872],
      [0.6, 0.88],
      [0.7, 0.913],
      [0.8, 0.947],
      [0.9, 0.981],
    ],
  },
  {
    received: 63_700,
    points: [
      [0.2, 0.789],
      [0.35, 0.839],
      [0.5, 0.866],
      [0.6, 0.866],
      [0.7, 0.927],
      [0.8, 0.954],
      [0.9, 0.981],
    ],
  },
  {
    received: 125_600,
    points: [
      [0.2, 0.813],
      [0.35, 0.913],
      [0.5, 0.913],
      [0.6, 0.913],
      [0.7, 0.931],
      [0.8, 0.961],
      [0.9, 0.981],
    ],
  },
]

/** The same chats, sent turn by turn through tier 4. */
const RUNNING_CHATS: readonly Curve[] = [
  {
    received: 24_500,
    points: [
      [0.35, 0.82],
      [0.5, 0.901],
    ],
  },
]

/** Recorded sessions of coding agents (specstory), and the lines with identifiers that the agent used next. */
const AGENTS: readonly Curve[] = [
  {
    received: 90_800,
    points: [
      [0.35, 0.763],
      [0.5, 0.813],
      [0.6, 0.847],
      [0.7, 0.89],
      [0.8, 0.893],
      [0.9, 0.923],
    ],
  },
]

/**
 * Measured on two halves of the data. The lower one counts, less one point. docs/tiers/evidence.md has the figures, the
 * method and the command.
 */
const CURVES: Readonly<Record<SelectionMethod, Readonly<Record<ConversationKind, readonly Curve[]>>>> = {
  'by-question': { request: REQUESTS, chat: CHATS, agent: AGENTS },
  running: { request: REQUESTS, chat: RUNNING_CHATS, agent: AGENTS },
}

export interface Sending {
  readonly method: SelectionMethod
  readonly kind: ConversationKind
  /** Tokens of the received prompt. */
  readonly received: number
}

/** Returns the share of the evidence that is expected to be kept in `sent` tokens, from 0 to 1. */
export function keptShare(sending: Sending, sent: number): number {
  const share = sent / Math.max(1, sending.received)
  return Math.min(...curvesFor(sending).map(({ points }) => interpolate(points, share)))
}

/** Returns the smallest size in tokens that is expected to keep this share of the evidence. */
export function sizeToKeep(sending: Sending, keep: number): number {
  const shares = curvesFor(sending).map(({ points }) => interpolate(points.map(swap), keep))
  return Math.ceil(sending.received * Math.max(...shares))
}

/** The curves of the next smaller and the next larger prompts. The worse one counts. */
function curvesFor({ method, kind, received }: Sending): readonly Curve[] {
  const curves = CURVES[method][kind]
  const next = curves.findIndex((curve) => curve.received > received)
  return next === -1 ? curves.slice(-1) : curves.slice(Math.max(0, next - 1), next + 1)
}

function swap([sent, kept]: Point): Point {
  return [kept, sent]
}

/** Between two points linear. Without content nothing is kept, and with all of it everything. */
function interpolate(points: readonly Point[], x: number): number {
  let [fromX, fromY]: Point = [0, 0]
  for (const [toX, toY] of [...points, [1, 1] as const]) {
    if (x <= toX) return toX === fromX ? toY : fromY + ((toY - fromY) * (x - fromX)) / (toX - fromX)
    ;[fromX, fromY] = [toX, toY]
  }
  return 1
}

/** Above this share of the received prompt, a tier declines, because the saving is not worth a change of the prompt. */
const MAX_USEFUL_SHARE = 0.8

/**
 * Returns the smallest size of at least `minTokens` that keeps this share, or the largest useful size.
 * `selectedShare` is the part of the prompt that holds selected content. The rest is for summaries.
 */
export function sizeWithin(sending: Sending, keep: number, minTokens: number, selectedShare = 1): KeptEvidence {
  const largest = Math.max(minTokens, Math.round(sending.received * MAX_USEFUL_SHARE))
  const tokens = Math.min(largest, Math.max(minTokens, Math.ceil(sizeToKeep(sending, keep) / selectedShare)))
  return { tokens, share: keptShare(sending, tokens * selectedShare) }
}

export function isBelowFloor(tier: Pick<Tier, 'keeps'>, job: TierJob, keep: number): boolean {
  const kept = tier.keeps?.(job)
  return kept !== undefined && kept.share < keep
}

/** Sizes in tokens at which the published curves change. */
export const CURVE_SIZES: readonly number[] = Object.values(CURVES)
  .flatMap((curves) => Object.values(curves).flat())
  .map(({ received }) => received)

/** Explains the verdict to the operator. */
export function lossOf(kept: KeptEvidence | undefined, keep: number): string {
  const amount = kept === undefined ? '' : `: about ${percentOf(kept.share)} of the evidence in ${kept.tokens} tokens`
  return `keeps less than savings.keep (${percentOf(keep)})${amount}`
}

function percentOf(share: number): string {
  return `${(100 * share).toFixed(1)}%`
}
