import { GatewayError } from '../core/errors.ts'
import type { Prompt } from '../core/prompt.ts'
import { vendorWorkOf } from '../formats/vendor-work.ts'
import { boundByBytes, tokensBesideText, weighPrompt, windowOf, type PromptWeight } from '../tokens/bound.ts'
import { IMAGE_TOKENS } from '../tokens/weights.ts'
import { formatHeaders } from './ask.ts'
import type { Route } from './route.ts'
import type { Admitted, Counter, Parts, Size } from './stages.ts'

/** A count by a vendor takes no longer than this: without it the bound by bytes is used. */
const COUNT_MS = 10_000
/** Vendors call their counts estimates: what they bill can be a few tokens more. */
const COUNT_SLACK = 16

/**
 * The size of a prompt whose body takes `bytes` bytes. Every value is reckoned when it is first read: a request without
 * limits and tiers needs none.
 */
export function measure(prompt: Prompt, bytes: number, admitted: Admitted, parts: Parts): Size {
  const { meter, limits } = parts
  const weight = once(() => weighPrompt(prompt, bytes))
  const estimate = once(() => meter.estimateOf(prompt))
  const isOpen = once(() => vendorWorkOf(prompt) !== undefined)
  const boundFor = ({ model, provider }: Route): number =>
    boundByBytes(weight(), model, provider.dialect !== prompt.native.dialect)
  const windowFor = ({ model }: Route): number => windowOf(model)
  const local = once(() => meter.countOfBody(prompt, 'o200k', admitted.signal))

  return {
    get estimate() {
      return estimate()
    },
    get bound() {
      return weight().bytes + softTokens(weight())
    },
    reserved: (route) => {
      const window = windowFor(route)
      if (isOpen() && limits.vendorTools !== 'allow') return window
      const bound = boundFor(route)
      // A longer prompt is answered only after a tier has shortened it, and is then billed by our own count.
      return bound <= window ? bound : Math.max(window, Math.min(bound, estimate()))
    },
    reportable: (route) => (isOpen() ? windowFor(route) : Math.min(windowFor(route), boundFor(route))),
    counter: (route) => (isOpen() ? undefined : counterFor(route, { prompt, weight, local, admitted, parts })),
    count: async () => (await local()) + softTokens(weight()),
  }
}

/** For token limits an image counts what it usually takes: they admit honest prompts, and settle with the real amount. */
function softTokens({ frame, images }: PromptWeight): number {
  return frame + images * IMAGE_TOKENS
}

/** Throws where the gateway allows no work of the vendor and the prompt asks for it. */
export function checkVendorWork(prompt: Prompt, { limits }: Pick<Parts, 'limits'>): void {
  const param = limits.vendorTools === 'refuse' ? vendorWorkOf(prompt) : undefined
  if (param === undefined) return
  throw new GatewayError(
    'tools-disabled',
    `${param} makes the vendor read or do more than the request holds, which this gateway does not allow. Send the content itself, and tools that you run yourself.`,
    { param, code: 'vendor_tools_disabled' },
  )
}

interface Countable {
  readonly prompt: Prompt
  readonly weight: () => PromptWeight
  readonly local: () => Promise<number>
  readonly admitted: Admitted
  readonly parts: Parts
}

/** The counter of a route: the model's own vocabulary, else its vendor, else what the operator knows of the model. */
function counterFor(route: Route, countable: Countable): Counter | undefined {
  const { prompt, weight, local, admitted, parts } = countable
  const { model, provider } = route
  const { tokenizer, tokenFactor } = model
  const beside = (): number => tokensBesideText(weight(), model)
  if (tokenizer !== undefined) {
    const count = (): Promise<number> =>
      tokenizer === 'o200k' ? local() : parts.meter.countOfBody(prompt, tokenizer, admitted.signal)
    return { count: async () => (await count()) + beside(), asksUpstream: false }
  }
  const loosened =
    tokenFactor === undefined ? undefined : async () => Math.ceil((await local()) * tokenFactor) + beside()
  if (provider.countTokens !== undefined) {
    const count = async (): Promise<number | undefined> =>
      (await countUpstream(route, countable)) ?? (await loosened?.())
    return { count, asksUpstream: true }
  }
  return loosened === undefined ? undefined : { count: loosened, asksUpstream: false }
}

/** The vendor's own count; undefined where it fails, because a count that is missing must not fail the request. */
async function countUpstream(route: Route, { prompt, admitted, parts }: Countable): Promise<number | undefined> {
  const { runtime, timeouts } = parts
  const { signal, request } = admitted
  const call = {
    prompt,
    model: route.model,
    signal,
    runtime,
    timeouts: { ...timeouts, total: Math.min(timeouts.total, COUNT_MS) },
    headers: formatHeaders(request.headers),
  }
  try {
    const counted = await route.provider.countTokens?.(call)
    return counted === undefined ? undefined : counted + COUNT_SLACK
  } catch (error) {
    if (signal.aborted) throw new GatewayError('cancelled', 'The caller left before the answer.', { cause: error })
    return undefined
  }
}

function once<value>(make: () => value): () => value {
  let made: { readonly value: value } | undefined
  return () => (made ??= { value: make() }).value
}
