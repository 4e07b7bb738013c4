import { GatewayError } from '../core/errors.ts'

/** Throws for a length of vectors that a database cannot index. */
export function checkDimensions(dimensions: number, max: number): void {
  if (Number.isSafeInteger(dimensions) && dimensions >= 1 && dimensions <= max) return
  throw new GatewayError('invalid-request', `dimensions is ${dimensions}; expected a whole number from 1 to ${max}.`, {
    param: 'dimensions',
  })
}

/** Throws for a vector of another length, and for one with a number that is not finite. */
export function checkVector(vector: Float32Array, dimensions: number): void {
  if (vector.length !== dimensions) {
    throw new GatewayError(
      'internal',
      `A vector has ${vector.length} numbers; this index holds ${dimensions}. Set its dimensions to those of the embedder.`,
    )
  }
  if (!vector.every(Number.isFinite)) {
    throw new GatewayError('internal', 'A vector has a number that is not finite; an index cannot hold it.')
  }
}
