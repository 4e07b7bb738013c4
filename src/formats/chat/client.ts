import type { ClientFormat } from '../format.ts'
import { omittedNames } from '../response-fields.ts'
import { writeCompletion, createStreamWriter, omittedName } from './response-writer.ts'
import { writeChatFailure, writeChatFailureEvent } from '../failures.ts'
import { readPrompt } from './request-reader.ts'

export const chatClient: ClientFormat = {
  dialect: 'chat',
  readPrompt,
  writeCompletion,
  omittedContent: ({ parts }) => omittedNames(parts, omittedName),
  createStreamWriter,
  writeFailure: writeChatFailure,
  writeFailureEvent: writeChatFailureEvent,
  heartbeat: 'comment',
}
