import { GatewayError } from '../core/errors.ts'
import type { Json } from '../core/json.ts'
import type { Prompt } from '../core/prompt.ts'
import type { WrittenPrompt } from './format.ts'

/** The formats whose upstream side is part of the main entry. The upstream side of other formats is loaded as a whole. */
export type TranslatedDialect = 'openai' | 'anthropic'

/** Writes a prompt of another format. Throws `invalid-request` for required content that the format cannot express. */
export type TranslatePrompt = (prompt: Prompt, model: string) => WrittenPrompt

let translators: Readonly<Record<TranslatedDialect, TranslatePrompt>> | undefined

/** Sets the functions that `translate` calls. `translators.ts` calls this when it is loaded on demand. */
export function setTranslators(loaded: Readonly<Record<TranslatedDialect, TranslatePrompt>>): void {
  translators = loaded
}

export function translate(dialect: TranslatedDialect, prompt: Prompt, model: string): WrittenPrompt {
  if (translators === undefined) throw new GatewayError('internal', 'Translation is not loaded.')
  return translators[dialect](prompt, model)
}

/** Content that only the source format can express and that cannot be omitted without changing the request. */
export interface UnsupportedField {
  /** The caller's field. */
  readonly param: string
  /** Completes "… cannot be sent": `this field`, `a web_search block`. */
  readonly what: string
  readonly details?: Json
  /** True for content that is refused even in a lossy translation, because it is the conversation itself. */
  readonly isEssential?: boolean
}

/** The content of a prompt beyond the canonical form. */
export interface UnsupportedFields {
  /** Fields that only tune the answer and may be omitted. */
  readonly hints: readonly string[]
  /** Required content that another format cannot express, in the order of the body. */
  readonly required: Iterable<UnsupportedField>
}

/**
 * Describes the source format of a translation to the writers of all other formats. Each format describes itself, so
 * that N formats need N descriptions and no writer knows the fields of another format.
 */
export interface SourceFormat {
  readonly unsupportedFields: (prompt: Prompt) => UnsupportedFields
  /** Returns the path of a message in the caller's body: `messages[3]`. */
  readonly pathOf: (prompt: Prompt, index: number) => string
  /** Names of settings in the caller's format, for errors and ignored fields. */
  readonly names: Readonly<Record<'shape' | 'effort' | 'stop', string>>
}

/** Returns the error for content that the target format cannot express. `what` completes "… cannot be sent". */
export type RefuseContent = (param: string, what: string, details?: Json) => GatewayError

export function refuseContentFor(target: string): RefuseContent {
  return (param, what, details) =>
    new GatewayError(
      'invalid-request',
      `${param}: ${what} cannot be sent to ${target}. Remove it, or choose a model that supports it.`,
      { param, ...(details === undefined ? {} : { details }) },
    )
}

/**
 * Returns the names of the fields that are left out of a translated prompt. Throws what `refuse` returns for a required
 * field, and for a tool that is not a function, unless the caller accepts a lossy translation.
 */
export function omittedFields(
  prompt: Prompt,
  source: SourceFormat,
  refuse: RefuseContent,
  toolField = '',
): readonly string[] {
  const { hints, required } = source.unsupportedFields(prompt)
  const names = [...hints]
  for (const { param, what, details, isEssential } of required) {
    if (prompt.isLossy !== true || isEssential === true) throw refuse(param, what, details)
    names.push(param)
  }
  for (const [index, { name, parameters }] of prompt.tools.entries()) {
    if (parameters === undefined) throw refuse(`tools[${index}]${toolField}`, `the tool ${name}`)
  }
  return [...new Set(names)]
}

/** Returns true for an absent, null, false or empty field. */
export function isUnset(value: Json | undefined): boolean {
  return value === undefined || value === null || value === false || (Array.isArray(value) && value.length === 0)
}
