import { openaiFormat } from '../formats/openai/format.ts'
import { receive } from '../pipeline/receive.ts'
import { runEmbedding } from '../pipeline/run-embedding.ts'
import type { Parts } from '../pipeline/stages.ts'
import type { Handler } from './endpoint.ts'

/** POST /v1/embeddings. Its errors are those of the chat format. */
export function embeddings(parts: Parts): Handler {
  return ({ id, startedAt, request }) => runEmbedding(receive({ id, startedAt, request, format: openaiFormat }), parts)
}
