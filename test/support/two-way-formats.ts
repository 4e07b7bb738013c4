import { chatClient } from '../../src/formats/chat/client.ts'
import { chatUpstream } from '../../src/formats/chat/upstream.ts'
import type { ClientFormat, UpstreamFormat } from '../../src/formats/format.ts'
import { messagesClient } from '../../src/formats/messages/client.ts'
import { messagesUpstream } from '../../src/formats/messages/upstream.ts'
import { responsesClient } from '../../src/formats/responses/client.ts'
import { responsesUpstream } from '../../src/formats/responses/upstream.ts'

/** The client and the upstream half of a format, for round-trip tests. */
export type WholeFormat = ClientFormat & UpstreamFormat

export const messagesFormat: WholeFormat = { ...messagesClient, ...messagesUpstream, dialect: messagesClient.dialect }
export const chatFormat: WholeFormat = { ...chatClient, ...chatUpstream, dialect: chatClient.dialect }
export const responsesFormat: WholeFormat = {
  ...responsesClient,
  ...responsesUpstream,
  dialect: responsesClient.dialect,
}
