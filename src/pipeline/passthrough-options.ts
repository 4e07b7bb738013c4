import type { JsonObject } from '../core/json.ts'
import { aFunction, expects, oneOf, optionsOf, type OptionCheck } from '../core/option-checks.ts'

/** A request whose price is asked for. */
export interface PassthroughRequest {
  /** Such as `/v1/images/generations`. */
  readonly path: string
  /** The name of the provider that gets the request. */
  readonly provider: string
  /** The model as the vendor gets it. Absent where the request names none. */
  readonly model?: string
  /** The JSON body, or the text fields of a form. */
  readonly fields: JsonObject
  /** Size of the body in bytes. */
  readonly bytes: number
}

/** How one endpoint is served. */
export interface PassthroughEndpoint {
  /** The only provider that the endpoint reaches. @default the provider of the request's model */
  readonly provider?: string
  /**
   * Returns the maximum that the vendor charges for a request, in dollars. It is reserved before the request leaves and
   * billed when it has been answered, times the margin.
   */
  readonly price?: (request: PassthroughRequest) => number
  /** Returns what the vendor charged, in dollars, by its JSON answer. More than `price` is not billed. @default `price` */
  readonly finalPrice?: (request: PassthroughRequest, answer: JsonObject) => number
  /** True: the vendor charges nothing. Without it and without `price`, keys with a budget are refused. @default false */
  readonly free?: boolean
}

export type PassthroughName = 'images' | 'audio' | 'moderations' | 'completions' | 'files' | 'rerank'

/** The endpoints that are open. All others answer 404. */
export type PassthroughOptions = { readonly [name in PassthroughName]?: PassthroughEndpoint }

const endpointFields = optionsOf({
  provider: expects('the name of a provider', (value) => typeof value === 'string'),
  price: aFunction('price(request) that returns dollars'),
  finalPrice: aFunction('finalPrice(request, answer) that returns dollars'),
  free: oneOf(true, false),
})

const checkEndpoint: OptionCheck = (value, path) => {
  const problem = endpointFields(value, path)
  if (problem !== undefined) return problem
  const { price, finalPrice, free } = value as PassthroughEndpoint
  const isPriced = price === undefined ? finalPrice === undefined : free !== true
  return isPriced ? undefined : { path, text: 'expected either price, with or without finalPrice, or free.' }
}

/** The check of `passthrough` in the gateway's options. */
export const checkPassthrough: OptionCheck = optionsOf({
  images: checkEndpoint,
  audio: checkEndpoint,
  moderations: checkEndpoint,
  completions: checkEndpoint,
  files: checkEndpoint,
  rerank: checkEndpoint,
} satisfies Record<PassthroughName, OptionCheck>)
