/** Any JSON value. */
export type Json = string | number | boolean | null | readonly Json[] | JsonObject

/** A JSON object; absent and `undefined` fields mean the same. */
export type JsonObject = { readonly [key: string]: Json | undefined }

/** True for `{…}`, false for arrays, null and everything else. */
export function isJsonObject(value: unknown): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

/** Parses a text; undefined for a text that is not JSON. */
export function parseJson(text: string): Json | undefined {
  try {
    return JSON.parse(text) as Json
  } catch {
    return undefined
  }
}

/** The value when it is an object, else undefined: for answers of upstreams, which are read loosely. */
export function asObject(value: unknown): JsonObject | undefined {
  return isJsonObject(value) ? value : undefined
}

/** The value when it is an array, else an empty one. */
export function asArray(value: Json | undefined): readonly Json[] {
  return Array.isArray(value) ? (value as readonly Json[]) : []
}

/** The value when it is a string, else undefined. */
export function asString(value: unknown): string | undefined {
  return typeof value === 'string' ? value : undefined
}

/** The value when it is a whole number of 0 or more, else undefined: token counts of upstreams. */
export function asCount(value: unknown): number | undefined {
  return typeof value === 'number' && Number.isFinite(value) && value >= 0 ? Math.floor(value) : undefined
}

/** A field's name without case and separators, as lenient servers read it: `MAX_TOKENS` and `maxTokens` are one name. */
export function looseName(name: string): string {
  return name
    .toUpperCase()
    .toLowerCase()
    .replace(/[\s_-]/g, '')
}
