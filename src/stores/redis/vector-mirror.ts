import { LRUCache } from 'lru-cache'
import type { Neighbor } from '../../core/ports.ts'
import { fieldOf, listOf, numberOf, textOf } from '../reply.ts'

/** Reads the numbers of all vectors of a scope, and a page of the vectors after a number. */
export type ReadVectors = (scope: string, after: number) => Promise<unknown>

/** Copies of the vectors of one Redis without vector sets, which this process compares itself. */
export interface VectorMirror {
  nearest(scope: string, vector: Float32Array, limit: number): Promise<readonly Neighbor[]>
}

interface Copy {
  readonly id: string
  readonly vector: Float32Array
}

/** Number of scopes that are kept: with 256 vectors of 4 KiB each they take 64 MiB. */
const MAX_SCOPES = 64
/** Vectors of one reply. */
export const PAGE = 64

/**
 * A look-up receives the numbers of the vectors that exist and only the vectors that are new. A number that is missing
 * here although it is not new means that the server's data is another: then everything is read again.
 */
export function createVectorMirror(read: ReadVectors, dimensions: number): VectorMirror {
  const scopes = new LRUCache<string, ReadonlyMap<number, Copy>>({ max: MAX_SCOPES })

  async function copiesOf(scope: string): Promise<ReadonlyMap<number, Copy>> {
    const known = new Map(scopes.get(scope))
    let after = Math.max(0, ...known.keys())
    for (let isAgain = false; ;) {
      const reply = await read(scope, after)
      const numbers = new Set(listOf(fieldOf(reply, 'numbers')).map(numberOf))
      for (const number of known.keys()) if (!numbers.has(number)) known.delete(number)
      const page = listOf(fieldOf(reply, 'vectors')).map((entry) => listOf(entry).map(textOf))
      for (const [number, id = '', text = ''] of page) {
        after = numberOf(number)
        known.set(after, { id, vector: vectorIn(text, dimensions) })
      }
      if (page.length === PAGE) continue
      if (known.size === numbers.size || isAgain) break
      known.clear()
      after = 0
      isAgain = true
    }
    scopes.set(scope, known)
    return known
  }

  return {
    nearest: async (scope, vector, limit) => {
      const copies = await copiesOf(scope)
      return Array.from(copies.values(), (copy) => ({ id: copy.id, similarity: product(copy.vector, vector) }))
        .toSorted((one, other) => other.similarity - one.similarity)
        .slice(0, limit)
    },
  }
}

/** Writes 32-bit floats, least byte first, as base64. */
export function writeVector(vector: Float32Array): string {
  const bytes = new Uint8Array(vector.length * 4)
  const view = new DataView(bytes.buffer)
  vector.forEach((value, at) => view.setFloat32(at * 4, value, true))
  return btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(''))
}

/** A vector that was damaged is near to no other. */
function vectorIn(text: string, dimensions: number): Float32Array {
  const vector = new Float32Array(dimensions)
  const bytes = /^[A-Za-z0-9+/]+={0,2}$/.test(text) && text.length % 4 === 0 ? atob(text) : ''
  if (bytes.length !== dimensions * 4) return vector
  const view = new DataView(Uint8Array.from(bytes, (byte) => byte.charCodeAt(0)).buffer)
  return vector.map((_, at) => view.getFloat32(at * 4, true))
}

function product(one: Float32Array, other: Float32Array): number {
  let sum = 0
  for (let at = 0; at < one.length; at += 1) sum += (one[at] ?? 0) * (other[at] ?? 0)
  return sum
}
