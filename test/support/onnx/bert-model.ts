import { OnnxWriter, type Tensor } from './onnx-writer.ts'

export interface BertShape {
  readonly layers: number
  readonly heads: number
  readonly width: number
}

interface BertOptions extends BertShape {
  /** Returns a weight by its name in the published models, such as `embeddings.word_embeddings.weight`. */
  readonly weight: (name: string) => Tensor
  /** Stores the weights of matrix products as 8-bit integers, as the published `model_quantized.onnx` files do. */
  readonly quantized?: boolean
}

const EPSILON = 1e-12
const MASKED = -10_000

/** Returns an ONNX file with the inputs and outputs that exported sentence-transformers models have. */
export function bertModel(options: BertOptions): Uint8Array {
  const { layers, heads, width, weight } = options
  const graph = new OnnxWriter()
  const ids = graph.input('input_ids', 'int64', ['batch', 'sequence'])
  const mask = graph.input('attention_mask', 'int64', ['batch', 'sequence'])
  const types = graph.input('token_type_ids', 'int64', ['batch', 'sequence'])
  const tensor = (name: string): string => graph.tensor(weight(name))
  const normalize = (value: string, name: string): string => {
    const inputs = [value, tensor(`${name}.weight`), tensor(`${name}.bias`)]
    return graph.add('LayerNormalization', inputs, { axis: -1, epsilon: { float: EPSILON } })
  }
  const linear = (value: string, name: string): string => {
    const matrix = transpose(weight(`${name}.weight`))
    const product =
      options.quantized === true ? multiplyQuantized(graph, value, matrix) : multiply(graph, value, matrix)
    return graph.add('Add', [product, tensor(`${name}.bias`)])
  }
  const splitHeads = (value: string, order: readonly number[]): string => {
    const split = graph.add('Reshape', [value, graph.integers(0, 0, heads, width / heads)])
    return graph.add('Transpose', [split], { perm: order })
  }

  const embed = (name: string, indexes: string): string =>
    graph.add('Gather', [tensor(`embeddings.${name}_embeddings.weight`), indexes])
  const words = graph.add('Add', [embed('word', ids), embed('token_type', types)])
  let hidden = graph.add('Add', [words, embed('position', positionsOf(graph, ids))])
  hidden = normalize(hidden, 'embeddings.LayerNorm')
  const floatMask = graph.add('Cast', [graph.add('Unsqueeze', [mask, graph.integers(1, 2)])], { to: 1 })
  const bias = graph.add('Mul', [graph.add('Sub', [graph.scalar(1), floatMask]), graph.scalar(MASKED)])

  for (let layer = 0; layer < layers; layer++) {
    const prefix = `encoder.layer.${layer}`
    const project = (name: string, order: readonly number[]): string =>
      splitHeads(linear(hidden, `${prefix}.attention.self.${name}`), order)
    const scores = graph.add('MatMul', [project('query', [0, 2, 1, 3]), project('key', [0, 2, 3, 1])])
    const scaled = graph.add('Div', [scores, graph.scalar(Math.sqrt(width / heads))])
    const attention = graph.add('Softmax', [graph.add('Add', [scaled, bias])], { axis: -1 })
    const mixed = graph.add('MatMul', [attention, project('value', [0, 2, 1, 3])])
    const joined = graph.add('Transpose', [mixed], { perm: [0, 2, 1, 3] })
    const context = graph.add('Reshape', [joined, graph.integers(0, 0, width)])
    const attended = graph.add('Add', [linear(context, `${prefix}.attention.output.dense`), hidden])
    hidden = normalize(attended, `${prefix}.attention.output.LayerNorm`)
    const inner = gelu(graph, linear(hidden, `${prefix}.intermediate.dense`))
    hidden = normalize(
      graph.add('Add', [linear(inner, `${prefix}.output.dense`), hidden]),
      `${prefix}.output.LayerNorm`,
    )
  }
  graph.output('last_hidden_state', hidden, 'float', ['batch', 'sequence', width])
  return graph.write()
}

function positionsOf(graph: OnnxWriter, ids: string): string {
  const shape = graph.add('Shape', [ids])
  const length = graph.add('Gather', [shape, graph.tensor({ shape: [], data: BigInt64Array.of(1n) })])
  const [start, step] = [0n, 1n].map((value) => graph.tensor({ shape: [], data: BigInt64Array.of(value) }))
  return graph.add('Range', [start ?? '', length, step ?? ''])
}

/** Half of the value, multiplied by 1 + erf(value / √2). */
function gelu(graph: OnnxWriter, value: string): string {
  const erf = graph.add('Erf', [graph.add('Div', [value, graph.scalar(Math.SQRT2)])])
  const product = graph.add('Mul', [value, graph.add('Add', [erf, graph.scalar(1)])])
  return graph.add('Mul', [product, graph.scalar(0.5)])
}

interface Matrix {
  readonly shape: readonly [rows: number, columns: number]
  readonly data: Float32Array
}

function multiply(graph: OnnxWriter, value: string, matrix: Matrix): string {
  return graph.add('MatMul', [value, graph.tensor(matrix)])
}

function multiplyQuantized(graph: OnnxWriter, value: string, { shape, data }: Matrix): string {
  const [rows, columns] = shape
  const scales = new Float32Array(columns)
  for (const [index, one] of data.entries()) {
    const column = index % columns
    scales[column] = Math.max(scales[column] ?? 0, Math.abs(one) / 127)
  }
  const quantized = Int8Array.from(data, (one, index) => Math.round(one / (scales[index % columns] || 1)))
  const weights = graph.tensor({ shape: [rows, columns], data: quantized })
  const [integers = '', scale = '', zero = ''] = graph.addAll('DynamicQuantizeLinear', [value], 3)
  const noZero = graph.tensor({ shape: [columns], data: new Int8Array(columns) })
  const product = graph.add('Cast', [graph.add('MatMulInteger', [integers, weights, zero, noZero])], { to: 1 })
  const factor = graph.add('Mul', [scale, graph.tensor({ shape: [columns], data: scales })])
  return graph.add('Mul', [product, factor])
}

/** The published weights have one row per output. */
function transpose({ shape, data }: Tensor): Matrix {
  const [columns = 0, rows = 0] = shape
  if (!(data instanceof Float32Array)) throw new Error('Expected weights of 32-bit floats.')
  const transposed = new Float32Array(data.length)
  for (let row = 0; row < rows; row++) {
    for (let column = 0; column < columns; column++) transposed[row * columns + column] = data[column * rows + row] ?? 0
  }
  return { shape: [rows, columns], data: transposed }
}
