import type { UpstreamFormat } from '../format.ts'
import { runSteps } from '../../core/steps.ts'
import { writeInSteps } from './request-writer.ts'
import { readCompletion, createReader, readFailure } from './response-reader.ts'

export const geminiUpstream: UpstreamFormat = {
  dialect: 'gemini',
  writePrompt: (prompt, model) => runSteps(writeInSteps(prompt, model)),
  writeInSteps,
  readCompletion,
  createReader,
  readFailure,
}
