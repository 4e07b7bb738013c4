import { GatewayError } from '../core/errors.ts'
import { lazy } from '../core/lazy.ts'
import type { Prompt } from '../core/prompt.ts'
import type { WrittenPrompt } from './format.ts'
import type { TranslatePrompt, TranslatingDialect } from './on-demand.ts'

let translators: Readonly<Record<TranslatingDialect, TranslatePrompt>> | undefined

/** Loads what writes prompts of another format: most requests are not translated. Call it before `translate`. */
export const loadTranslation: () => Promise<void> = lazy(async () => {
  translators = (await import('./on-demand.ts')).TRANSLATORS
})

export function translate(dialect: TranslatingDialect, prompt: Prompt, model: string): WrittenPrompt {
  if (translators === undefined) throw new GatewayError('internal', 'Translation is not loaded.')
  return translators[dialect](prompt, model)
}
