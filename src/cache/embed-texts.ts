import type { Cancellation } from '../core/cancellation.ts'
import type { Embedder } from '../core/cache-ports.ts'
import type { Runtime } from '../core/ports.ts'
import { createEmbedderHealth } from './embedder-health.ts'
import { isPending, withTimeout } from './timeout.ts'

export interface EmbedTextsOptions {
  readonly embedder: Embedder
  readonly runtime: Pick<Runtime, 'now' | 'after'>
  readonly timeoutMs: number
}

/** Vectors of length 1; undefined for a text whose vector is not usable. */
export type Vectors = readonly (Float32Array | undefined)[]

/**
 * Embeds texts of one key. Throws or rejects when the embedder fails, is late or is paused after failures, and when the
 * vector of the first text is not usable: wrong dimensions, NaN, only zeros.
 */
export type EmbedTexts = (
  texts: readonly string[],
  caller: { readonly keyId: string; readonly cancellation: Cancellation | undefined },
) => Vectors | Promise<Vectors>

export function createEmbedTexts({ embedder, runtime, timeoutMs }: EmbedTextsOptions): EmbedTexts {
  const health = createEmbedderHealth(runtime.now)
  return (texts, { keyId, cancellation }) => {
    if (health.isResting(keyId)) throw new Error('the embedder is paused after failures')
    const failed = (error: unknown): never => {
      if (cancellation?.isCancelled !== true) health.failed(keyId)
      throw error
    }
    const accept = (given: readonly Float32Array[]): Vectors => {
      const vectors = texts.map((_, at) => unitOf(given[at], embedder.dimensions))
      if (vectors[0] === undefined) return failed(new Error(`${embedder.name} returned a vector without a direction`))
      health.succeeded(keyId)
      return vectors
    }
    const timeout = { ms: timeoutMs, after: runtime.after, cancellation }
    try {
      const given = withTimeout(timeout, (ending) => embedder.embed(texts, ending))
      return isPending(given) ? given.then(accept, failed) : accept(given)
    } catch (error) {
      return failed(error)
    }
  }
}

function unitOf(vector: Float32Array | undefined, dimensions: number): Float32Array | undefined {
  if (vector === undefined || vector.length !== dimensions) return undefined
  let squares = 0
  for (const value of vector) squares += value * value
  const length = Math.sqrt(squares)
  return Number.isFinite(length) && length > 0 ? vector.map((value) => value / length) : undefined
}
