import { asArray, asObject, asString, isJsonObject, type Json, type JsonObject } from '../../core/json.ts'

/** Maximum number of values of a filled schema. Nested arrays and references multiply their values. */
export const MAX_VALUES = 1000
/** Maximum number of characters of the names and constants of a filled schema. */
export const MAX_CHARACTERS = 65_536
/** Maximum number of choices of all enumerations that are looked up in the text. */
const MAX_COMPARISONS = 300
const MAX_CHOICE_LENGTH = 100
const MAX_DEPTH = 8
const MAX_ITEMS = 10
const MAX_TYPES = 8
const MAX_REFERENCE_LENGTH = 1000
const MAX_TEXT_LENGTH = 200
/** Only the start and the end of a longer text are searched for values. */
const MAX_SEARCHED_LENGTH = 16_384

interface TextValues {
  readonly lowerCaseText: string
  readonly nextText: () => string
  readonly nextNumber: () => number | undefined
}

/** Shared by all values of a schema, because a limit per value does not limit their number. */
interface Allowance {
  values: number
  characters: number
  comparisons: number
}

/**
 * Fills the required fields. Ignores patterns and formats. Above the limits, values are null, and items and fields are
 * left out.
 */
export function fillSchema(schema: Json | undefined, text: string): Json {
  const root = asObject(schema) ?? {}
  const allowance = { values: MAX_VALUES, characters: MAX_CHARACTERS, comparisons: MAX_COMPARISONS }
  return fill(root, { values: valuesIn(shorten(text)), root, allowance, depth: 0 })
}

function shorten(text: string): string {
  const half = MAX_SEARCHED_LENGTH / 2
  return text.length <= MAX_SEARCHED_LENGTH ? text : `${text.slice(0, half)}\n${text.slice(-half)}`
}

interface FillContext {
  readonly values: TextValues
  readonly root: JsonObject
  readonly allowance: Allowance
  readonly depth: number
}

function fill(schema: JsonObject, context: FillContext): Json {
  if (context.depth > MAX_DEPTH) return takeConstant(null, context.allowance)
  const nested = { ...context, depth: context.depth + 1 }
  const reference = asString(schema['$ref'])
  if (reference !== undefined) return fill(resolveReference(reference, context.root), nested)
  if (schema['const'] !== undefined) return takeConstant(schema['const'], context.allowance)
  const choices = asArray(schema['enum'])
  if (choices.length > 0) return takeConstant(findMentioned(choices, context), context.allowance)
  const variant = [schema['anyOf'], schema['oneOf'], schema['allOf']].find((list) => asArray(list).length > 0)
  if (variant !== undefined) return fill(asObject(asArray(variant)[0]) ?? {}, nested)
  context.allowance.values--
  return fillType(typeOf(schema), schema, nested)
}

/** Returns null for a constant above the limits. */
function takeConstant(value: Json, allowance: Allowance): Json {
  return fits(value, allowance) ? value : null
}

function fits(value: Json | undefined, allowance: Allowance): boolean {
  allowance.values--
  if (typeof value === 'string') allowance.characters -= value.length
  if (allowance.values < 0 || allowance.characters < 0) return false
  if (Array.isArray(value)) return (value as readonly Json[]).every((element) => fits(element, allowance))
  if (!isJsonObject(value)) return true
  for (const name in value) {
    allowance.characters -= name.length
    if (!fits(value[name], allowance)) return false
  }
  return true
}

function fillType(type: string, schema: JsonObject, context: FillContext): Json {
  switch (type) {
    case 'object':
      return fillObject(schema, context)
    case 'array':
      return fillArray(schema, context)
    case 'integer':
      return Math.round(numberWithin(schema, context.values))
    case 'number':
      return numberWithin(schema, context.values)
    case 'boolean':
      return true
    case 'null':
      return null
    default:
      return context.values.nextText().slice(0, Math.min(MAX_TEXT_LENGTH, numberAt(schema, 'maxLength', Infinity)))
  }
}

function fillArray(schema: JsonObject, context: FillContext): Json {
  const length = Math.min(numberAt(schema, 'minItems', 1), MAX_ITEMS)
  const items: Json[] = []
  while (items.length < length && context.allowance.values > 0) {
    items.push(fill(asObject(schema['items']) ?? {}, context))
  }
  return items
}

function fillObject(schema: JsonObject, context: FillContext): JsonObject {
  const { allowance } = context
  const properties = asObject(schema['properties']) ?? {}
  const fields: (readonly [string, Json])[] = []
  for (const name of asArray(schema['required'])) {
    if (allowance.values <= 0) break
    if (typeof name !== 'string' || name.length > allowance.characters) {
      allowance.values--
      continue
    }
    allowance.characters -= name.length
    fields.push([name, fill(asObject(properties[name]) ?? {}, context)])
  }
  return Object.fromEntries(fields)
}

function typeOf(schema: JsonObject): string {
  const { type } = schema
  if (Array.isArray(type)) {
    const types = (type as readonly Json[]).slice(0, MAX_TYPES)
    return asString(types.find((name) => name !== 'null')) ?? 'null'
  }
  return asString(type) ?? (schema['properties'] === undefined ? 'string' : 'object')
}

function findMentioned(choices: readonly Json[], { values, allowance }: FillContext): Json {
  for (const choice of choices) {
    if (allowance.comparisons-- <= 0) break
    if (isMentioned(choice, values.lowerCaseText)) return choice
  }
  return choices[0] ?? null
}

function isMentioned(choice: Json, lowerCaseText: string): boolean {
  if (typeof choice === 'object') return false
  const name = String(choice)
  return name.length <= MAX_CHOICE_LENGTH && lowerCaseText.includes(name.toLowerCase())
}

function numberAt(schema: JsonObject, name: string, fallback: number): number {
  const value = schema[name]
  return typeof value === 'number' ? value : fallback
}

function numberWithin(schema: JsonObject, values: TextValues): number {
  const min = numberAt(schema, 'minimum', -Infinity)
  const max = numberAt(schema, 'maximum', Infinity)
  const number = values.nextNumber() ?? (Number.isFinite(min) ? min : 0)
  return Math.min(max, Math.max(min, number))
}

function resolveReference(reference: string, root: JsonObject): JsonObject {
  if (!reference.startsWith('#/') || reference.length > MAX_REFERENCE_LENGTH) return {}
  const segments = reference.slice(2).split('/')
  return asObject(segments.reduce<unknown>((value, segment) => asObject(value)?.[segment], root)) ?? {}
}

function valuesIn(text: string): TextValues {
  const quoted = [...text.matchAll(/"([^"\n]{1,200})"|“([^”\n]{1,200})”|`([^`\n]{1,200})`/g)]
  const names = text.match(/(?<=[\p{L}\p{N},;] )\p{Lu}[\p{L}\p{N}]*(?: \p{Lu}[\p{L}\p{N}]*)*/gu) ?? []
  const texts = [...quoted.map((match) => match[1] ?? match[2] ?? match[3] ?? ''), ...names]
  const numbers = (text.match(/-?\d+(?:\.\d+)?/g) ?? []).map(Number).filter(Number.isFinite)
  let usedTexts = 0
  let usedNumbers = 0
  const trimmed = text.trim()
  return {
    lowerCaseText: text.toLowerCase(),
    nextText: () => texts[usedTexts++ % Math.max(1, texts.length)] ?? trimmed,
    nextNumber: () => numbers[usedNumbers++ % Math.max(1, numbers.length)],
  }
}
