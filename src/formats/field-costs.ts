/**
 * Finds what the unusual fields of a body can cost: fields that are not in the table of ordinary fields of the format,
 * in any spelling that a lenient vendor accepts, and at any depth.
 */
import { GatewayError } from '../core/errors.ts'
import { isJsonObject, type Json, type JsonObject, normalizeName } from '../core/json.ts'
import type { ServiceTiers } from '../core/money.ts'
import { COMPACTION_TRIGGER, type Dialect, LONG_CONTEXT_BETA } from '../core/prompt.ts'
import { nameSet } from './parse-body.ts'
import { isUnset } from './read-fields.ts'
import { tierNameOf } from './usage.ts'

export interface FieldCosts {
  /** Number of outputs that the vendor generates for one request and bills, whether or not it returns them. */
  readonly outputs: number
  /** Output tokens that the vendor bills in addition to the output limit. */
  readonly extraOutputTokens: number
  /** As `extraOutputTokens`, but at most `maxOutputTokens` of the model. */
  readonly optionalOutputTokens: number
  /** Number of times that the vendor reads the prompt. */
  readonly promptReads: number
  /** Path of a field that can make the vendor read content or run tools outside of the request. */
  readonly vendorWork?: string
  /** The service tiers that fields select. Absent if no field does. */
  readonly tiers?: ServiceTiers
  /** Creates the error for a field that can select a price above the list price. Absent if there is none. */
  readonly surcharge?: () => GatewayError
  /** Field with models that may answer instead of the requested one, and whose tokens are not reported apart. */
  readonly alternatives?: { readonly param: string; readonly models: readonly string[] }
}

type MutableCosts = { -readonly [Name in keyof FieldCosts]: FieldCosts[Name] } & { tiers?: Record<string, string> }

interface Scan {
  readonly costs: MutableCosts
  readonly body: JsonObject
  /** The scan ends after this number of values. */
  remaining: number
}

/** A field with more values counts as vendor-side work. */
const MAX_SCANNED_VALUES = 10_000
const MAX_PARAM_LENGTH = 100
const MAX_MODELS = 100
/** Keeps costs within the range of exact integers. */
const MAX_COUNT = 2 ** 31

/** Further fields that cost nothing beyond their text, as vendors spell them. */
const ORDINARY_FIELDS = nameSet(
  'safety_identifier store seed max_tool_calls truncation include background presence_penalty frequency_penalty logprobs top_logprobs logit_bias functions function_call verbosity min_p top_a typical_p repetition_penalty prompt_cache_retention prompt_cache_options random_seed safe_prompt ' +
    'guided_json guided_regex guided_choice guided_grammar structured_outputs include_reasoning reasoning_format ' +
    'reasoning_split min_tokens stop_token_ids ignore_eos length_penalty skip_special_tokens ' +
    'spaces_between_special_tokens include_stop_str_in_output add_generation_prompt continue_final_message echo usage ' +
    'output_format anthropic_version client_metadata',
)
/** The names in the following sets are normalized. */
const OUTPUT_COUNTS = nameSet(
  'n bestof numcompletions numreturnsequences candidatecount numcandidates numgenerations numoutputs numsamples ' +
    'numresponses numbeams beamwidth',
)
const OUTPUT_LIMITS = nameSet(
  'maxtokens maxcompletiontokens maxoutputtokens maxnewtokens maxgenlen maxlength maxtokenstosample maxgentokens ' +
    'maxgeneratedtokens tokenstogenerate numpredict npredict',
)
const THINKING_LIMITS = nameSet(
  'budgettokens thinkingbudget reasoningbudget thinkingtokens maxthinkingtokens maxreasoningtokens',
)

/** The fields that select a service tier, as the vendors that report the tier spell them. */
const TIER_FIELDS = nameSet('service_tier speed inference_geo')
/** Body fields that can change the price, with the values that cost no more than the list price. */
const LIST_PRICE_VALUES: ReadonlyMap<string, readonly Json[]> = new Map([
  ['servicetier', ['auto', 'default', 'standard', 'standard_only', 'on_demand', 'flex']],
  ['speed', ['standard']],
  ['inferencegeo', ['global', 'not_available']],
])
/** Of these, tiers of their own: one that the vendor's project settings select, and one with a discount. */
const OTHER_TIERS = nameSet('auto flex')
const BETA_LISTS = nameSet('anthropicbeta anthropicbetas betas')
/** Fields in which some vendors accept further fields, such as betas. */
const EXTRA_FIELDS = nameSet('extrabody extraheaders additionalmodelrequestfields')
const PRICE_FIELDS = new Set([...LIST_PRICE_VALUES.keys(), ...BETA_LISTS, 'modalities'])
/** Fields that choose another model. `model` is here because of its other spellings. */
const MODEL_CHOICES = nameSet('model models fallbackmodels fallbacks preset engine deployment deploymentid')
/** Of these, the fields with ids of models, which are compared with the price of the requested model. */
const MODEL_LISTS = nameSet('models fallbackmodels fallbacks')

/** The field by which routers such as OpenRouter choose the host of a model. Hosts have different prices. */
const HOST_CHOICE = 'provider'
/** Fields inside of it that do not choose a dearer host, with their harmless values. */
const HARMLESS_HOST_FIELDS: ReadonlyMap<string, (value: Json) => boolean> = new Map<string, (value: Json) => boolean>([
  ['allowfallbacks', () => true],
  ['maxprice', () => true],
  ['sort', (value: Json) => value === 'price'],
  ['datacollection', (value: Json) => value === 'allow'],
])

/** Words in the names of fields by which vendors read stored or remote content, search, or run tools. */
const WORK_WORDS = new RegExp(
  'search|web|brows|crawl|fetch|scrap|retriev|ground|rerank|^rag|rag$|tool|plugin|connector|mcp|agent|document|' +
    '(?<!pro)file|attach|sources|datasource|dataset|knowledge|corpus|collection|vector|database|cach|context|' +
    'memor|session|thread|conversation|assistant|previous|history|ur[il]|image|audio|video|media|extra|container|' +
    'sandbox|codeinterp|codeexec|execut|skill|workflow|template|prompt|research|online|citation|fallback|compact',
)
/** Values that switch something on. Text and numbers of any other kind only describe the request. */
const SWITCH = /^(?:true|on|yes|enabled?|always|auto|[a-z][a-z\d+.-]*:\/\/.*)$/is
const MAX_SWITCH_LENGTH = 2000
/** Fields whose subtrees only concern how the model thinks. */
const THINKING = /think|reason|^chattemplatekwargs$/

/** @param dialect Vendors of the messages format report the tokens of `fallbacks` apart, so that they are billed apart. */
export function costsOfFields(body: JsonObject, names: readonly string[], dialect: Dialect): FieldCosts {
  const costs: MutableCosts = { outputs: 1, extraOutputTokens: 0, optionalOutputTokens: 0, promptReads: 1 }
  const scan: Scan = { costs, body, remaining: MAX_SCANNED_VALUES }
  for (const name of names) {
    if (name === CACHE_OPTIONS && isCachedLonger(body[name])) costs.surcharge ??= () => surchargeError(`${name}.ttl`)
    if (ORDINARY_FIELDS.has(name)) continue
    if (name !== 'fallbacks' || dialect !== 'messages') chooseModels(costs, name, body[name] ?? null)
    if (normalizeName(name) === HOST_CHOICE) continue
    if (name === COMPACTION_TRIGGER) addCompaction(costs, name)
    else if (selectsTier(costs, name, body[name])) continue
    else scanField(scan, name, body[name] ?? null, { param: name, isDescription: false })
  }
  return costs
}

interface Position {
  /** Name of the top-level field. */
  readonly param: string
  /** True inside of fields that cannot cause vendor-side work. */
  readonly isDescription: boolean
}

function scanField(scan: Scan, name: string, value: Json, position: Position): void {
  const normalized = normalizeName(name)
  const { costs } = scan
  if (isUnset(value) || isDisabled(value)) return
  if (isSurcharged(scan, normalized, value)) costs.surcharge ??= () => surchargeError(shorten(position.param))
  if (PRICE_FIELDS.has(normalized)) return
  if (OUTPUT_COUNTS.has(normalized)) costs.outputs = Math.max(costs.outputs, countOf(value))
  else if (OUTPUT_LIMITS.has(normalized)) addOptionalOutput(costs, countOf(value))
  else if (THINKING_LIMITS.has(normalized))
    addOptionalOutput(costs, thinkingBeyondLimit(scan, position, countOf(value)))
  else if (normalized === 'prediction') costs.extraOutputTokens += maxBytes(scan, value)
  else scanOther(scan, normalized, value, position)
}

/** Thinking of this kind is outside of the output limit. Without a budget, only the model limits it. */
const ENABLES_THINKING = 'enablethinking'

function scanOther(scan: Scan, normalized: string, value: Json, position: Position): void {
  if (normalized === ENABLES_THINKING) {
    addOptionalOutput(scan.costs, MAX_COUNT)
    return
  }
  if (normalized === 'contextmanagement') {
    scanContextManagement(scan, value)
    return
  }
  if (normalized === 'compaction') {
    addCompaction(scan.costs, shorten(position.param))
    return
  }
  if (normalized === 'fallbacks') addFallbacks(scan, value)
  if (normalized === 'mode' && position.param === 'reasoning' && value !== 'standard') {
    addModelRuns(scan.costs)
    return
  }
  const isDescription = position.isDescription || THINKING.test(normalized)
  const isWork = MODEL_CHOICES.has(normalized) || WORK_WORDS.test(normalized)
  if (!isDescription && isWork && !isEmpty(value)) scan.costs.vendorWork ??= shorten(position.param)
  scanValue(scan, value, { ...position, isDescription })
}

/** A model that the vendor chooses could cost more than the requested one. */
function chooseModels(costs: MutableCosts, name: string, value: Json): void {
  const normalized = normalizeName(name)
  if (EXTRA_FIELDS.has(normalized) && isJsonObject(value)) {
    for (const inner in value) chooseModels(costs, inner, value[inner] ?? null)
    return
  }
  if (normalized === HOST_CHOICE && !keepsCheapestHost(value)) costs.surcharge ??= () => surchargeError(shorten(name))
  if (!MODEL_CHOICES.has(normalized) || isUnset(value) || isEmpty(value)) return
  const models = modelIdsIn(value)
  const known = costs.alternatives?.models ?? []
  const param = shorten(name)
  if (MODEL_LISTS.has(normalized) && models !== undefined) costs.alternatives = { param, models: [...known, ...models] }
  else costs.surcharge ??= () => surchargeError(param)
}

function keepsCheapestHost(value: Json): boolean {
  if (isUnset(value)) return true
  if (!isJsonObject(value)) return false
  return Object.entries(value).every(
    ([name, field = null]) => isUnset(field) || HARMLESS_HOST_FIELDS.get(normalizeName(name))?.(field) === true,
  )
}

/** Returns undefined if the field has another form. */
function modelIdsIn(value: Json): readonly string[] | undefined {
  const items: readonly Json[] = Array.isArray(value) ? (value as readonly Json[]) : [value]
  const ids = items.map((item) => (isJsonObject(item) ? item['model'] : item))
  return ids.length <= MAX_MODELS && ids.every((id) => typeof id === 'string') ? ids : undefined
}

function scanValue(scan: Scan, value: Json, position: Position): void {
  if (scan.remaining-- <= 0) {
    scan.costs.vendorWork ??= shorten(position.param)
    return
  }
  if (Array.isArray(value)) {
    for (const item of value as readonly Json[]) {
      if (scan.remaining < 0) return
      scanValue(scan, item, position)
    }
  } else if (isJsonObject(value)) {
    for (const name in value) {
      if (scan.remaining < 0) return
      scanField(scan, name, value[name] ?? null, position)
    }
  } else if (!position.isDescription && isSwitch(value)) {
    scan.costs.vendorWork ??= shorten(position.param)
  }
}

/** Compaction reads the prompt once more and generates a summary. Clearing tool results costs nothing. */
function scanContextManagement(scan: Scan, value: Json): void {
  const { costs } = scan
  if (!mentions(scan, value, /compact/i)) return
  addCompaction(costs, 'context_management')
  costs.promptReads += 1
}

/** Each fallback reads the prompt again, and the vendor bills what the models before it wrote before they declined. */
function addFallbacks({ costs, body }: Scan, value: Json): void {
  if (!Array.isArray(value)) return
  costs.promptReads += Math.min(value.length, MAX_COUNT)
  costs.extraOutputTokens += Math.min(MAX_COUNT, value.length * countOf(body['max_tokens'] ?? 0))
}

/** The vendor adds its instructions to the prompt, and the output limit may not apply to the summary. */
function addCompaction(costs: MutableCosts, param: string): void {
  costs.vendorWork ??= param
  addOptionalOutput(costs, MAX_COUNT)
}

/** With `reasoning: { mode: 'pro' }`, the vendor bills the work of several runs of the model. */
function addModelRuns(costs: MutableCosts): void {
  costs.vendorWork ??= 'reasoning.mode'
  addOptionalOutput(costs, MAX_COUNT)
}

export function surchargeError(param: string): GatewayError {
  return new GatewayError('invalid-request', `${param} may select a price above the list price. Remove it.`, { param })
}

const CACHE_OPTIONS = 'prompt_cache_options'
/** The time for which the price of cache writes is known. */
const CACHE_TTL = '30m'

function isCachedLonger(options: Json | undefined): boolean {
  if (!isJsonObject(options)) return false
  const { ttl = null } = options
  return ttl !== null && ttl !== CACHE_TTL
}

/** Other spellings, and fields inside of others, are not priced: the vendor may ignore them, or report no tier. */
function selectsTier(costs: MutableCosts, name: string, value: Json | undefined): boolean {
  if (!TIER_FIELDS.has(name) || typeof value !== 'string') return false
  const listed = LIST_PRICE_VALUES.get(normalizeName(name))
  if (listed?.includes(value) !== true || OTHER_TIERS.has(value)) (costs.tiers ??= {})[name] = tierNameOf(name, value)
  return true
}

function isSurcharged(scan: Scan, normalized: string, value: Json): boolean {
  if (BETA_LISTS.has(normalized) || EXTRA_FIELDS.has(normalized)) return mentions(scan, value, LONG_CONTEXT_BETA)
  if (normalized === 'modalities') return !Array.isArray(value) || value.some((item) => item !== 'text')
  const values = LIST_PRICE_VALUES.get(normalized)
  return values !== undefined && !values.includes(value)
}

/** The limit of the messages format includes thinking, unless tools are called between thoughts. */
function thinkingBeyondLimit({ body }: Scan, { param }: Position, budget: number): number {
  const limit = body['max_tokens']
  return param === 'thinking' && typeof limit === 'number' ? Math.max(0, budget - limit) : budget
}

function addOptionalOutput(costs: MutableCosts, tokens: number): void {
  costs.optionalOutputTokens += tokens
}

/** Lenient vendors read numbers in strings, such as `"1_000"` and `"٨"`. */
function countOf(value: Json): number {
  const count = typeof value === 'number' || typeof value === 'string' ? Math.ceil(Number(value)) : 0
  if (Number.isNaN(count) && typeof value === 'string') return maxCountOf(value)
  return count > 0 ? Math.min(count, MAX_COUNT) : 0
}

const NUMBER_LIKE = /^[\s+]*\p{Nd}[\p{Nd}_.,\s]*$/u

/** Returns the highest number with as many digits. */
function maxCountOf(text: string): number {
  if (text.length > MAX_PARAM_LENGTH || !NUMBER_LIKE.test(text)) return 0
  const digits = text.match(/\p{Nd}/gu) ?? []
  return Math.min(10 ** digits.length - 1, MAX_COUNT)
}

function isSwitch(value: Json): boolean {
  return value === true || (typeof value === 'string' && value.length <= MAX_SWITCH_LENGTH && SWITCH.test(value.trim()))
}

function isEmpty(value: Json): boolean {
  return value === '' || (isJsonObject(value) && Object.keys(value).length === 0)
}

function isDisabled(value: Json): boolean {
  return isJsonObject(value) && Object.keys(value).length === 1 && value['enabled'] === false
}

/** Also returns true for a value that is too large to search. */
function mentions(scan: Scan, value: Json, pattern: RegExp): boolean {
  if (scan.remaining-- <= 0) return true
  if (typeof value === 'string') return value.length > MAX_SWITCH_LENGTH || pattern.test(value)
  if (Array.isArray(value)) return (value as readonly Json[]).some((item) => mentions(scan, item, pattern))
  if (!isJsonObject(value)) return false
  for (const name in value) if (pattern.test(name) || mentions(scan, value[name] ?? null, pattern)) return true
  return false
}

const MAX_UTF8_BYTES_PER_UNIT = 3
/** Longer texts are not encoded, because that would block the event loop. */
const MAX_ENCODED_LENGTH = 1_000_000

/** Upper bound on the tokens of all strings in a value. */
function maxBytes(scan: Scan, value: Json): number {
  if (scan.remaining-- <= 0) return MAX_COUNT
  if (typeof value === 'string') {
    if (value.length > MAX_ENCODED_LENGTH) return value.length * MAX_UTF8_BYTES_PER_UNIT
    return new TextEncoder().encode(value).byteLength
  }
  let bytes = 0
  if (Array.isArray(value)) for (const item of value as readonly Json[]) bytes += maxBytes(scan, item)
  else if (isJsonObject(value)) for (const name in value) bytes += maxBytes(scan, value[name] ?? null)
  return Math.min(bytes, MAX_COUNT)
}

function shorten(param: string): string {
  return param.slice(0, MAX_PARAM_LENGTH)
}
