import type Anthropic from '@anthropic-ai/sdk'

/** Polls a batch until it ends, and returns it. */
export async function waitForBatch(client: Anthropic, id: string): Promise<Anthropic.Messages.MessageBatch> {
  for (;;) {
    const batch = await client.messages.batches.retrieve(id)
    if (batch.processing_status === 'ended') return batch
  }
}

/** Returns all lines of the results. */
export async function readResults(
  client: Anthropic,
  id: string,
): Promise<readonly Anthropic.Messages.MessageBatchIndividualResponse[]> {
  const lines = []
  for await (const line of await client.messages.batches.results(id)) lines.push(line)
  return lines
}
