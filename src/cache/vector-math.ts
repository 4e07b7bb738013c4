/** The numbers of a vector that are compared first. */
export function headOf(dimensions: number): number {
  return dimensions < 64 ? dimensions : dimensions >>> 2
}

/** Returns the length of a vector without its head. */
export function tailLengthOf(vector: Float32Array): number {
  const head = headOf(vector.length)
  return Math.sqrt(product(vector, vector, head, vector.length))
}

/** Returns the cosine of two vectors of length 1. */
export function cosine(left: Float32Array, right: Float32Array): number {
  const head = headOf(left.length)
  return product(left, right, 0, head) + product(left, right, head, left.length)
}

/** Returns the scalar product of two vectors from one dimension up to another. */
export function product(left: Float32Array, right: Float32Array, from: number, to: number): number {
  let [a, b, c, d] = [0, 0, 0, 0]
  const end = to - ((to - from) % 4)
  for (let index = from; index < end; index += 4) {
    a += (left[index] ?? 0) * (right[index] ?? 0)
    b += (left[index + 1] ?? 0) * (right[index + 1] ?? 0)
    c += (left[index + 2] ?? 0) * (right[index + 2] ?? 0)
    d += (left[index + 3] ?? 0) * (right[index + 3] ?? 0)
  }
  for (let index = end; index < to; index += 1) a += (left[index] ?? 0) * (right[index] ?? 0)
  return a + b + (c + d)
}
