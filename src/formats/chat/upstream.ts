import type { UpstreamFormat } from '../format.ts'
import { canForwardChat } from '../response-fields.ts'
import { readCompletion, createReader } from './response-reader.ts'
import { readFailure } from '../read-failure.ts'
import { writePrompt, writeInSteps } from './request-writer.ts'

export const chatUpstream: UpstreamFormat = {
  dialect: 'chat',
  writePrompt,
  writeInSteps,
  readCompletion,
  createReader,
  canForward: canForwardChat,
  readFailure,
}
