import { omittedNames } from '../response-fields.ts'
import { writeChatFailure, writeResponseFailureEvent } from '../failures.ts'
import type { ClientFormat, TurnFormat } from '../format.ts'
import { omittedName } from './output-items.ts'
import { turns } from './turns.ts'
import { readPrompt } from './request-reader.ts'
import { writeCompletion, createStreamWriter } from './response-writer.ts'

export const responsesClient: ClientFormat & { readonly turns: TurnFormat } = {
  dialect: 'responses',
  readPrompt,
  writeCompletion,
  omittedContent: ({ parts }) => omittedNames(parts, omittedName),
  createStreamWriter,
  writeFailure: writeChatFailure,
  writeFailureEvent: (failure) => writeResponseFailureEvent(failure, 0),
  heartbeat: 'comment',
  turns,
}

export const compactClient: ClientFormat = {
  ...responsesClient,
  readPrompt: (body, received) => ({ ...readPrompt(body, received), stream: false, operation: 'compact' }),
}
