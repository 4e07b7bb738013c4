import type { UpstreamFormat } from '../format.ts'
import { readFailure } from '../read-failure.ts'
import { readCompletion, createReader } from './response-reader.ts'
import { canForwardResponses } from '../response-fields.ts'
import { writePrompt, writeInSteps } from './request-writer.ts'

export const responsesUpstream: UpstreamFormat = {
  dialect: 'responses',
  writePrompt,
  writeInSteps,
  readCompletion,
  createReader,
  canForward: canForwardResponses,
  readFailure,
}
