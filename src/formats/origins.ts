import { GatewayError } from '../core/errors.ts'
import type { Dialect, Prompt } from '../core/prompt.ts'
import { messageOrigin } from './anthropic/origin.ts'
import { chatOrigin } from './openai/origin.ts'
import type { Origin } from './origin.ts'

const ORIGINS: Partial<Record<Dialect, Origin>> = { openai: chatOrigin, anthropic: messageOrigin }

/** Adds the row of a format whose code is loaded with its first request: no prompt of it exists before. */
export function addOrigin(dialect: Dialect, origin: Origin): void {
  ORIGINS[dialect] = origin
}

/** What a writer of another dialect must know of the one that the prompt came in. */
export function originOf(prompt: Prompt): Origin {
  const { dialect } = prompt.native
  const origin = ORIGINS[dialect]
  if (origin === undefined) throw new GatewayError('internal', `The format "${dialect}" is not loaded.`)
  return origin
}
