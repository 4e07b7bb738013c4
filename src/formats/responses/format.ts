import type { Format } from '../format.ts'
import { readFailure, writeFailure } from '../openai/failure.ts'
import { readCompletion, writeCompletion } from './answer.ts'
import { failureFrame } from './failure.ts'
import { isPlain } from './is-plain.ts'
import { readPrompt } from './read-prompt.ts'
import { stepReader } from './stream-reader.ts'
import { stepWriter } from './stream-writer.ts'
import { responseTurns } from './turns.ts'
import { writePrompt } from './write-prompt.ts'

/** Conversations that the vendor shortens: a request and an answer much like those of the responses format. */
export function compactFormat(): Format {
  return {
    ...responsesFormat,
    readPrompt: (body, received) => ({ ...readPrompt(body, received), stream: false, operation: 'compact' }),
  }
}

/** The responses format. Its errors outside of streams are those of the chat format. */
export const responsesFormat: Format = {
  dialect: 'responses',
  readPrompt,
  writeCompletion,
  stepWriter,
  writeFailure,
  writeFailureFrame: (failure) => failureFrame(failure, 0),
  heartbeat: 'comment',
  writePrompt,
  readCompletion,
  stepReader,
  isPlain,
  turns: responseTurns,
  readFailure,
}
