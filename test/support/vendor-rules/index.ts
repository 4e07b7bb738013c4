import type { JsonObject } from '../../../src/core/json.ts'
import type { Dialect } from '../../../src/core/prompt.ts'
import { chatViolations } from './chat.ts'
import { messagesViolations } from './messages.ts'
import { responsesViolations } from './responses.ts'
import type { Violations } from './shared.ts'

/** Returns how a shortened request breaks the rules of its vendor, and what it changed that must stay. */
export const violationsOf: Readonly<Record<Dialect, (before: JsonObject, after: JsonObject) => Violations>> = {
  chat: chatViolations,
  messages: messagesViolations,
  responses: responsesViolations,
}
