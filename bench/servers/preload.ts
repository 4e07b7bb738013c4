/** Loaded by `--import` into servers that are not ours, so that they answer the bench as well. */
import { answerQuestions } from './agent.ts'

answerQuestions()
