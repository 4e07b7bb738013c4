import { tmpdir } from 'node:os'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import {
  createLocalEmbedder,
  type LocalEmbedder,
  type LocalEmbedderOptions,
} from '../../src/embedder/local-embedder.ts'
import { startWorkerAt } from '../../src/embedder/model-worker.ts'
import { testEmbedder } from '../../src/testing.ts'
import { buildWorker } from '../support/onnx/build-worker.ts'
import {
  type ModelFiles,
  TINY_DIMENSIONS,
  writeFiles,
  writeImageModel,
  writeStaticModel,
  writeTinyModel,
} from '../support/onnx/tiny-model.ts'

const releases: (() => Promise<void>)[] = []
let workerUrl: URL
let files: ModelFiles

beforeAll(async () => {
  const built = await buildWorker()
  workerUrl = built.url
  files = await kept(writeTinyModel())
  releases.push(built.remove)
})

afterAll(async () => {
  for (const release of releases.toReversed()) await release()
})

async function kept(writing: Promise<ModelFiles>): Promise<ModelFiles> {
  const written = await writing
  releases.push(written.remove)
  return written
}

function after(ms: number, callback: () => void): () => void {
  const timer = setTimeout(callback, ms)
  return () => clearTimeout(timer)
}

function create(options: Partial<LocalEmbedderOptions> = {}, url = workerUrl): LocalEmbedder {
  const { model, tokenizer } = files
  const embedder = createLocalEmbedder(
    { model, tokenizer, dimensions: TINY_DIMENSIONS, runtime: 'onnxruntime-web', ...options },
    { startWorker: (settings, onExit) => startWorkerAt(url, settings, onExit), after },
  )
  releases.push(() => embedder.close())
  return embedder
}

let shared: LocalEmbedder | undefined
testEmbedder('localEmbedder', () => (shared ??= create()), { describe, expect, it })

describe('a static model', () => {
  const createStatic = async (): Promise<LocalEmbedder> => {
    const { model, tokenizer } = await kept(writeStaticModel())
    return create({ model, tokenizer })
  }

  it('embeds a text as the mean of the vectors of its tokens', async () => {
    const embedder = await createStatic()
    const [france = [], egg = [], both = []] = await embedder.embed(['france', 'egg', 'egg france'])

    expect(Math.hypot(...both)).toBeCloseTo(1, 4)
    expect(cosine(france, egg)).toBeLessThan(0.5)
    expect(Math.min(cosine(france, both), cosine(egg, both))).toBeGreaterThan(cosine(france, egg) + 0.1)
  })

  it('returns zeros for a text without tokens', async () => {
    const embedder = await createStatic()

    expect(await embedder.embed(['', 'egg'])).toEqual([new Float32Array(TINY_DIMENSIONS), expect.anything()])
  })
})

describe('the texts', () => {
  it('are read up to maxTokens, keeping the mark of the end', async () => {
    const embedder = create({ maxTokens: 8 })
    const [exact, longer] = await embedder.embed(['a b c d e f', `a b c d e f ${'egg '.repeat(100_000)}`])

    expect(longer).toEqual(exact)
  })

  it('may be empty', async () => {
    const [vector = []] = await create().embed([''])

    expect(Math.hypot(...vector)).toBeCloseTo(1, 4)
  })
})

describe('a model that cannot be used', () => {
  it.each([
    ['an image model', writeImageModel, 'The model has the inputs pixel_values. Expected input_ids and attention_mask'],
    ['a file that is not a model', () => writeFiles('not a model'), 'model.onnx could not be loaded as an ONNX model'],
    ['a tokenizer that is not JSON', () => writeFiles('', '{'), 'tokenizer.json could not be loaded as a tokenizer'],
  ])('is reported by load(): %s', async (_, write, message) => {
    const { model, tokenizer } = await kept(write())

    await expect(create({ model, tokenizer }).load()).rejects.toThrow(message)
  })

  it('is reported if its vectors have another length', async () => {
    await expect(create({ dimensions: 384 }).load()).rejects.toThrow(
      'The model returns vectors of 32 numbers, but dimensions is 384. Set dimensions to 32.',
    )
  })

  it('is reported if a package is not installed', async () => {
    const { url, remove } = await buildWorker(tmpdir())
    releases.push(remove)

    await expect(create({}, url).load()).rejects.toThrow(
      'The package onnxruntime-web is not installed. Run npm install onnxruntime-web.',
    )
  })
})

describe('the options', () => {
  it.each([
    [{ model: '' }, 'model: expected the path of a file, got "".'],
    [{ model: 'missing.onnx' }, 'model: the file "missing.onnx" cannot be read.'],
    [{ tokenizer: '/missing/tokenizer.json' }, 'tokenizer: the file "/missing/tokenizer.json" cannot be read.'],
    [{ maxTokens: 0 }, 'maxTokens: expected an integer from 8 to 8192, got 0.'],
    [{ poolin: 'cls' }, 'poolin: there is no such option. Did you mean pooling?'],
    [{ runtime: 'onnx' }, 'runtime: expected "onnxruntime-node" or "onnxruntime-web", got "onnx".'],
  ])('are checked: %j', (options, message) => {
    expect(() => create(options as Partial<LocalEmbedderOptions>)).toThrow(`localEmbedder: ${message}`)
  })
})

describe('close()', () => {
  it('rejects calls in the queue and later calls', async () => {
    const embedder = create()
    const calls = [embedder.embed(['egg']), embedder.embed(Array.from({ length: 100 }, () => 'france'))]
    const results = Promise.allSettled(calls)
    await embedder.close()

    expect((await results).map(({ status }) => status)).toEqual(['rejected', 'rejected'])
    await expect(embedder.embed(['egg'])).rejects.toThrow('The local embedder is closed. Create another one.')
  })
})

describe('a thread that ends', () => {
  it('rejects its call, and the next call starts another thread', async () => {
    const { model, tokenizer } = files
    const ended: (() => void)[] = []
    const embedder = createLocalEmbedder(
      { model, tokenizer, dimensions: TINY_DIMENSIONS, runtime: 'onnxruntime-web' },
      {
        startWorker: (settings, onExit) => {
          const worker = startWorkerAt(workerUrl, settings, onExit)
          ended.push(() => void worker.stop(new Error('The thread ended.')))
          return worker
        },
        after,
      },
    )
    releases.push(() => embedder.close())
    const call = embedder.embed(['egg'])
    ended[0]?.()

    await expect(call).rejects.toThrow('The thread ended.')
    expect(await embedder.embed(['egg'])).toHaveLength(1)
    expect(ended).toHaveLength(2)
  })
})

function cosine(a: Float32Array | readonly number[], b: Float32Array | readonly number[]): number {
  return Array.from(a).reduce((sum, value, index) => sum + value * (b[index] ?? 0), 0)
}
