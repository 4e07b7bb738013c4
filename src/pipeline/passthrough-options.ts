import * as z from 'zod/mini'
import type { JsonObject } from '../core/json.ts'

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

function priceFunction<signature extends (...given: never[]) => number>(): z.ZodMiniOptional<z.ZodMiniType<signature>> {
  return z.optional(
    z.custom<signature>((value) => typeof value === 'function', {
      error: 'a function that returns dollars was expected',
    }),
  )
}

const endpoint = z.optional(
  z
    .strictObject({
      provider: z.optional(z.string()),
      price: priceFunction<NonNullable<PassthroughEndpoint['price']>>(),
      finalPrice: priceFunction<NonNullable<PassthroughEndpoint['finalPrice']>>(),
      free: z.optional(z.boolean()),
    })
    .check(
      z.refine(({ price, finalPrice, free }) => (price === undefined ? finalPrice === undefined : free !== true), {
        error: 'either price, with or without finalPrice, or free was expected',
      }),
    ),
)

export const passthroughSchema: z.ZodMiniType = z.strictObject({
  images: endpoint,
  audio: endpoint,
  moderations: endpoint,
  completions: endpoint,
  files: endpoint,
  rerank: endpoint,
})
