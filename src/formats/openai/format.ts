import type { Format } from '../format.ts'
import { readCompletion, writeCompletion } from './answer.ts'
import { readFailure, writeFailure, writeFailureFrame } from './failure.ts'
import { isPlain } from './is-plain.ts'
import { readPrompt } from './prompt.ts'
import { stepReader } from './stream-reader.ts'
import { stepWriter } from './stream-writer.ts'
import { writePrompt } from './write-prompt.ts'

/** The chat-completions format. */
export const openaiFormat: Format = {
  dialect: 'openai',
  readPrompt,
  writeCompletion,
  stepWriter,
  writeFailure,
  writeFailureFrame,
  heartbeat: 'comment',
  writePrompt,
  readCompletion,
  stepReader,
  isPlain,
  readFailure,
}
