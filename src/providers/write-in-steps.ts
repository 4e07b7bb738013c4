import { createPause } from '../core/async.ts'
import type { Prompt } from '../core/prompt.ts'
import { runWithPauses } from '../core/steps.ts'
import type { UpstreamFormat, WrittenPrompt } from '../formats/format.ts'
import { yieldToEventLoop } from '../tokens/event-loop.ts'

const pause = createPause(yieldToEventLoop)

/** Writes a long prompt, and yields to the event loop between the steps. */
export async function writeInSteps(format: UpstreamFormat, prompt: Prompt, model: string): Promise<WrittenPrompt> {
  const steps = format.writeInSteps?.(prompt, model)
  return steps === undefined ? format.writePrompt(prompt, model) : runWithPauses(steps, pause)
}
