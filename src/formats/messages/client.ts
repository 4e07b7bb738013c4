import { omittedNames } from '../response-fields.ts'
import type { ClientFormat } from '../format.ts'
import { writeMessageFailure, writeMessageFailureEvent } from '../failures.ts'
import { writeCompletion, omittedName, MessageStreamWriter, toSseEvent, messageId } from './response-writer.ts'
import { readPrompt } from './request-reader.ts'

export const messagesClient: ClientFormat = {
  dialect: 'messages',
  readPrompt,
  writeCompletion,
  omittedContent: ({ parts }) => omittedNames(parts, omittedName),
  createStreamWriter: () => new MessageStreamWriter(),
  writeFailure: writeMessageFailure,
  writeFailureEvent: writeMessageFailureEvent,
  heartbeat: toSseEvent({ type: 'ping' }),
  responseId: messageId,
}
