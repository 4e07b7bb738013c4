import type { UpstreamFormat } from '../format.ts'
import { canForwardMessages } from '../response-fields.ts'
import { readCompletion, createReader } from './response-reader.ts'
import { readFailure } from '../read-failure.ts'
import { writePrompt, writeInSteps } from './request-writer.ts'

export const messagesUpstream: UpstreamFormat = {
  dialect: 'messages',
  writePrompt,
  writeInSteps,
  readCompletion,
  createReader,
  canForward: canForwardMessages,
  readFailure,
}
