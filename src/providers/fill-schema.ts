import { asArray, asObject, asString, type Json, type JsonObject } from '../core/json.ts'

const DEEPEST = 8
const MAX_TEXT_LENGTH = 200

/** Values found in a text. Each is returned once before the first one is repeated. */
interface Finds {
  readonly text: string
  readonly nextText: () => string
  readonly nextNumber: () => number | undefined
}

/**
 * A value that fits a JSON schema, its required fields filled from a text: quoted words and names for strings, the
 * text's numbers for numbers, the enum values that the text mentions. Deterministic. Patterns and formats are not met.
 */
export function fillSchema(schema: Json | undefined, text: string): Json {
  return fill(asObject(schema) ?? {}, { finds: findIn(text), root: asObject(schema) ?? {}, depth: 0 })
}

interface Place {
  readonly finds: Finds
  readonly root: JsonObject
  readonly depth: number
}

function fill(schema: JsonObject, place: Place): Json {
  if (place.depth > DEEPEST) return null
  const deeper = { ...place, depth: place.depth + 1 }
  const reference = asString(schema['$ref'])
  if (reference !== undefined) return fill(resolve(reference, place.root), deeper)
  if (schema['const'] !== undefined) return schema['const']
  const choices = asArray(schema['enum'])
  if (choices.length > 0) return mentioned(choices, place.finds.text)
  const [variant] = [schema['anyOf'], schema['oneOf'], schema['allOf']].flatMap((list) => asArray(list))
  if (variant !== undefined) return fill(asObject(variant) ?? {}, deeper)
  return fillType(typeOf(schema), schema, deeper)
}

function fillType(type: string, schema: JsonObject, place: Place): Json {
  switch (type) {
    case 'object':
      return fillObject(schema, place)
    case 'array': {
      const length = Math.min(Number(schema['minItems'] ?? 1), 10)
      return Array.from({ length }, () => fill(asObject(schema['items']) ?? {}, place))
    }
    case 'integer':
      return Math.round(numberWithin(schema, place.finds))
    case 'number':
      return numberWithin(schema, place.finds)
    case 'boolean':
      return true
    case 'null':
      return null
    default:
      return place.finds.nextText().slice(0, Math.min(MAX_TEXT_LENGTH, Number(schema['maxLength'] ?? MAX_TEXT_LENGTH)))
  }
}

function fillObject(schema: JsonObject, place: Place): JsonObject {
  const properties = asObject(schema['properties']) ?? {}
  const required = asArray(schema['required']).filter((name) => typeof name === 'string')
  const fields = required.map((name) => [name, fill(asObject(properties[name]) ?? {}, place)] as const)
  return Object.fromEntries(fields)
}

function typeOf(schema: JsonObject): string {
  const { type } = schema
  if (Array.isArray(type)) return asString(type.find((one) => one !== 'null')) ?? 'null'
  return asString(type) ?? (schema['properties'] === undefined ? 'string' : 'object')
}

function mentioned(choices: readonly Json[], text: string): Json {
  const lower = text.toLowerCase()
  return choices.find((choice) => lower.includes(String(choice).toLowerCase())) ?? choices[0] ?? null
}

function numberWithin(schema: JsonObject, finds: Finds): number {
  const least = Number(schema['minimum'] ?? -Infinity)
  const most = Number(schema['maximum'] ?? Infinity)
  const found = finds.nextNumber() ?? (Number.isFinite(least) ? least : 0)
  return Math.min(most, Math.max(least, found))
}

/** Local references only: `#/$defs/name`. */
function resolve(reference: string, root: JsonObject): JsonObject {
  if (!reference.startsWith('#/')) return {}
  const steps = reference.slice(2).split('/')
  return asObject(steps.reduce<unknown>((value, step) => asObject(value)?.[step], root)) ?? {}
}

function findIn(text: string): Finds {
  const quoted = [...text.matchAll(/"([^"\n]{1,200})"|“([^”\n]{1,200})”|`([^`\n]{1,200})`/g)]
  const names = text.match(/(?<=[\p{L}\p{N},;] )\p{Lu}[\p{L}\p{N}]*(?: \p{Lu}[\p{L}\p{N}]*)*/gu) ?? []
  const texts = [...quoted.map((match) => match[1] ?? match[2] ?? match[3] ?? ''), ...names]
  const numbers = (text.match(/-?\d+(?:\.\d+)?/g) ?? []).map(Number).filter(Number.isFinite)
  let usedTexts = 0
  let usedNumbers = 0
  return {
    text,
    nextText: () => texts[usedTexts++ % Math.max(1, texts.length)] ?? text.trim(),
    nextNumber: () => numbers[usedNumbers++ % Math.max(1, numbers.length)],
  }
}
