/** How large a prompt is: what limits and budgets reserve for it, and the most that may be billed for it. */
import { checkPayer } from '../upstream/attempts.ts'
import type { Caller } from '../governance/caller.ts'
import type { Cancellation, MaybePromise } from '../core/async.ts'
import type { HttpRequest } from '../core/http.ts'
import type { CacheWrites } from '../core/money.ts'
import type { Meter, Model, Route, Runtime, Timeouts, Vocabulary } from '../core/ports.ts'
import type { Prompt } from '../core/prompt.ts'
import type { FieldCosts } from '../formats/field-costs.ts'
import { findVendorWork, NO_FIELD_COSTS } from '../formats/prompt-checks.ts'
import {
  boundByBytes,
  type PromptWeight,
  tokensOutsideText,
  upstreamWindowOf,
  weighPrompt,
} from '../tokens/estimate.ts'
import { IMAGE_TOKENS } from '../tokens/meter.ts'
import { supportsDialect } from '../upstream/attempts.ts'
import type { CheckedFields } from './checked-fields.ts'
import { canceledError } from './failures.ts'
import { headersToForward } from './version-headers.ts'
import type { Policies } from './policies.ts'

/** In tokens. */
export interface Size {
  /** Blocks the event loop for a long prompt, unless `prepareEstimate` has computed it. */
  readonly estimate: number
  /** Yields to the event loop while counting. Never rejects. */
  prepareEstimate(): MaybePromise<void>
  /** True if the body may be so long that its digest must be computed in slices. */
  readonly mayContainLargeMedia: boolean
  /** For token limits: an upper bound for text, and typical numbers for images. */
  readonly bound: number
  needsEstimate(route: Route): boolean
  tokensToReserve(route: Route): number
  /** Returns the cache writes that the caller may be billed. Undefined if bills use the list price of all tokens. */
  billedCacheWrites(route: Route): CacheWrites | undefined
  /** Returns the maximum number of prompt tokens that the route's upstream can plausibly report. */
  maxReportableTokens(route: Route): number
  /** Number of outputs that the vendor generates and bills. */
  readonly outputs: number
  /** Returns the output tokens that the vendor may bill in addition to the output limit. */
  extraOutputTokens(model: Model): number
  /** @default the request has no fields that need a check */
  readonly fields?: CheckedFields | undefined
  counterFor(route: Route): TokenCounter | undefined
  /** Resolves with a local count for token limits. */
  count(): Promise<number>
}

export interface TokenCounter {
  /** Resolves with undefined if the vendor's count fails. */
  readonly count: () => Promise<number | undefined>
  readonly callsUpstream: boolean
}

/** A body of at most this size, in bytes, contains no string that needs a digest. See core/cache.ts. */
const MAX_SMALL_BODY_BYTES = 256 * 1024
const COUNT_TIMEOUT_MS = 10_000
/** Estimating this number of bytes takes less than a millisecond. */
const MAX_SYNCHRONOUS_BYTES = 65_536
/** A vendor's usage can exceed the result of its token-count endpoint by a few tokens. */
const COUNT_SLACK_TOKENS = 16

/** What `PromptSize` uses of the services. */
interface SizeServices {
  readonly meter: Meter
  readonly billsListPrice: boolean
  readonly policies: Policies
  readonly runtime: Runtime
  readonly timeouts: Timeouts
}

interface Received {
  readonly request: Pick<HttpRequest, 'header'>
  readonly cancellation: Cancellation
  readonly caller: Caller
}

interface MeasuredPrompt {
  readonly prompt: Prompt
  /** Upper bound on the size of the serialized body. */
  readonly bytes: number
  /** @default no costs, as for embeddings */
  readonly costs?: FieldCosts
}

/** Counts on demand, because most requests need only the bound by bytes. */
export class PromptSize implements Size {
  fields: CheckedFields | undefined = undefined
  readonly #prompt: Prompt
  readonly #bytes: number
  readonly #received: Received
  readonly #services: SizeServices
  #weight: PromptWeight | undefined
  #estimate: number | undefined
  #prepared: Promise<void> | undefined
  #hasVendorWork: boolean | undefined
  #localCount: Promise<number> | undefined
  readonly #costs: FieldCosts

  constructor({ prompt, bytes, costs = NO_FIELD_COSTS }: MeasuredPrompt, received: Received, services: SizeServices) {
    this.#prompt = prompt
    this.#bytes = bytes
    this.#received = received
    this.#services = services
    this.#costs = costs
  }

  get estimate(): number {
    return (this.#estimate ??= this.#services.meter.estimatePrompt(this.#prompt))
  }

  prepareEstimate(): MaybePromise<void> {
    if (this.#estimate !== undefined || this.#promptWeight.bytes <= MAX_SYNCHRONOUS_BYTES) return undefined
    // After a failure, `estimate` counts again. A rejection would be unhandled while the caller awaits something else.
    return (this.#prepared ??= this.#services.meter.cacheEstimates(this.#prompt).catch(() => {}))
  }

  get mayContainLargeMedia(): boolean {
    return this.#bytes > MAX_SMALL_BODY_BYTES
  }

  get bound(): number {
    return this.#promptWeight.bytes + typicalTokensOutsideText(this.#promptWeight)
  }

  needsEstimate(route: Route): boolean {
    return !this.#reservesWindow && this.#boundFor(route) > upstreamWindowOf(route.model)
  }

  tokensToReserve(route: Route): number {
    const window = upstreamWindowOf(route.model)
    if (this.#reservesWindow) return window * this.#costs.promptReads
    const bound = this.#boundFor(route)
    // If a tier shortens a prompt that exceeds the window, its bill uses local counts of the whole prompt.
    return bound <= window ? bound : Math.max(window, Math.min(bound, this.estimate))
  }

  billedCacheWrites(route: Route): CacheWrites | undefined {
    if (this.#services.billsListPrice) return undefined
    const price = this.fields?.dearestPrice(route) ?? route.model.price
    const { input, cacheRead = input, cacheWrite = input, cacheWrite1h = cacheWrite } = price
    if (cacheRead <= input && cacheWrite <= input && cacheWrite1h <= input) return 'none'
    // In the messages format, only marked prefixes are cached. Other vendors cache each prompt.
    return route.provider.dialect === 'messages' ? this.#promptWeight.cacheWrites : '1h'
  }

  maxReportableTokens(route: Route): number {
    if (!this.#asksForVendorWork) return Math.min(upstreamWindowOf(route.model), this.#boundFor(route))
    const routes = this.fields?.withOtherModels([route]) ?? [route]
    return Math.max(...routes.map(({ model }) => upstreamWindowOf(model))) * this.#costs.promptReads
  }

  counterFor(route: Route): TokenCounter | undefined {
    if (this.#asksForVendorWork) return undefined
    const { tokenizer, tokenFactor } = route.model
    const withTokensOutsideText = (textTokens: number): number =>
      textTokens + tokensOutsideText(this.#promptWeight, route.model)
    if (tokenizer !== undefined) {
      const count = async (): Promise<number> => withTokensOutsideText(await this.#countLocally(tokenizer))
      return { count, callsUpstream: false }
    }
    const countWithFactor =
      tokenFactor === undefined
        ? undefined
        : async () => withTokensOutsideText(Math.ceil((await this.#countLocally('o200k')) * tokenFactor))
    if (route.provider.countTokens !== undefined) {
      const count = async (): Promise<number | undefined> => {
        const counted = await countByVendor(this.#prompt, route, this.#received, this.#services)
        return counted === undefined ? countWithFactor?.() : counted + COUNT_SLACK_TOKENS
      }
      return { count, callsUpstream: true }
    }
    return countWithFactor && { count: countWithFactor, callsUpstream: false }
  }

  async count(): Promise<number> {
    return (await this.#countLocally('o200k')) + typicalTokensOutsideText(this.#promptWeight)
  }

  get outputs(): number {
    return Math.max(this.#prompt.settings.choices ?? 1, this.#costs.outputs)
  }

  extraOutputTokens({ maxOutputTokens }: Model): number {
    const { extraOutputTokens, optionalOutputTokens } = this.#costs
    return extraOutputTokens + Math.min(optionalOutputTokens, maxOutputTokens)
  }

  /** Throws for fields that the operator does not allow. */
  checkFields({ routes }: { readonly routes: readonly Route[] }): Promise<void> | undefined {
    const { surcharge, tiers } = this.#costs
    const changesPrice = surcharge !== undefined || tiers !== undefined
    if (!changesPrice && !this.#asksForVendorWork && this.#promptWeight.document !== true) return undefined
    const checked = { prompt: this.#prompt, costs: this.#costs, routes, policies: this.#services.policies }
    return import('./check-fields.ts').then(({ checkFields }) => void (this.fields = checkFields(checked)))
  }

  get #promptWeight(): PromptWeight {
    return (this.#weight ??= weighPrompt(this.#prompt, this.#bytes))
  }

  #countLocally(tokenizer: Vocabulary): Promise<number> {
    const { meter } = this.#services
    const count = (): Promise<number> => meter.countBody(this.#prompt, tokenizer, this.#received.cancellation.signal)
    return tokenizer === 'o200k' ? (this.#localCount ??= count()) : count()
  }

  /** True if the whole context window must be reserved for content that the vendor may add. */
  get #reservesWindow(): boolean {
    return this.#asksForVendorWork && this.#services.policies.vendorTools !== 'allow'
  }

  get #asksForVendorWork(): boolean {
    return (this.#hasVendorWork ??= findVendorWork(this.#prompt, this.#costs) !== undefined)
  }

  #boundFor({ model, provider }: Route): number {
    return boundByBytes(this.#promptWeight, model, !supportsDialect(provider, this.#prompt.native.dialect))
  }
}

/** For token limits. Settlement replaces this number with the actual number. */
function typicalTokensOutsideText({ overhead, images }: PromptWeight): number {
  return overhead + images * IMAGE_TOKENS
}

/** A failed count must not fail the request. */
export async function countByVendor(
  prompt: Prompt,
  { model, provider }: Route,
  { cancellation, request, caller: from }: Received,
  { runtime, timeouts }: Pick<SizeServices, 'runtime' | 'timeouts'>,
): Promise<number | undefined> {
  const { signal } = cancellation
  const totalMs = Math.min(timeouts.totalMs, COUNT_TIMEOUT_MS)
  const headers = headersToForward(request)
  const limited: Timeouts = { ...timeouts, totalMs }
  try {
    const caller = from.upstream
    checkPayer(provider, caller)
    const call = { prompt, model, signal, cancellation, runtime, timeouts: limited, headers, caller }
    return await provider.countTokens?.(call)
  } catch (error) {
    if (cancellation.isCanceled) throw canceledError(error)
    return undefined
  }
}
