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
