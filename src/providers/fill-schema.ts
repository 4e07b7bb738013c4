import { asArray, asObject, asString, type Json, type JsonObject } from '../core/json.ts'

const MAX_DEPTH = 8
const MAX_TEXT_LENGTH = 200

interface TextValues {
  readonly text: string
  readonly nextText: () => string
  readonly nextNumber: () => number | undefined
}

/** Fills the required fields. Ignores patterns and formats. */
export function fillSchema(schema: Json | undefined, text: string): Json {
  return fill(asObject(schema) ?? {}, { values: valuesIn(text), root: asObject(schema) ?? {}, depth: 0 })
}

interface FillContext {
  readonly values: TextValues
  readonly root: JsonObject
  readonly depth: number
}

function fill(schema: JsonObject, context: FillContext): Json {
  if (context.depth > MAX_DEPTH) return null
  const nested = { ...context, depth: context.depth + 1 }
  const reference = asString(schema['$ref'])
  if (reference !== undefined) return fill(resolveReference(reference, context.root), nested)
  if (schema['const'] !== undefined) return schema['const']
  const choices = asArray(schema['enum'])
  if (choices.length > 0) return findMentioned(choices, context.values.text)
  const [variant] = [schema['anyOf'], schema['oneOf'], schema['allOf']].flatMap((list) => asArray(list))
  if (variant !== undefined) return fill(asObject(variant) ?? {}, nested)
  return fillType(typeOf(schema), schema, nested)
}

function fillType(type: string, schema: JsonObject, context: FillContext): Json {
  switch (type) {
    case 'object':
      return fillObject(schema, context)
    case 'array': {
      const length = Math.min(Number(schema['minItems'] ?? 1), 10)
      return Array.from({ length }, () => fill(asObject(schema['items']) ?? {}, context))
    }
    case 'integer':
      return Math.round(numberWithin(schema, context.values))
    case 'number':
      return numberWithin(schema, context.values)
    case 'boolean':
      return true
    case 'null':
      return null
    default:
      return context.values
        .nextText()
        .slice(0, Math.min(MAX_TEXT_LENGTH, Number(schema['maxLength'] ?? MAX_TEXT_LENGTH)))
  }
}

function fillObject(schema: JsonObject, context: FillContext): JsonObject {
  const properties = asObject(schema['properties']) ?? {}
  const required = asArray(schema['required']).filter((name) => typeof name === 'string')
  const fields = required.map((name) => [name, fill(asObject(properties[name]) ?? {}, context)] as const)
  return Object.fromEntries(fields)
}

function typeOf(schema: JsonObject): string {
  const { type } = schema
  if (Array.isArray(type)) return asString(type.find((name) => name !== 'null')) ?? 'null'
  return asString(type) ?? (schema['properties'] === undefined ? 'string' : 'object')
}

function findMentioned(choices: readonly Json[], text: string): Json {
  const lower = text.toLowerCase()
  return choices.find((choice) => lower.includes(String(choice).toLowerCase())) ?? choices[0] ?? null
}

function numberWithin(schema: JsonObject, values: TextValues): number {
  const min = Number(schema['minimum'] ?? -Infinity)
  const max = Number(schema['maximum'] ?? Infinity)
  const number = values.nextNumber() ?? (Number.isFinite(min) ? min : 0)
  return Math.min(max, Math.max(min, number))
}

function resolveReference(reference: string, root: JsonObject): JsonObject {
  if (!reference.startsWith('#/')) return {}
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
  return {
    text,
    nextText: () => texts[usedTexts++ % Math.max(1, texts.length)] ?? text.trim(),
    nextNumber: () => numbers[usedNumbers++ % Math.max(1, numbers.length)],
  }
}
