import type { Format } from '../format.ts'
import { messageId, readCompletion, writeCompletion } from './answer.ts'
import { readFailure, writeFailure, writeFailureFrame } from './failure.ts'
import { isPlain } from './is-plain.ts'
import { readPrompt } from './read-prompt.ts'
import { stepReader } from './read-steps.ts'
import { frameOf } from './write-block-frames.ts'
import { writePrompt } from './write-prompt.ts'
import { stepWriter } from './write-steps.ts'

/** The message format, both ways. */
export const anthropicFormat: Format = {
  dialect: 'anthropic',
  readPrompt,
  writeCompletion,
  stepWriter,
  writeFailure,
  writeFailureFrame,
  heartbeat: frameOf({ type: 'ping' }),
  writePrompt,
  answerId: messageId,
  readCompletion,
  stepReader,
  isPlain,
  readFailure,
}
