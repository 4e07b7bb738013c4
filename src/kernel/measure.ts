import type { MaybePromise } from '../core/async.ts'
import type { CacheWrites } from '../core/money.ts'
import type { HttpRequest } from '../core/http.ts'
import type { Model, Provider, Route, Timeouts, Vocabulary } from '../core/ports.ts'
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
import type { Authenticated, ResolvedModel, Size, TokenCounter } from './exchange.ts'
import type { Services } from './services.ts'
import { canceledError } from './settle.ts'

/** A body of at most this size, in bytes, contains no string that needs a digest. See core/cache.ts. */
const MAX_SMALL_BODY_BYTES = 256 * 1024
const COUNT_TIMEOUT_MS = 10_000
/** Estimating this number of bytes takes less than a millisecond. */
const MAX_SYNCHRONOUS_BYTES = 65_536
/** A vendor's usage can exceed the result of its token-count endpoint by a few tokens. */
const COUNT_SLACK_TOKENS = 16

interface MeasuredPrompt {
  readonly prompt: Prompt
  /** Upper bound on the size of the serialized body. */
  readonly bytes: number
  /** @default no costs, as for embeddings */
  readonly costs?: FieldCosts
}

export class PromptSize implements Size {
  otherModels: readonly string[] | undefined = undefined
  readonly #prompt: Prompt
  readonly #bytes: number
  readonly #exchange: Authenticated
  readonly #services: Services
  #weight: PromptWeight | undefined
  #estimate: number | undefined
  #prepared: Promise<void> | undefined
  #hasVendorWork: boolean | undefined
  #localCount: Promise<number> | undefined
  readonly #costs: FieldCosts

  constructor({ prompt, bytes, costs = NO_FIELD_COSTS }: MeasuredPrompt, exchange: Authenticated, services: Services) {
    this.#prompt = prompt
    this.#bytes = bytes
    this.#exchange = exchange
    this.#services = services
    this.#costs = costs
  }

  get estimate(): number {
    return (this.#estimate ??= this.#services.meter.estimatePrompt(this.#prompt))
  }

  prepare(): MaybePromise<void> {
    if (this.#estimate !== undefined || this.#promptWeight.bytes <= MAX_SYNCHRONOUS_BYTES) return undefined
    // After a failure, `estimate` counts again. A rejection would be unhandled while the caller awaits something else.
    return (this.#prepared ??= this.#services.meter.prepare(this.#prompt).catch(() => {}))
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

  billedCacheWrites({ provider, model }: Route): CacheWrites | undefined {
    if (this.#services.billsListPrice) return undefined
    const { input, cacheRead = input, cacheWrite = input, cacheWrite1h = cacheWrite } = model.price
    if (cacheRead <= input && cacheWrite <= input && cacheWrite1h <= input) return 'none'
    // In the messages format, only marked prefixes are cached. Other vendors cache each prompt.
    return provider.dialect === 'messages' ? this.#promptWeight.cacheWrites : '1h'
  }

  maxReportableTokens(route: Route): number {
    const { provider, model } = route
    if (!this.#asksForVendorWork) return Math.min(upstreamWindowOf(model), this.#boundFor(route))
    const others = (this.otherModels ?? []).flatMap((id) => provider.model(id) ?? [])
    return Math.max(...[model, ...others].map(upstreamWindowOf)) * this.#costs.promptReads
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
        const counted = await countByVendor(this.#prompt, route, this.#exchange, this.#services)
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
  checkFields({ routes }: ResolvedModel): Promise<void> | undefined {
    const { surcharge } = this.#costs
    if (!this.#asksForVendorWork && surcharge === undefined && this.#promptWeight.document !== true) return undefined
    const checked = { prompt: this.#prompt, costs: this.#costs, routes, policies: this.#services.policies }
    return import('./check-fields.ts').then(({ checkFields }) => void (this.otherModels = checkFields(checked)))
  }

  get #promptWeight(): PromptWeight {
    return (this.#weight ??= weighPrompt(this.#prompt, this.#bytes))
  }

  #countLocally(tokenizer: Vocabulary): Promise<number> {
    const { meter } = this.#services
    const count = (): Promise<number> => meter.countBody(this.#prompt, tokenizer, this.#exchange.cancellation.signal)
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
  { cancellation, request }: Authenticated,
  { runtime, timeouts }: Services,
): Promise<number | undefined> {
  const { signal } = cancellation
  const totalMs = Math.min(timeouts.totalMs, COUNT_TIMEOUT_MS)
  const headers = headersToForward(request)
  const limited: Timeouts = { ...timeouts, totalMs }
  try {
    return await provider.countTokens?.({ prompt, model, signal, cancellation, runtime, timeouts: limited, headers })
  } catch (error) {
    if (cancellation.isCanceled) throw canceledError(error)
    return undefined
  }
}

const VERSION_HEADER = 'anthropic-version'
const FORMAT_HEADERS = [VERSION_HEADER, 'anthropic-beta'] as const

export function headersToForward(request: Pick<HttpRequest, 'header'>): Readonly<Record<string, string>> {
  let forwarded: Record<string, string> | undefined
  for (const name of FORMAT_HEADERS) {
    const value = request.header(name)
    if (value !== undefined) (forwarded ??= {})[name] = value
  }
  return forwarded ?? NO_HEADERS
}

/** Returns the client's headers that change the response of this provider, or an empty string if they are the default. */
export function varyHeadersOf(
  request: Pick<HttpRequest, 'header'>,
  { varyHeaders }: Pick<Provider, 'varyHeaders'>,
): string {
  let text = ''
  for (const name of FORMAT_HEADERS) {
    if (varyHeaders !== undefined && !(name in varyHeaders)) continue
    const value = request.header(name)
    if (value !== undefined && value !== varyHeaders?.[name]) text += `${name}: ${value}\n`
  }
  return text
}

const NO_HEADERS: Readonly<Record<string, string>> = {}

/** The first version of the Anthropic API that rejects sampling parameters. */
const VERSION_WITHOUT_SAMPLING = '2026-10-21'

/** True if the version that the provider sends for this request rejects sampling parameters. */
export function rejectsSampling(
  { dialect, varyHeaders }: Pick<Provider, 'dialect' | 'varyHeaders'>,
  request: Pick<HttpRequest, 'header'>,
): boolean {
  if (dialect !== 'messages') return false
  const isForwarded = varyHeaders === undefined || VERSION_HEADER in varyHeaders
  const version = isForwarded ? (request.header(VERSION_HEADER) ?? varyHeaders?.[VERSION_HEADER]) : undefined
  return version !== undefined && version >= VERSION_WITHOUT_SAMPLING
}
