import { chatClient } from '../formats/chat/client.ts'
import { embeddingStages } from '../pipeline/run-embedding.ts'
import type { Services } from '../pipeline/services.ts'
import type { Handler } from './endpoint.ts'
import { exchangeOf } from './exchange-of.ts'

/** POST /v1/embeddings. Its errors are those of the chat format. */
export function embeddings(services: Services): Handler {
  return (call) => embeddingStages.run(exchangeOf(call, chatClient), services)
}
