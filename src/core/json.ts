/** Any JSON value. */
export type Json = string | number | boolean | null | readonly Json[] | JsonObject

/** A JSON object; absent and `undefined` fields mean the same. */
export type JsonObject = { readonly [key: string]: Json | undefined }

/** Returns true for an object; false for arrays, null and all other values. */
export function isJsonObject(value: unknown): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

/** Parses a text. Returns undefined if it is not JSON. */
export function parseJson(text: string): Json | undefined {
  try {
    return JSON.parse(text) as Json
  } catch {
    return undefined
  }
}

/**
 * Returns the value if it is an object, and undefined otherwise. For answers of upstreams, which are parsed loosely.
 */
export function asObject(value: unknown): JsonObject | undefined {
  return isJsonObject(value) ? value : undefined
}

/** Returns the value if it is an array, and an empty array otherwise. */
export function asArray(value: Json | undefined): readonly Json[] {
  return Array.isArray(value) ? (value as readonly Json[]) : []
}

/** Returns the value if it is a string, and undefined otherwise. */
export function asString(value: unknown): string | undefined {
  return typeof value === 'string' ? value : undefined
}

/** Returns the value if it is a non-negative integer, and undefined otherwise. For token counts of upstreams. */
export function asCount(value: unknown): number | undefined {
  return typeof value === 'number' && Number.isFinite(value) && value >= 0 ? Math.floor(value) : undefined
}

/** Returns a field name without case and separators: lenient servers treat `MAX_TOKENS` and `maxTokens` as equal. */
export function looseName(name: string): string {
  return name
    .toUpperCase()
    .toLowerCase()
    .replace(/[\s_-]/g, '')
}
