import type { OnnxRuntime, OnnxSession, OnnxTensor } from './onnx-runtime.ts'

/** How the vectors of a text's tokens become the vector of the text: their mean, or the vector of the first token. */
export type Pooling = 'mean' | 'cls'

/** The part of `@huggingface/tokenizers` that the embedder uses. */
export interface TextTokenizer {
  encode(text: string, options: { readonly add_special_tokens: boolean }): { readonly ids: readonly number[] }
}

export interface TextModelSettings {
  readonly dimensions: number
  readonly pooling: Pooling
  readonly maxTokens: number
}

/** Converts a text to a unit vector, or to zeros if the text has no tokens that the model knows. */
export type EmbedText = (text: string) => Promise<Float32Array>

const TRANSFORMER_INPUTS = ['input_ids', 'attention_mask', 'token_type_ids']
const STATIC_INPUTS = ['input_ids', 'offsets']
/** Output names of published models, best first. */
const OUTPUTS = ['sentence_embedding', 'last_hidden_state', 'token_embeddings', 'embeddings']

/** Returns a function that embeds a text with a transformer, or with a static model as exported by Model2Vec. */
export function createTextModel(
  { Tensor }: Pick<OnnxRuntime, 'Tensor'>,
  session: OnnxSession,
  tokenizer: TextTokenizer,
  settings: TextModelSettings,
): EmbedText {
  const { dimensions, pooling, maxTokens } = settings
  const isStatic = hasInputs(session, STATIC_INPUTS)
  const output = OUTPUTS.find((name) => session.outputNames.includes(name)) ?? session.outputNames[0] ?? ''
  checkInputs(session, isStatic)

  const tensor = (values: readonly number[], shape: readonly number[]): OnnxTensor =>
    new Tensor('int64', BigInt64Array.from(values, BigInt), shape)
  const inputsOf = (ids: readonly number[]): Readonly<Record<string, OnnxTensor>> => {
    if (isStatic) return { input_ids: tensor(ids, [ids.length]), offsets: tensor([0], [1]) }
    const shape = [1, ids.length]
    const values = [ids, ids.map(() => 1), ids.map(() => 0)]
    const inputs = TRANSFORMER_INPUTS.map((name, index) => [name, tensor(values[index] ?? [], shape)] as const)
    return Object.fromEntries(inputs.filter(([name]) => session.inputNames.includes(name)))
  }

  return async (text) => {
    const { ids } = tokenizer.encode(text, { add_special_tokens: !isStatic })
    if (ids.length === 0) return new Float32Array(dimensions)
    const outputs = await session.run(inputsOf(truncate(ids, maxTokens, isStatic)))
    const vectors = outputs[output]
    const data = vectors?.data
    if (vectors === undefined || !(data instanceof Float32Array))
      throw new Error(`The output "${output}" of the model has no 32-bit floats. Use a model that returns float32.`)
    const length = vectors.dims.at(-1)
    if (length !== dimensions)
      throw new Error(
        `The model returns vectors of ${length} numbers, but dimensions is ${dimensions}. Set dimensions to ${length}.`,
      )
    return vectors.dims.length === 3 ? poolTokens(data, dimensions, pooling) : toUnitVector(data.slice(0, dimensions))
  }
}

/** Keeps the last token of a transformer's input, because it marks the end. */
function truncate(ids: readonly number[], maxTokens: number, isStatic: boolean): readonly number[] {
  if (ids.length <= maxTokens) return ids
  return isStatic ? ids.slice(0, maxTokens) : [...ids.slice(0, maxTokens - 1), ...ids.slice(-1)]
}

function hasInputs({ inputNames }: OnnxSession, names: readonly string[]): boolean {
  return names.every((name) => inputNames.includes(name))
}

function checkInputs(session: OnnxSession, isStatic: boolean): void {
  const supported = isStatic ? STATIC_INPUTS : TRANSFORMER_INPUTS
  const unsupported = session.inputNames.filter((name) => !supported.includes(name))
  if (unsupported.length === 0 && session.inputNames.includes('input_ids')) return
  throw new Error(
    `The model has the inputs ${session.inputNames.join(', ')}. Expected input_ids and attention_mask, or input_ids and offsets. Use a model that embeds texts.`,
  )
}

/** `tokens` contains one vector of `dimensions` numbers per token. */
export function poolTokens(tokens: Float32Array, dimensions: number, pooling: Pooling): Float32Array {
  const first = tokens.slice(0, dimensions)
  if (pooling === 'cls') return toUnitVector(first)
  for (let index = dimensions; index < tokens.length; index++) {
    const position = index % dimensions
    first[position] = (first[position] ?? 0) + (tokens[index] ?? 0)
  }
  // The sum has the direction of the mean.
  return toUnitVector(first)
}

/** Returns zeros if the vector has no direction. Callers treat such a vector as missing. */
export function toUnitVector(vector: Float32Array): Float32Array {
  const norm = Math.sqrt(vector.reduce((sum, value) => sum + value * value, 0))
  return Number.isFinite(norm) && norm > 0 ? vector.map((value) => value / norm) : new Float32Array(vector.length)
}
