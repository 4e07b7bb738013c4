import type { MaybePromise } from '../core/async.ts'
import { GatewayError } from '../core/errors.ts'
import type { Route } from '../core/ports.ts'
import type { Prompt } from '../core/prompt.ts'
import { findSurchargedField, findVendorWork } from '../formats/prompt-size.ts'
import { boundByBytes, tokensOutsideText, weighPrompt, contextWindowOf, type PromptWeight } from '../tokens/bound.ts'
import { IMAGE_TOKENS } from '../tokens/meter.ts'
import { supportsDialect } from '../upstream/attempts.ts'
import type { Authenticated, TokenCounter, ResolvedModel, Size } from './exchange.ts'
import { canceledError } from './settle.ts'
import { formatHeaders } from './call-upstream.ts'
import type { Services } from './services.ts'

/** A body of at most this size, in bytes, contains no string that needs a digest. See core/digest.ts. */
const MAX_SMALL_BODY_BYTES = 256 * 1024
/** Timeout for a count by the vendor, in milliseconds. After that, `tokenFactor` or else the upper bound is used. */
const COUNT_TIMEOUT_MS = 10_000
/**
 * Maximum size of a prompt that is estimated synchronously, in bytes. Estimating such a prompt takes less than a
 * millisecond.
 */
const MAX_SYNCHRONOUS_BYTES = 65_536
/** Number of tokens added to the vendor's count, because the billed count can be a few tokens higher. */
const COUNT_SLACK_TOKENS = 16

interface PromptContext {
  readonly exchange: Authenticated
  readonly services: Services
}

export class PromptSize implements Size {
  readonly #prompt: Prompt
  readonly #bytes: number
  readonly #context: PromptContext
  #weight: PromptWeight | undefined
  #estimate: number | undefined
  #prepared: Promise<void> | undefined
  #hasVendorWork: boolean | undefined
  #localCount: Promise<number> | undefined

  constructor(prompt: Prompt, bytes: number, context: PromptContext) {
    this.#prompt = prompt
    this.#bytes = bytes
    this.#context = context
  }

  get estimate(): number {
    return (this.#estimate ??= this.#context.services.meter.estimatePrompt(this.#prompt))
  }

  prepare(): MaybePromise<void> {
    if (this.#estimate !== undefined || this.weight.bytes <= MAX_SYNCHRONOUS_BYTES) return undefined
    return (this.#prepared ??= this.#context.services.meter.prepare(this.#prompt))
  }

  get mayContainLargeMedia(): boolean {
    return this.#bytes > MAX_SMALL_BODY_BYTES
  }

  get bound(): number {
    return this.weight.bytes + typicalTokensOutsideText(this.weight)
  }

  needsEstimate(route: Route): boolean {
    return !this.#isOpenEnded && this.#boundFor(route) > contextWindowOf(route.model)
  }

  tokensToReserve(route: Route): number {
    const window = contextWindowOf(route.model)
    if (this.#isOpenEnded) return window
    const bound = this.#boundFor(route)
    // A prompt that exceeds the window can be answered only if a tier shortens it, and is billed by the local count.
    return bound <= window ? bound : Math.max(window, Math.min(bound, this.estimate))
  }

  maxReportableTokens(route: Route): number {
    const window = contextWindowOf(route.model)
    return this.#asksForVendorWork ? window : Math.min(window, this.#boundFor(route))
  }

  counterFor(route: Route): TokenCounter | undefined {
    return this.#asksForVendorWork ? undefined : counterFor(route, this)
  }

  async count(): Promise<number> {
    return (await this.localCount()) + typicalTokensOutsideText(this.weight)
  }

  get prompt(): Prompt {
    return this.#prompt
  }

  get context(): PromptContext {
    return this.#context
  }

  get weight(): PromptWeight {
    return (this.#weight ??= weighPrompt(this.#prompt, this.#bytes))
  }

  localCount(): Promise<number> {
    return (this.#localCount ??= this.countWith('o200k'))
  }

  countWith(tokenizer: 'o200k' | 'cl100k'): Promise<number> {
    const { exchange, services } = this.#context
    return services.meter.countBody(this.#prompt, tokenizer, exchange.cancellation.signal)
  }

  /** True if the vendor may add content that only the context window limits. */
  get #isOpenEnded(): boolean {
    return this.#asksForVendorWork && this.#context.services.limits.vendorTools !== 'allow'
  }

  get #asksForVendorWork(): boolean {
    return (this.#hasVendorWork ??= findVendorWork(this.#prompt) !== undefined)
  }

  #boundFor({ model, provider }: Route): number {
    return boundByBytes(this.weight, model, !supportsDialect(provider, this.#prompt.native.dialect))
  }
}

/**
 * Returns the typical number of tokens outside the text, for token limits: images, and the overhead of messages and
 * tools. Settlement replaces it with the actual number.
 */
function typicalTokensOutsideText({ overhead, images }: PromptWeight): number {
  return overhead + images * IMAGE_TOKENS
}

/** Throws if the prompt requests vendor-side work that the gateway does not allow. */
export function checkVendorWork(prompt: Prompt, { limits }: Pick<Services, 'limits'>): void {
  const param = limits.vendorTools === 'refuse' ? findVendorWork(prompt) : undefined
  if (param === undefined) return
  throw new GatewayError(
    'tools-disabled',
    `${param} makes the vendor read content or run tools outside of the request, which this gateway does not allow. Send the content itself, and run tools yourself.`,
    { param, code: 'vendor_tools_disabled' },
  )
}

/** Throws if a field makes the vendor charge more than the list price that the gateway bills. */
export function checkSurcharge(prompt: Prompt, { routes }: ResolvedModel, { limits }: Pick<Services, 'limits'>): void {
  const param = limits.surcharges === 'refuse' ? findSurchargedField(prompt) : undefined
  if (param === undefined || !routes.some(({ provider }) => supportsDialect(provider, prompt.native.dialect))) return
  throw new GatewayError('invalid-request', `${param} selects a price above the list price. Remove it.`, { param })
}

/**
 * Returns a counter that uses the model's tokenizer. If the tokenizer is unknown, the counter uses the vendor's count,
 * or else the operator's `tokenFactor`.
 */
function counterFor(route: Route, size: PromptSize): TokenCounter | undefined {
  const { model, provider } = route
  const { tokenizer, tokenFactor } = model
  const countOutsideText = (): number => tokensOutsideText(size.weight, model)
  if (tokenizer !== undefined) {
    const count = (): Promise<number> => (tokenizer === 'o200k' ? size.localCount() : size.countWith(tokenizer))
    return { count: async () => (await count()) + countOutsideText(), callsUpstream: false }
  }
  const countWithFactor =
    tokenFactor === undefined
      ? undefined
      : async () => Math.ceil((await size.localCount()) * tokenFactor) + countOutsideText()
  if (provider.countTokens !== undefined) {
    const count = async (): Promise<number | undefined> =>
      (await countUpstream(route, size)) ?? (await countWithFactor?.())
    return { count, callsUpstream: true }
  }
  return countWithFactor === undefined ? undefined : { count: countWithFactor, callsUpstream: false }
}

/** Returns undefined if the vendor's count fails, because a failed count must not fail the request. */
async function countUpstream(route: Route, { prompt, context }: PromptSize): Promise<number | undefined> {
  const { exchange, services } = context
  const { runtime, timeouts } = services
  const { cancellation, request } = exchange
  const call = {
    prompt,
    model: route.model,
    signal: cancellation.signal,
    cancellation,
    runtime,
    timeouts: { ...timeouts, total: Math.min(timeouts.total, COUNT_TIMEOUT_MS) },
    headers: formatHeaders(request),
  }
  try {
    const counted = await route.provider.countTokens?.(call)
    return counted === undefined ? undefined : counted + COUNT_SLACK_TOKENS
  } catch (error) {
    if (cancellation.isCanceled) throw canceledError(error)
    return undefined
  }
}
