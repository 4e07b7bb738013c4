import type { Dialect, Prompt } from '../core/prompt.ts'
import { messageOrigin } from './anthropic/origin.ts'
import { chatOrigin } from './openai/origin.ts'
import type { Origin } from './origin.ts'
import { responsesOrigin } from './responses/origin.ts'

const ORIGINS: Readonly<Record<Dialect, Origin>> = {
  openai: chatOrigin,
  anthropic: messageOrigin,
  responses: responsesOrigin,
}

/** What a writer of another dialect must know of the one that the prompt came in. */
export function originOf(prompt: Prompt): Origin {
  return ORIGINS[prompt.native.dialect]
}
