/**
 * The bill of each ending of a request. Usage that the call cannot have had is cut.
 *
 * | ending                                               | bills                                                | made by             |
 * | ---------------------------------------------------- | ---------------------------------------------------- | ------------------- |
 * | a complete response                                  | prompt and output, as the upstream reports them      | `billFor`           |
 * | the same, if the upstream reports no usage           | the expected prompt, and the output counted here     | `billForIncomplete` |
 * | a stream that fails after its first output           | the prompt, and the output up to then                | `billForIncomplete` |
 * | a stream that is stopped by a plugin or a disconnect | the prompt, and the output up to then                | `billForIncomplete` |
 * | a disconnect before the response has begun           | the last call, if the vendor charges for it;         | `billForDisconnect` |
 * |                                                      | otherwise all small models that were called          |                     |
 * | a failure before any output                          | the small models that a header requested             | `billForFailure`    |
 * | a canceled batch item                                | the same; the item is retried                        | `billForFailure`    |
 * | a rejection before the request was planned           | nothing                                              | settle.ts           |
 * | a response of the cache, or of a plugin              | nothing                                              | the plugin's replay |
 *
 * Closing the gateway counts as a disconnect of all its callers. The operator pays what the vendors charge beyond a bill.
 */
import { type Bill, makeBill, paidByCustomer } from '../billing/bill.ts'
import type { Completion } from '../core/completion.ts'
import type { MaybePromise } from '../core/async.ts'
import {
  add,
  type CacheWrites,
  type NanoUsd,
  NO_USAGE,
  type Price,
  priceAtTiers,
  promptTokens,
  scale,
  type ServiceTiers,
  toNanoUsd,
  type Usage,
  ZERO,
} from '../core/money.ts'
import type { Meter, Route } from '../core/ports.ts'
import { textOfPart } from '../core/prompt.ts'
import type { Responded, Planned, UpstreamPlan } from './exchange.ts'
import type { Size } from './measure.ts'

export const PASSTHROUGH = 'Passthrough (no optimization needed)'

/** `completion` is called only if the usage may be incomplete. */
export interface BilledResponse {
  readonly usage: Usage | undefined
  completion(): Completion
}

export function prepareBill({ plan }: Planned): MaybePromise<void> {
  return plan.kind === 'upstream' && plan.attempts.hasUnreportedPrompt ? plan.counts.prepareCounts?.() : undefined
}

export function billFor(responded: Responded, response: BilledResponse, meter: Meter): Bill {
  const { plan } = responded
  if (plan.kind === 'replay') return forCaller(responded, plan.bill)
  const { usage } = response
  if (usage !== undefined && promptTokens(usage) > 0 && isOutputReported(usage, response)) {
    return billOf(responded, plan, { route: servingRoute(responded), usage, isEstimated: false })
  }
  return billForIncomplete(responded, response, meter)
}

function isOutputReported(usage: Usage, response: BilledResponse): boolean {
  if (usage.outputTokens > 0) return true
  const { parts, unmappedText = '' } = response.completion()
  return parts.length === 0 && unmappedText === ''
}

/** The upstream may have sent more output than it reported, so the greater count is billed. */
export function billForIncomplete(responded: Responded, response: BilledResponse, meter: Meter): Bill {
  const { plan, size, grant } = responded
  if (plan.kind === 'replay') return forCaller(responded, plan.bill)
  const { parts, unmappedText = '' } = response.completion()
  const countedOutput = countUpTo(grant.outputTokens * size.outputs, [...parts.map(textOfPart), unmappedText], meter)
  const route = servingRoute(responded)
  const reported = withPromptTokens(response.usage ?? NO_USAGE, () => expectedPrompt(responded, plan, route))
  const usage = { ...reported, outputTokens: Math.max(reported.outputTokens, countedOutput) }
  return billOf(responded, plan, { route, usage, isEstimated: true })
}

const SLICE_LENGTH = 65_536

/** Counting all of a 30 MB response would block the event loop for 0.7 seconds. */
export function countUpTo(
  limit: number,
  texts: readonly string[],
  { tokenizer }: { readonly tokenizer: Pick<Meter['tokenizer'], 'estimate'> },
): number {
  let count = 0
  for (const text of texts) {
    for (let start = 0; start < text.length && count < limit; start += SLICE_LENGTH) {
      count += tokenizer.estimate(text.slice(start, start + SLICE_LENGTH))
    }
  }
  return Math.min(count, limit)
}

/** Bills only the small models that a header requested. The operator pays for all other calls. */
export function billForFailure(planned: Planned): Bill | undefined {
  const { plan } = planned
  if (plan.kind === 'replay') return undefined
  return billForSmallModels(planned, plan, plan.optimization.requestedCost ?? ZERO)
}

function billForSmallModels(planned: Planned, plan: UpstreamPlan, billedCost: NanoUsd): Bill | undefined {
  const { margin, grant } = planned
  const { spent, rewrite, strategy } = plan.optimization
  const actual = add(
    spent,
    plan.attempts.cost(
      () => plan.counts.sent,
      (called, { tiers }) => priceOf(planned.size, called, tiers),
    ),
  )
  if (actual === 0) return undefined
  const reserved = grant.quote.cost(grant.outputTokens)
  return forCaller(planned, {
    originalTokens: 0,
    optimizedTokens: 0,
    completionTokens: 0,
    theoretical: ZERO,
    actual,
    billed: toNanoUsd(Math.min(scale(billedCost, margin), reserved)),
    margin,
    cache: 'MISS',
    strategy: rewrite?.strategy ?? strategy ?? PASSTHROUGH,
    isEstimated: true,
  })
}

/** Without a billable upstream call, bills all small models, whether or not a header requested them. */
export function billForDisconnect(planned: Planned): Bill | undefined {
  const { plan } = planned
  if (plan.kind === 'replay') return undefined
  const last = plan.attempts.lastIfBillable()
  if (last === undefined) return billForSmallModels(planned, plan, plan.optimization.spent)
  const usage = withPromptTokens(last.usage, () => expectedPrompt(planned, plan, last.route))
  return billOf(planned, plan, { route: last.route, usage, isEstimated: true })
}

/** Zero means that the upstream did not report the tokens of the prompt. */
function withPromptTokens(usage: Usage, expected: () => Usage): Usage {
  if (promptTokens(usage) > 0) return usage
  return { ...expected(), outputTokens: usage.outputTokens, reasoningTokens: usage.reasoningTokens }
}

interface BilledUsage {
  readonly route: Route
  readonly usage: Usage
  readonly isEstimated: boolean
}

/** Without requested tiers, ones without a known price have the list price. */
export function priceOf({ fields }: Pick<Size, 'fields'>, route: Route, tiers: ServiceTiers | undefined): Price {
  return fields === undefined ? priceAtTiers(route.model.price, tiers) : fields.priceOf(route, tiers)
}

export function billOf(planned: Planned, plan: UpstreamPlan, { route, usage, isEstimated }: BilledUsage): Bill {
  const { margin, size, grant } = planned
  const { optimization, counts, attempts } = plan
  const { model } = route
  const writes = size.billedCacheWrites(route)
  const { servedShare = 0, commonPrefixTokens = 0 } = optimization
  const maxOutputTokens = Math.max(model.maxOutputTokens, grant.outputTokens)
  const billable = {
    price: model.price,
    margin,
    strategy: optimization.rewrite?.strategy ?? optimization.strategy ?? PASSTHROUGH,
    localCounts: optimization.rewrite && { ...counts, vendorRatio: optimization.vendorRatio },
    isForced: optimization.isForced,
    usage,
    ceiling: {
      promptTokens: size.maxReportableTokens(route),
      outputTokens: (maxOutputTokens + size.extraOutputTokens(model)) * size.outputs,
    },
    reservedTokens: grant.quote.promptBound?.(model) ?? Infinity,
    isEstimated,
    // The gateway adds markers only to prompts that the vendor would not cache without them.
    vendorCache:
      writes === undefined || (plan.markers?.count ?? 0) > 0
        ? undefined
        : {
            writes,
            servedShare: servedShare > 0 && cachesReceivedPrompt(route, writes) ? servedShare : 0,
            commonPrefixTokens,
          },
    extraCost: add(
      optimization.spent,
      attempts.costOfUnusedCalls(
        () => counts.sent,
        (called, { tiers }) => priceOf(size, called, tiers),
      ),
    ),
  }
  const listed = makeBill(billable)
  const isListPrice = usage.tiers === undefined && size.fields === undefined
  const price = isListPrice ? model.price : priceOf(size, route, usage.tiers)
  const bill = price === model.price ? listed : makeBill({ ...billable, price })
  const { excessUsage } = bill
  const otherCost = usage.models && excessUsage === undefined ? size.fields?.costOfOtherModels(route, usage) : undefined
  const isListed = bill === listed && otherCost === undefined
  const priced = isListed ? bill : reprice(bill, otherCost ?? ZERO, { listed, grant })
  return planned.caller.levels.length === 0 ? priced : forCaller(planned, priced)
}

/** Must be the last step of a bill. */
export function forCaller({ caller }: Pick<Planned, 'caller'>, bill: Bill): Bill {
  const paid = caller.context.payer === 'customer' ? paidByCustomer(bill) : bill
  const degraded = caller.degradation?.text
  return degraded === undefined ? paid : { ...paid, degraded }
}

/** Adds the cost of other models. Models and tiers that were not requested may cost more than the reserved amount. */
function reprice(
  bill: Bill,
  otherCost: NanoUsd,
  { listed, grant }: Pick<Planned, 'grant'> & { readonly listed: Bill },
): Bill {
  const addCost = (cost: NanoUsd): NanoUsd => toNanoUsd(Math.max(0, add(cost, otherCost)))
  const theoretical = addCost(bill.theoretical)
  const limit = Math.max(listed.billed, grant.quote.cost(grant.outputTokens))
  const billed = toNanoUsd(Math.min(scale(theoretical, bill.margin), limit))
  return { ...bill, theoretical, actual: addCost(bill.actual), billed }
}

/** Vendors of the messages format cache only what the caller marks. */
export function cachesReceivedPrompt({ provider }: Route, writes: CacheWrites): boolean {
  return provider.dialect !== 'messages' || writes !== 'none'
}

/** Vendors do not cache shorter prompts. */
const MIN_CACHED_TOKENS = 1024

/** The usage of a prompt without its response, by the gateway's record of what the vendor has cached. */
export function expectedPrompt({ size, grant }: Planned, plan: UpstreamPlan, route: Route): Usage {
  const { counts, optimization, markers } = plan
  // A prompt that was counted exactly for a small budget may be shorter than its estimate.
  const sent = Math.min(counts.sent, grant.quote.promptBound?.(route.model) ?? Infinity)
  const writes = size.billedCacheWrites(route) ?? 'none'
  const isMarkedByGateway = (markers?.count ?? 0) > 0
  const isCached = sent >= MIN_CACHED_TOKENS && (isMarkedByGateway || cachesReceivedPrompt(route, writes))
  const cacheReadTokens = isCached ? Math.min(sent, optimization.expectedCacheRead?.() ?? 0) : 0
  const rest = {
    cacheReadTokens,
    [isCached ? writeField(route, writes, isMarkedByGateway) : 'inputTokens']: sent - cacheReadTokens,
  }
  return { ...NO_USAGE, ...rest }
}

function writeField(
  { provider }: Route,
  writes: CacheWrites,
  isMarkedByGateway: boolean,
): 'inputTokens' | 'cacheWriteTokens' | 'cacheWrite1hTokens' {
  if (writes === 'none') return isMarkedByGateway ? 'cacheWriteTokens' : 'inputTokens'
  // Other vendors may keep a prompt for an hour, but the caller cannot request it.
  return writes === '1h' && provider.dialect === 'messages' ? 'cacheWrite1hTokens' : 'cacheWriteTokens'
}

/** The route that has served the request, or the first one if none has. */
export function servingRoute({ route, resolved }: Planned): Route {
  return route ?? resolved.routes[0]
}
