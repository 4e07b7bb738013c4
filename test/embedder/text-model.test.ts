import { describe, expect, it } from 'vitest'
import type { OnnxSession, OnnxTensor } from '../../src/embedder/onnx-runtime.ts'
import { loadRuntime } from '../../src/embedder/onnx-runtime.ts'
import { createTextModel, poolTokens, type TextModelSettings, toUnitVector } from '../../src/embedder/text-model.ts'

class Tensor implements OnnxTensor {
  readonly data: BigInt64Array
  readonly dims: readonly number[]

  constructor(_type: 'int64', data: BigInt64Array, dims: readonly number[]) {
    this.data = data
    this.dims = dims
  }
}

const settings: TextModelSettings = { dimensions: 2, pooling: 'mean', maxTokens: 256 }
const tokenizer = { encode: (text: string) => ({ ids: text.split(' ').map(Number) }) }

/** Embeds a text with a session that returns the given output. */
async function embed(
  output: OnnxTensor,
  names: { inputs?: readonly string[]; outputs?: readonly string[] } = {},
  more: Partial<TextModelSettings> = {},
) {
  const { inputs = ['input_ids', 'attention_mask'], outputs = ['last_hidden_state'] } = names
  const received: Readonly<Record<string, OnnxTensor>>[] = []
  const session: OnnxSession = {
    inputNames: inputs,
    outputNames: outputs,
    run: async (given) => {
      received.push(given)
      return Object.fromEntries(
        outputs.map((name) => [name, name === outputs.at(-1) ? output : new Tensor('int64', BigInt64Array.of(), [])]),
      )
    },
  }
  const vector = await createTextModel({ Tensor }, session, tokenizer, { ...settings, ...more })('7 8 9')
  return { vector, names: Object.keys(received[0] ?? {}) }
}

describe('a text model', () => {
  it('receives only the inputs that it has', async () => {
    const output = { data: Float32Array.of(3, 4), dims: [1, 2] }

    expect((await embed(output)).names).toEqual(['input_ids', 'attention_mask'])
    expect((await embed(output, { inputs: ['input_ids'] })).names).toEqual(['input_ids'])
  })

  it('prefers the output for sentences to that for tokens', async () => {
    const outputs = ['last_hidden_state', 'sentence_embedding']
    const { vector } = await embed({ data: Float32Array.of(3, 4), dims: [1, 2] }, { outputs })

    expect([...vector].map((value) => value.toFixed(1))).toEqual(['0.6', '0.8'])
  })

  it('uses the first token with the pooling "cls"', async () => {
    const output = { data: Float32Array.of(0, 2, 5, 0, 5, 0), dims: [1, 3, 2] }

    expect((await embed(output, {}, { pooling: 'cls' })).vector).toEqual(Float32Array.of(0, 1))
  })

  it('rejects outputs of another type', async () => {
    await expect(embed({ data: new Uint16Array(2), dims: [1, 2] })).rejects.toThrow(
      'The output "last_hidden_state" of the model has no 32-bit floats. Use a model that returns float32.',
    )
  })
})

describe('pooling', () => {
  it('returns zeros for vectors without a direction', () => {
    expect(toUnitVector(Float32Array.of(0, 0))).toEqual(Float32Array.of(0, 0))
    expect(toUnitVector(Float32Array.of(Number.NaN, 1))).toEqual(Float32Array.of(0, 0))
    expect(toUnitVector(Float32Array.of(Infinity, 1))).toEqual(Float32Array.of(0, 0))
    expect(poolTokens(Float32Array.of(1, 0, -1, 0), 2, 'mean')).toEqual(Float32Array.of(0, 0))
  })
})

describe('the package that runs the model', () => {
  const runtime = { InferenceSession: {}, Tensor: {} }
  const missing = (name: string): Error =>
    Object.assign(new Error(`Cannot find package '${name}' imported from here`), { code: 'ERR_MODULE_NOT_FOUND' })

  it('is the first one that is installed', async () => {
    const { name } = await loadRuntime(['onnxruntime-node', 'onnxruntime-web'], async (module) => {
      if (module === 'onnxruntime-node') throw missing(module)
      return { default: runtime }
    })

    expect(name).toBe('onnxruntime-web')
  })

  it('is named with the command that installs it if none is installed', async () => {
    const load = loadRuntime(['onnxruntime-node', 'onnxruntime-web'], (module) => Promise.reject(missing(module)))

    await expect(load).rejects.toThrow(
      'The package onnxruntime-node or onnxruntime-web is not installed. Run npm install onnxruntime-node.',
    )
  })

  it('is not skipped if it is installed but broken', async () => {
    const load = loadRuntime(['onnxruntime-node', 'onnxruntime-web'], () => Promise.reject(missing('adm-zip')))

    await expect(load).rejects.toThrow('The package onnxruntime-node could not be loaded: Cannot find package')
  })
})
