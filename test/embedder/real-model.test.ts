import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { createLocalEmbedder, type LocalEmbedder } from '../../src/embedder/local-embedder.ts'
import { startWorkerAt } from '../../src/embedder/model-worker.ts'
import { buildWorker } from '../support/onnx/build-worker.ts'
import { isMiniLmInstalled, writeMiniLm } from '../support/onnx/minilm.ts'
import type { ModelFiles } from '../support/onnx/tiny-model.ts'

const QUESTION = 'How can I stay warm at night?'
const ADVICE = 'Put the sleeping bag near the radiator, and drink cocoa before bed.'
const OTHERS = ['Invoices are due within thirty days.', 'The compiler reports an unused variable.']

describe.skipIf(!isMiniLmInstalled())('all-MiniLM-L6-v2, converted from its published weights', () => {
  describe.each([false, true])('quantized: %s', (quantized) => {
    let embedder: LocalEmbedder
    let files: ModelFiles
    let worker: Awaited<ReturnType<typeof buildWorker>>

    beforeAll(async () => {
      worker = await buildWorker()
      files = await writeMiniLm({ quantized })
      const { model, tokenizer } = files
      embedder = createLocalEmbedder(
        { model, tokenizer, runtime: 'onnxruntime-web' },
        {
          startWorker: (settings, onExit) => startWorkerAt(worker.url, settings, onExit),
          after: (ms, callback) => {
            const timer = setTimeout(callback, ms)
            return () => clearTimeout(timer)
          },
        },
      )
    })

    afterAll(async () => {
      await embedder.close()
      await files.remove()
      await worker.remove()
    })

    it('finds the answer that shares no word with the question', async () => {
      const [question = new Float32Array(), ...texts] = await embedder.embed([QUESTION, ADVICE, ...OTHERS])
      const [advice = 0, ...others] = texts.map((vector) =>
        vector.reduce((sum, value, index) => sum + value * (question[index] ?? 0), 0),
      )

      expect(advice).toBeGreaterThan(0.3)
      expect(Math.max(...others)).toBeLessThan(0.15)
    })
  })
})
