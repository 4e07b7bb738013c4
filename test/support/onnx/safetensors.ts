import type { Tensor } from './onnx-writer.ts'

interface Header {
  readonly dtype: string
  readonly shape: readonly number[]
  readonly data_offsets: readonly [from: number, to: number]
}

/** Reads the weights of a `model.safetensors` file: the length of a JSON header, the header, and the numbers. */
export function readSafetensors(file: Uint8Array): (name: string) => Tensor {
  const length = Number(new DataView(file.buffer, file.byteOffset).getBigUint64(0, true))
  const headers = JSON.parse(new TextDecoder().decode(file.subarray(8, 8 + length))) as Readonly<Record<string, Header>>
  const start = 8 + length
  return (name) => {
    const header = headers[name]
    if (header?.dtype !== 'F32') throw new Error(`The file has no weight "${name}" of 32-bit floats.`)
    const [from, to] = header.data_offsets
    // A copy, because the weights of the file may be at any offset. `Buffer.slice()` would return a view.
    return {
      shape: header.shape,
      data: new Float32Array(Uint8Array.from(file.subarray(start + from, start + to)).buffer),
    }
  }
}
