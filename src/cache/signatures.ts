import { mix } from './typos.ts'

export const SIGNATURE_WORDS = 32
const SIGNATURE_BITS = SIGNATURE_WORDS * 32
const ROUNDS = 3
/** In standard deviations. The probability that a near vector exceeds the limit at one word is about 10^-10. */
const DEVIATIONS = 6.5
/** Prevents rounding errors from rejecting equal vectors. */
const SLACK_BITS = 2

/** Returns the signs of projections onto 1024 random directions. A bit differs with probability angle / π. */
export type Signer = (vector: Float32Array) => Uint32Array

/** A randomized Hadamard transform takes 30,000 additions instead of a million multiplications. */
export function createSigner(dimensions: number): Signer {
  const size = Math.max(SIGNATURE_BITS, 2 ** Math.ceil(Math.log2(dimensions)))
  const signs = Float32Array.from({ length: size * ROUNDS }, (_, index) => ((mix(index + 1) & 1) === 0 ? 1 : -1))
  return (vector) => {
    const work = new Float32Array(size)
    work.set(vector)
    for (let round = 0; round < ROUNDS; round += 1) {
      for (let index = 0; index < size; index += 1) {
        work[index] = (work[index] ?? 0) * (signs[round * size + index] ?? 1)
      }
      hadamard(work)
    }
    const signature = new Uint32Array(SIGNATURE_WORDS)
    for (let bit = 0; bit < SIGNATURE_BITS; bit += 1) {
      if ((work[bit] ?? 0) >= 0) signature[bit >>> 5] = (signature[bit >>> 5] ?? 0) | (1 << (bit & 31))
    }
    return signature
  }
}

function hadamard(values: Float32Array): void {
  for (let half = 1; half < values.length; half *= 2) {
    for (let start = 0; start < values.length; start += half * 2) {
      for (let index = start; index < start + half; index += 1) {
        const [a, b] = [values[index] ?? 0, values[index + half] ?? 0]
        values[index] = a + b
        values[index + half] = a - b
      }
    }
  }
}

/** Returns how many bits may differ in the first 1, 2 … 32 signature words of two vectors with at least this cosine. */
export function bitLimitsOf(minSimilarity: number): readonly number[] {
  const probability = Math.acos(Math.min(1, Math.max(-1, minSimilarity))) / Math.PI
  return Array.from({ length: SIGNATURE_WORDS }, (_, word) => {
    const bits = (word + 1) * 32
    const deviation = Math.sqrt(bits * probability * (1 - probability))
    return Math.min(bits, Math.ceil(bits * probability + DEVIATIONS * deviation) + SLACK_BITS)
  })
}

export function countOnes(value: number): number {
  let bits = value - ((value >>> 1) & 0x55555555)
  bits = (bits & 0x33333333) + ((bits >>> 2) & 0x33333333)
  return Math.imul((bits + (bits >>> 4)) & 0x0f0f0f0f, 0x01010101) >>> 24
}
