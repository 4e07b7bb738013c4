import { type NanoUsd, toDollars, ZERO } from '../../core/money.ts'
import type { Part } from '../../core/prompt.ts'
import type { EvidenceLoss } from './evidence.ts'
import { createRecallMeter } from './shadow-recall.ts'
import type { TierJob, TierNumber, TierVerdict, Waterfall, WaterfallResult } from './tier.ts'

export interface ShadowRecord {
  readonly strategy: string
  readonly originalTokens: number
  readonly optimizedTokens: number
  readonly spent: NanoUsd
  readonly tier: TierNumber
  /** Undefined without a complete response, or if the work was dropped. */
  readonly evidence: EvidenceLoss | undefined
  /** True if too much work was waiting, or the prompt is too long. */
  readonly isDropped: boolean
}

/** The fields of the log record of a trial. */
export type ShadowFields = Readonly<Record<string, string | number>>

export interface ShadowObserver {
  readonly onShadow: (record: ShadowRecord) => void
  readonly log: {
    info(event: string, fields: ShadowFields): void
    failure(event: string, cause: unknown): void
  }
}

const ignore = (): void => {}
export const NO_OBSERVER: ShadowObserver = { onShadow: ignore, log: { info: ignore, failure: ignore } }

interface ShadowFunctions extends Pick<Waterfall, 'passUnchanged'> {
  (job: TierJob): Promise<WaterfallResult>
}

interface ShadowOptions {
  readonly waterfall: Pick<Waterfall, 'passUnchanged'> & ((job: TierJob) => Promise<WaterfallResult>)
  /** Share of requests that are tried, from 0 to 1. */
  readonly share: number
  readonly random: () => number
  readonly yieldToEventLoop: () => Promise<void>
  readonly observer: ShadowObserver
}

/** Sends prompts unchanged, and tries the tiers on a share of them. */
export function createShadow({ waterfall, share, random, yieldToEventLoop, observer }: ShadowOptions): ShadowFunctions {
  const { log } = observer
  const reportUnchanged = createUnchangedReport(log)
  const recallMeter = createRecallMeter(yieldToEventLoop)
  const observe = async (
    job: TierJob,
    trial: Promise<WaterfallResult>,
    responded: Promise<readonly Part[] | undefined>,
  ): Promise<void> => {
    const { rewrite, tokens, spent, verdicts } = await trial
    if (rewrite === undefined) return reportUnchanged(verdicts)
    const { strategy, tier, tokens: optimizedTokens, prompt: sent } = rewrite
    const response = await responded
    const evidence =
      response === undefined ? undefined : await recallMeter.measure({ received: job.prompt, sent, response })
    const isDropped = response !== undefined && evidence === undefined
    const record = { strategy, tier, originalTokens: tokens, optimizedTokens, spent, evidence, isDropped }
    observer.onShadow(record)
    log.info('shadow', fieldsOf(record, job))
  }
  const run = async (job: TierJob): Promise<WaterfallResult> => {
    // Requests without a trial are also observed, because later trials need the state of the upstream's cache.
    const shadow = random() < share ? 'tried' : 'not-tried'
    const trial = waterfall({ ...job, shadow })
    let reportResponse: WaterfallResult['reportResponse']
    const responded = new Promise<readonly Part[] | undefined>((resolve) => (reportResponse = resolve))
    observe(job, trial, responded).catch((cause: unknown) =>
      log.failure('the shadow run of a savings tier failed', cause),
    )
    const reportSent: WaterfallResult['reportSent'] = async (report) => {
      // `observe` reports a failed trial.
      const result = await trial.catch(() => undefined)
      await result?.reportSent?.(report)
    }
    const unchanged = { tokens: job.tokens, spent: ZERO, verdicts: [] }
    return { ...unchanged, reportSent, ...(reportResponse !== undefined && { reportResponse }) }
  }
  const passUnchanged: Waterfall['passUnchanged'] = async (request, maxTokens) => {
    const passed = await waterfall.passUnchanged(request, maxTokens)
    if (passed !== undefined && share > 0) reportUnchanged(passed.verdicts)
    return passed
  }
  return Object.assign(run, { passUnchanged })
}

const MAX_REPORTED_REASONS = 16

/**
 * Reports the first request that no tier would shorten, once for each reason. Without it, an operator would wait for trials
 * that never shorten a prompt.
 */
function createUnchangedReport(log: ShadowObserver['log']): (verdicts: readonly TierVerdict[]) => void {
  const reported = new Set<string>()
  return (verdicts) => {
    const isBelowFloor = ({ outcome }: TierVerdict): boolean => outcome === 'below-floor'
    const verdict = verdicts.find(isBelowFloor) ?? verdicts.find(({ outcome }) => outcome !== 'not-wanted')
    if (verdict === undefined) return
    const { tier, outcome, reason } = verdict
    const name = isBelowFloor(verdict) ? outcome : `${outcome} ${reason}`
    if (reported.has(name) || reported.size >= MAX_REPORTED_REASONS) return
    reported.add(name)
    const advice = isBelowFloor(verdict) && { advice: LOWER_FLOOR }
    log.info('shadow trials leave prompts unchanged', { tier, outcome, reason, ...advice })
  }
}

const LOWER_FLOOR = 'set savings.keep to the share that you want to try, such as 0.8'

function fieldsOf(record: ShadowRecord, job: TierJob): ShadowFields {
  return {
    virtual_key_id: job.owner,
    model: job.modelName,
    strategy: record.strategy,
    tier: record.tier,
    original_tokens: record.originalTokens,
    optimized_tokens: record.optimizedTokens,
    small_models_usd: toDollars(record.spent),
    ...(record.evidence !== undefined && {
      evidence_facts: record.evidence.facts,
      evidence_lost: record.evidence.lost,
    }),
  }
}
