import type { Prompt } from '../core/prompt.ts'
import { translateToMessages } from './anthropic/translate-prompt.ts'
import type { WrittenPrompt } from './format.ts'
import { translateToChat } from './openai/translate-prompt.ts'

export { readEmbeddings } from './embeddings.ts'
export { parseInSteps } from './parse-large.ts'

/** Writes a prompt of another format. Throws `invalid-request` for what the format cannot say. */
export type TranslatePrompt = (prompt: Prompt, model: string) => WrittenPrompt

/** The formats that are loaded with the gateway; the writers of all others are loaded whole. */
export type TranslatingDialect = 'openai' | 'anthropic'

/** Loaded with the first prompt that is translated, because most requests reach a vendor of their own format. */
export const TRANSLATORS: Readonly<Record<TranslatingDialect, TranslatePrompt>> = {
  openai: translateToChat,
  anthropic: translateToMessages,
}
