/** Checks of requests with vendor-side work, higher prices or further models. Loaded with the first of them. */
import { GatewayError } from '../core/errors.ts'
import { asArray, asObject, asString } from '../core/json.ts'
import {
  add,
  costOf,
  type NanoUsd,
  type Price,
  priceAtTiers,
  scalePrice,
  type ServiceTiers,
  subtract,
  type TierPrice,
  tierPriceOf,
  type Usage,
  ZERO,
} from '../core/money.ts'
import type { Model, Route } from '../core/ports.ts'
import { type Dialect, modelsOfTools, type Part, type Prompt, stemOf } from '../core/prompt.ts'
import { type FieldCosts, surchargeError } from '../formats/field-costs.ts'
import { findVendorWork } from '../formats/prompt-checks.ts'
import { supportsDialect } from '../upstream/attempts.ts'
import type { CheckedFields } from './checked-fields.ts'
import type { Policies } from './policies.ts'

interface Checked {
  readonly prompt: Prompt
  readonly costs: FieldCosts
  readonly routes: readonly Route[]
  readonly policies: Pick<Policies, 'vendorTools' | 'surcharges'>
}

/** Throws for fields that the operator does not allow, and for models and tiers without a price. */
export function checkFields(checked: Checked): CheckedFields {
  const { prompt, costs, routes, policies } = checked
  const { dialect } = prompt.native
  if (policies.vendorTools === 'refuse') refuseVendorWork(findVendorWork(prompt, costs))
  const native = routes.filter(({ provider }) => supportsDialect(provider, dialect))
  const { surcharge, tiers = {} } = costs
  if (policies.surcharges !== 'allow') {
    if (surcharge !== undefined && native.length > 0) throw surcharge()
    refuseAudio(prompt, native.length > 0)
  }
  const otherModels = dialect === 'messages' ? modelsBilledApart(prompt, native) : []
  if (policies.surcharges !== 'allow') {
    checkTiers(tiers, { routes: native, otherModels, policy: policies.surcharges })
    refuseAlternatives(costs, native, tiers)
  }
  return new FieldPrices(otherModels, tiers, dialect)
}

/** The vendor's project settings select the tier. */
const AUTO = 'auto'

function isPriced(price: Price, tier: string): boolean {
  return tier === '' || tierPriceOf(price, tier) !== undefined
}

class FieldPrices implements CheckedFields {
  readonly #otherModels: readonly string[]
  readonly #tiers: ServiceTiers
  readonly #dialect: Dialect

  constructor(otherModels: readonly string[], tiers: ServiceTiers, dialect: Dialect) {
    this.#otherModels = otherModels
    this.#tiers = tiers
    this.#dialect = dialect
  }

  withOtherModels(routes: readonly Route[]): readonly Route[] {
    return routes.flatMap((route) => {
      const models = this.#otherModels.flatMap((id) => route.provider.model(id) ?? [])
      return [route, ...models.map((model) => ({ ...route, model }))]
    })
  }

  dearestPrice({ provider, model: { price } }: Route): Price {
    return supportsDialect(provider, this.#dialect) ? dearestPrice(price, this.#tiers) : price
  }

  priceOf(route: Route, tiers: ServiceTiers = {}): Price {
    const { price } = route.model
    if (!supportsDialect(route.provider, this.#dialect)) return priceAtTiers(price, tiers)
    for (const [field, requested] of Object.entries(this.#tiers)) {
      const reported = tiers[field]
      const isUnknown = reported === undefined ? requested !== AUTO : !isPriced(price, reported)
      if (isUnknown) return this.dearestPrice(route)
    }
    return priceAtTiers(price, tiers)
  }

  costOfOtherModels(route: Route, { models = [], tiers }: Usage): NanoUsd {
    const { provider, model: requested } = route
    const price = this.priceOf(route, tiers)
    return models.reduce((sum, { model: id, usage }) => {
      const model = stemOf(id) === stemOf(requested.id) ? undefined : provider.model(id)
      if (model === undefined) return sum
      const ownCost = costOf(usage, this.priceOf({ provider, model }, tiers))
      return add(sum, subtract(ownCost, costOf(usage, price)))
    }, ZERO)
  }
}

/** Returns the ids of models whose tokens the vendor reports apart, at their own prices. */
function modelsBilledApart(prompt: Prompt, native: readonly Route[]): readonly string[] {
  const { value } = prompt.native
  const fallbacks = asArray(value['fallbacks']).flatMap((fallback) => asString(asObject(fallback)?.['model']) ?? [])
  const advisers = modelsOfTools(prompt)
  for (const { provider } of native) {
    for (const id of fallbacks) if (provider.model(id) === undefined) throw unpricedError(id, 'fallbacks')
    for (const id of advisers) if (provider.model(id) === undefined) throw unpricedError(id, 'tools')
  }
  return [...fallbacks, ...advisers]
}

function refuseVendorWork(param: string | undefined): void {
  if (param === undefined) return
  throw new GatewayError(
    'tools-disabled',
    `${param} makes the vendor read content or run tools outside of the request, which this gateway does not allow. Send the content itself, and run tools yourself.`,
    { param, code: 'vendor_tools_disabled' },
  )
}

/** A part that only the format of the caller has is not sent to other vendors. */
function refuseAudio({ messages }: Prompt, isNative: boolean): void {
  const index = messages.findIndex(({ parts }) => parts.some((part) => isAudio(part, isNative)))
  if (index === -1) return
  const param = `messages[${index}]`
  const message = `${param} contains audio, which vendors bill above the price of text. Send its transcript, or ask the operator to set surcharges.`
  throw new GatewayError('invalid-request', message, { param })
}

function isAudio(part: Part, isNative: boolean): boolean {
  if (part.type === 'tool-result') return part.content.some((inner) => isAudio(inner, isNative))
  if (part.type === 'opaque') return isNative && part.native.value['type'] === 'input_audio'
  return part.type === 'document' && part.source.type === 'base64' && /^audio\//i.test(part.source.mediaType)
}

/** Values for which no vendor charges more than the list price, or which leave the choice to the operator's settings. */
const UNCHARGED_TIERS: ReadonlySet<string> = new Set([AUTO, 'flex'])

interface TierCheck {
  readonly routes: readonly Route[]
  readonly otherModels: readonly string[]
  readonly policy: Policies['surcharges']
}

/** Any of the models may answer, so each must have a price for each tier. */
function checkTiers(tiers: ServiceTiers, { routes, otherModels, policy }: TierCheck): void {
  for (const { provider, model } of routes) {
    for (const one of [model, ...otherModels.flatMap((id) => provider.model(id) ?? [])])
      checkTiersOf(one, tiers, policy)
  }
}

function checkTiersOf({ id, price }: Model, tiers: ServiceTiers, policy: Policies['surcharges']): void {
  let withOwnPrices = 0
  for (const [param, value] of Object.entries(tiers)) {
    if (UNCHARGED_TIERS.has(value)) continue
    const tier = tierPriceOf(price, value)
    if (policy === 'refuse') throw surchargeError(param)
    // The prices of two tiers cannot be combined, unless one of them is a factor.
    if (typeof tier === 'object') withOwnPrices++
    if (tier !== undefined && withOwnPrices < 2) continue
    const message = `${param}: the gateway has no price of ${show(id)} for the value "${value.slice(0, MAX_SHOWN_LENGTH)}". Remove the field, or ask the operator to set price.tiers or surcharges.`
    throw new GatewayError('invalid-request', message, { param })
  }
}

function dearestPrice(price: Price, tiers: ServiceTiers): Price {
  let rates: TierPrice = price
  let factor = 1
  for (const value of Object.values(tiers)) {
    const tier = tierPriceOf(price, value === AUTO ? 'priority' : value)
    if (typeof tier === 'number') factor *= Math.max(1, tier)
    else if (tier !== undefined) rates = higherPrice(rates, tier)
  }
  return scalePrice(rates, factor)
}

function higherPrice(one: TierPrice, other: TierPrice): TierPrice {
  const higher = higherRates(one, other)
  const { long = other.long } = one
  if (long === undefined) return higher
  const { long: otherLong = long } = other
  const aboveTokens = Math.min(long.aboveTokens, otherLong.aboveTokens)
  // Between the two thresholds, one of the prices is still the short one.
  return { ...higher, long: { ...higherRates(higher, higherRates(long, otherLong)), aboveTokens } }
}

function higherRates(one: TierPrice, other: TierPrice): TierPrice {
  const others = ratesOf(other)
  const [input = 0, output = 0, cacheRead = 0, cacheWrite = 0, cacheWrite1h = 0] = ratesOf(one).map((rate, index) =>
    Math.max(rate, others[index] ?? 0),
  )
  return { input, output, cacheRead, cacheWrite, cacheWrite1h }
}

function refuseAlternatives({ alternatives }: FieldCosts, routes: readonly Route[], tiers: ServiceTiers): void {
  if (alternatives === undefined) return
  const { param, models } = alternatives
  for (const id of models) for (const route of routes) checkAlternative(id, param, route, tiers)
}

function checkAlternative(id: string, param: string, { provider, model }: Route, tiers: ServiceTiers): void {
  const alternative = findModel(provider.model, id)
  if (alternative === undefined) throw unpricedError(id, param)
  checkTiersOf(alternative, tiers, 'bill')
  if (isAtMost(dearestPrice(alternative.price, tiers), dearestPrice(model.price, tiers))) return
  const message = `${param} names ${show(id)}, which costs more than the requested model. Request that model, or remove it.`
  throw new GatewayError('invalid-request', message, { param })
}

/** Routers name models with the vendor before a slash, and their variants after a colon. */
function findModel(model: (id: string) => Model | undefined, id: string): Model | undefined {
  return model(id) ?? model(id.slice(id.indexOf('/') + 1))
}

function isAtMost({ long, ...price }: TierPrice, limit: TierPrice): boolean {
  const limits = ratesOf(limit)
  return [price, long ?? price].every((one) => ratesOf(one).every((rate, index) => rate <= (limits[index] ?? 0)))
}

function ratesOf({
  input,
  output,
  cacheRead = input,
  cacheWrite = input,
  cacheWrite1h = cacheWrite,
}: TierPrice): readonly number[] {
  return [input, output, cacheRead, cacheWrite, cacheWrite1h]
}

function unpricedError(id: string, param: string): GatewayError {
  const message = `${param} names ${show(id)}, for which the gateway has no price. Remove it, or choose a model that GET /v1/models lists.`
  return new GatewayError('invalid-model', message, { param })
}

const MAX_SHOWN_LENGTH = 100

function show(id: string): string {
  return `the model ${id.slice(0, MAX_SHOWN_LENGTH)}`
}
