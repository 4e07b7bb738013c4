/** A value of an ONNX model: a weight or a constant. */
export interface Tensor {
  readonly shape: readonly number[]
  readonly data: Float32Array | Int8Array | BigInt64Array
}

export type Attributes = Readonly<Record<string, number | readonly number[] | { readonly float: number }>>

const OPSET = 17
const IR_VERSION = 8
const DATA_TYPES = { float: 1, int8: 3, int64: 7 } as const
const ATTRIBUTE_TYPES = { float: 1, int: 2, ints: 7 } as const

type DataType = keyof typeof DATA_TYPES

/** Collects the nodes of a graph and writes them as an ONNX file, a protobuf message. */
export class OnnxWriter {
  readonly #nodes: Uint8Array[] = []
  readonly #tensors: Uint8Array[] = []
  readonly #inputs: Uint8Array[] = []
  readonly #outputs: Uint8Array[] = []
  #count = 0

  input(name: string, type: DataType, shape: readonly (number | string)[]): string {
    this.#inputs.push(valueInfo(name, type, shape))
    return name
  }

  output(name: string, value: string, type: DataType, shape: readonly (number | string)[]): void {
    this.#nodes.push(node('Identity', [value], [name], {}))
    this.#outputs.push(valueInfo(name, type, shape))
  }

  tensor({ shape, data }: Tensor): string {
    const name = this.#newName('tensor')
    const raw = new Uint8Array(data.buffer, data.byteOffset, data.byteLength)
    const dimensions = shape.map((size) => integer(1, size))
    this.#tensors.push(join([...dimensions, integer(2, DATA_TYPES[typeOf(data)]), text(8, name), bytes(9, raw)]))
    return name
  }

  integers(...values: readonly number[]): string {
    return this.tensor({ shape: [values.length], data: BigInt64Array.from(values, BigInt) })
  }

  scalar(value: number): string {
    return this.tensor({ shape: [], data: Float32Array.of(value) })
  }

  add(operator: string, inputs: readonly string[], attributes: Attributes = {}): string {
    const [first = ''] = this.addAll(operator, inputs, 1, attributes)
    return first
  }

  addAll(operator: string, inputs: readonly string[], count: number, attributes: Attributes = {}): readonly string[] {
    const outputs = Array.from({ length: count }, () => this.#newName(operator))
    this.#nodes.push(node(operator, inputs, outputs, attributes))
    return outputs
  }

  write(): Uint8Array {
    const graph = join([
      ...this.#nodes.map((one) => bytes(1, one)),
      text(2, 'graph'),
      ...this.#tensors.map((one) => bytes(5, one)),
      ...this.#inputs.map((one) => bytes(11, one)),
      ...this.#outputs.map((one) => bytes(12, one)),
    ])
    return join([integer(1, IR_VERSION), bytes(7, graph), bytes(8, join([text(1, ''), integer(2, OPSET)]))])
  }

  #newName(kind: string): string {
    return `${kind}_${this.#count++}`
  }
}

function typeOf(data: Tensor['data']): DataType {
  if (data instanceof Float32Array) return 'float'
  return data instanceof Int8Array ? 'int8' : 'int64'
}

function node(
  operator: string,
  inputs: readonly string[],
  outputs: readonly string[],
  attributes: Attributes,
): Uint8Array {
  return join([
    ...inputs.map((name) => text(1, name)),
    ...outputs.map((name) => text(2, name)),
    text(4, operator),
    ...Object.entries(attributes).map(([name, value]) => bytes(5, attribute(name, value))),
  ])
}

function attribute(name: string, value: Attributes[string]): Uint8Array {
  if (typeof value === 'number') return join([text(1, name), integer(3, value), integer(20, ATTRIBUTE_TYPES.int)])
  if ('float' in value) return join([text(1, name), float(2, value.float), integer(20, ATTRIBUTE_TYPES.float)])
  return join([text(1, name), ...value.map((one) => integer(8, one)), integer(20, ATTRIBUTE_TYPES.ints)])
}

function valueInfo(name: string, type: DataType, shape: readonly (number | string)[]): Uint8Array {
  const sizes = shape.map((size) => bytes(1, typeof size === 'number' ? integer(1, size) : text(2, size)))
  const tensorType = join([integer(1, DATA_TYPES[type]), bytes(2, join(sizes))])
  return join([text(1, name), bytes(2, bytes(1, tensorType))])
}

const WIRE_TYPES = { varint: 0, bytes: 2, fixed32: 5 } as const

function varint(value: number): Uint8Array {
  const encoded: number[] = []
  let rest = BigInt.asUintN(64, BigInt(value))
  for (; rest > 127n; rest >>= 7n) encoded.push(Number(rest & 127n) | 128)
  return Uint8Array.from([...encoded, Number(rest)])
}

function tag(field: number, type: keyof typeof WIRE_TYPES): Uint8Array {
  return varint(field * 8 + WIRE_TYPES[type])
}

function integer(field: number, value: number): Uint8Array {
  return join([tag(field, 'varint'), varint(value)])
}

function float(field: number, value: number): Uint8Array {
  return join([tag(field, 'fixed32'), new Uint8Array(Float32Array.of(value).buffer)])
}

function bytes(field: number, value: Uint8Array): Uint8Array {
  return join([tag(field, 'bytes'), varint(value.length), value])
}

function text(field: number, value: string): Uint8Array {
  return bytes(field, new TextEncoder().encode(value))
}

function join(pieces: readonly Uint8Array[]): Uint8Array {
  const joined = new Uint8Array(pieces.reduce((sum, { length }) => sum + length, 0))
  let offset = 0
  for (const piece of pieces) {
    joined.set(piece, offset)
    offset += piece.length
  }
  return joined
}
