/** Returns a 32-bit hash of UTF-16 units (FNV-1a with a final mix), the same on every platform. */
export function hash32(text: string, seed: number): number {
  let hash = (0x811c9dc5 ^ seed) >>> 0
  for (let index = 0; index < text.length; index += 1) {
    hash = Math.imul(hash ^ text.charCodeAt(index), 0x01000193)
  }
  return mix(hash)
}

/** Spreads every bit of a 32-bit number over all others. */
export function mix(value: number): number {
  let hash = value
  hash = Math.imul(hash ^ (hash >>> 16), 0x85ebca6b)
  hash = Math.imul(hash ^ (hash >>> 13), 0xc2b2ae35)
  return (hash ^ (hash >>> 16)) >>> 0
}

/** Number of 32-bit words in a signature. */
export const SIGNATURE_WORDS = 32
const BITS = SIGNATURE_WORDS * 32
/** Rounds of sign flips and mixing. Three behave like random directions for any input. */
const ROUNDS = 3
/** Standard deviations above the mean number of differing bits at which a vector is not compared: one in 10^10. */
const DEVIATIONS = 6.5
/** Added bits, so that rounding never rejects equal vectors. */
const SLACK = 2

/** Writes the signs of a vector's projections on 1024 fixed random directions. */
export type Signer = (vector: Float32Array, signature: Uint32Array) => void

/**
 * Near vectors have nearly the same signature: each bit differs with a probability of angle / π. The directions come
 * from a randomized Hadamard transform, so a signature takes 30,000 additions instead of a million multiplications.
 */
export function createSigner(dimensions: number): Signer {
  const size = Math.max(BITS, 2 ** Math.ceil(Math.log2(dimensions)))
  const signs = Float32Array.from({ length: size * ROUNDS }, (_, index) => ((mix(index + 1) & 1) === 0 ? 1 : -1))
  const work = new Float32Array(size)
  return (vector, signature) => {
    work.fill(0)
    work.set(vector.subarray(0, dimensions))
    for (let round = 0; round < ROUNDS; round += 1) {
      for (let index = 0; index < size; index += 1) {
        work[index] = (work[index] ?? 0) * (signs[round * size + index] ?? 1)
      }
      hadamard(work)
    }
    for (let word = 0; word < SIGNATURE_WORDS; word += 1) signature[word] = signsFrom(work, word * 32)
  }
}

function signsFrom(work: Float32Array, from: number): number {
  let bits = 0
  for (let bit = 0; bit < 32; bit += 1) bits |= ((work[from + bit] ?? 0) >= 0 ? 1 : 0) << bit
  return bits >>> 0
}

function hadamard(values: Float32Array): void {
  for (let half = 1; half < values.length; half *= 2) {
    for (let start = 0; start < values.length; start += half * 2) {
      for (let index = start; index < start + half; index += 1) {
        const [one, other] = [values[index] ?? 0, values[index + half] ?? 0]
        values[index] = one + other
        values[index + half] = one - other
      }
    }
  }
}

/** Returns the maximum number of bits that may differ in the first `words` words for vectors of at least this cosine. */
export function maxDifferentBits(least: number, words: number): number {
  const bits = words * 32
  const chance = Math.acos(Math.min(1, Math.max(-1, least))) / Math.PI
  return Math.min(bits, Math.ceil(bits * chance + DEVIATIONS * Math.sqrt(bits * chance * (1 - chance))) + SLACK)
}

/** Returns the number of ones in a 32-bit number. */
export function countOnes(value: number): number {
  let bits = value - ((value >>> 1) & 0x55555555)
  bits = (bits & 0x33333333) + ((bits >>> 2) & 0x33333333)
  return Math.imul((bits + (bits >>> 4)) & 0x0f0f0f0f, 0x01010101) >>> 24
}
