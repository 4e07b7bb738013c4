import { messagesClient } from '../formats/messages/client.ts'
import { countStages } from '../pipeline/count.ts'
import type { Services } from '../pipeline/services.ts'
import type { Handler } from './endpoint.ts'
import { exchangeOf } from './exchange-of.ts'

/** POST /v1/messages/count_tokens. */
export function countTokens(services: Services): Handler {
  return (call) => countStages.run(exchangeOf(call, messagesClient), services)
}
