import type { Dialect, Prompt } from '../core/prompt.ts'
import { messageOrigin } from './anthropic/origin.ts'
import { chatOrigin } from './openai/origin.ts'
import type { Origin } from './origin.ts'
import { responsesOrigin } from './responses/origin.ts'

/** The origin of every format in which callers write. */
const ORIGINS: Readonly<Record<Dialect, Origin>> = {
  openai: chatOrigin,
  anthropic: messageOrigin,
  responses: responsesOrigin,
}

/** What a writer of another dialect must know of the one that the prompt came in. */
export function originOf({ native }: Pick<Prompt, 'native'>): Origin {
  return ORIGINS[native.dialect]
}
