import { hashEmbedding } from '../cache/hashing-embedder.ts'
import { GatewayError } from '../core/errors.ts'
import type { EmbedCall, Embedded, EmbedInput } from '../core/ports.ts'
import { tokens } from './extractive-answer.ts'

/** The length of the vectors that the hashing embedder makes. */
const DIMENSIONS = 1024

/**
 * Embeds without a network: texts that are written nearly alike come near to each other. It knows no meanings. Fewer
 * dimensions are the first ones of the whole vector, brought to length 1 again.
 */
export function embedOffline({ request, model }: EmbedCall): Embedded {
  const { dimensions = DIMENSIONS, inputs } = request
  if (dimensions > DIMENSIONS) {
    throw new GatewayError('invalid-request', `dimensions is ${dimensions}; this model has at most ${DIMENSIONS}.`, {
      param: 'dimensions',
    })
  }
  return {
    model: model.id,
    embeddings: inputs.map((input) => shortened(hashEmbedding(textOf(input)), dimensions)),
    inputTokens: inputs.reduce((sum, input) => sum + (typeof input === 'string' ? tokens(input) : input.length), 0),
  }
}

/** The words of the tokens are not known offline. Equal tokens count as equal texts. */
function textOf(input: EmbedInput): string {
  return typeof input === 'string' ? input : input.map((token) => `t${token}`).join(' ')
}

function shortened(vector: Float32Array, dimensions: number): readonly number[] {
  const numbers = [...vector.subarray(0, dimensions)]
  const length = Math.hypot(...numbers)
  return length === 0 ? numbers : numbers.map((number) => number / length)
}
