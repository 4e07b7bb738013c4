import type { Format } from '../format.ts'
import { readFailure, writeFailure } from '../openai/failure.ts'
import { readCompletion, writeCompletion } from './answer.ts'
import { failureFrame } from './failure.ts'
import { readPrompt } from './read-prompt.ts'
import { stepReader } from './stream-reader.ts'
import { stepWriter } from './stream-writer.ts'
import { responseTurns } from './turns.ts'
import { writePrompt } from './write-prompt.ts'

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
  turns: responseTurns,
  readFailure,
}
