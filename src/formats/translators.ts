import type { Dialect, Prompt } from '../core/prompt.ts'
import { translateToChat } from './chat/translate-prompt.ts'
import { chatSource } from './chat/unsupported-fields.ts'
import { translateToMessages } from './messages/translate-prompt.ts'
import { messageSource } from './messages/unsupported-fields.ts'
import { responsesSource } from './responses/unsupported-fields.ts'
import { setTranslators, type SourceFormat } from './translation.ts'

export { readEmbeddings } from './embeddings.ts'

const SOURCES: Readonly<Record<Dialect, SourceFormat>> = {
  openai: chatSource,
  anthropic: messageSource,
  responses: responsesSource,
}

/** Returns the description of the format in which the caller wrote the prompt. */
export function sourceOf({ native }: Pick<Prompt, 'native'>): SourceFormat {
  return SOURCES[native.dialect]
}

/** Must be called before the first prompt is translated. Most requests reach a vendor of their own format without it. */
export function enableTranslation(): void {
  setTranslators({
    openai: (prompt, model) => translateToChat(prompt, model, sourceOf(prompt)),
    anthropic: (prompt, model) => translateToMessages(prompt, model, sourceOf(prompt)),
  })
}
