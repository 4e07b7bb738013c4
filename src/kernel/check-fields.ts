/** Checks of requests with vendor-side work, higher prices or further models. Loaded with the first of them. */
import { GatewayError } from '../core/errors.ts'
import { asArray, asObject, asString } from '../core/json.ts'
import type { Price } from '../core/money.ts'
import type { Model, Route } from '../core/ports.ts'
import { modelsOfTools, type Part, type Prompt } from '../core/prompt.ts'
import type { FieldCosts } from '../formats/field-costs.ts'
import { findVendorWork } from '../formats/prompt-checks.ts'
import { supportsDialect } from '../upstream/attempts.ts'
import type { Policies } from './policies.ts'

interface Checked {
  readonly prompt: Prompt
  readonly costs: FieldCosts
  readonly routes: readonly Route[]
  readonly policies: Pick<Policies, 'vendorTools' | 'surcharges'>
}

/**
 * Throws for fields that the operator does not allow, and for models without a price. Returns the ids of models whose
 * tokens the vendor reports apart, at their own prices.
 */
export function checkFields({ prompt, costs, routes, policies }: Checked): readonly string[] {
  const { dialect, value } = prompt.native
  if (policies.vendorTools === 'refuse') refuseVendorWork(findVendorWork(prompt, costs))
  const native = routes.filter(({ provider }) => supportsDialect(provider, dialect))
  if (policies.surcharges === 'refuse' && native.length > 0) refuseSurcharges(costs, native)
  if (policies.surcharges === 'refuse') refuseAudio(prompt, native.length > 0)
  if (dialect !== 'messages') return []
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

function refuseSurcharges({ surcharge, alternatives }: FieldCosts, routes: readonly Route[]): void {
  if (surcharge !== undefined) throw surcharge()
  if (alternatives === undefined) return
  const { param, models } = alternatives
  for (const id of models) for (const route of routes) checkAlternative(id, param, route)
}

function checkAlternative(id: string, param: string, { provider, model }: Route): void {
  const alternative = findModel(provider.model, id)
  if (alternative === undefined) throw unpricedError(id, param)
  if (isAtMost(alternative.price, model.price)) return
  const message = `${param} names ${show(id)}, which costs more than the requested model. Request that model, or remove it.`
  throw new GatewayError('invalid-request', message, { param })
}

/** Routers name models with the vendor before a slash, and their variants after a colon. */
function findModel(model: (id: string) => Model | undefined, id: string): Model | undefined {
  return model(id) ?? model(id.slice(id.indexOf('/') + 1))
}

function isAtMost({ long, ...price }: Price, limit: Price): boolean {
  const limits = ratesOf(limit)
  return [price, long ?? price].every((one) => ratesOf(one).every((rate, index) => rate <= (limits[index] ?? 0)))
}

function ratesOf({
  input,
  output,
  cacheRead = input,
  cacheWrite = input,
  cacheWrite1h = cacheWrite,
}: Price): readonly number[] {
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
