/** Creates a batch and prints its results, offline: npx tsx examples/batches.ts */
import Anthropic from '@anthropic-ai/sdk'
import { createGateway } from 'sluice'
import { extractive } from 'sluice/testing'
import { serve } from 'sluice/node'

const gateway = createGateway({ providers: [extractive()] })
const key = await gateway.keys.create({ name: 'example', budgetLimitCents: 1000, budgetResetDuration: '1M' })
const server = await serve(gateway, { port: Number(process.env['PORT'] ?? 3000) })
const { batches } = new Anthropic({ baseURL: server.url, apiKey: key.value }).messages

const questions = ['What is a sluice?', 'What is a weir?', 'What is a lock?']
const facts = 'A sluice is a gate for water. A weir is a low dam. A lock lifts ships.'
const created = await batches.create({
  requests: questions.map((question, n) => ({
    custom_id: `question-${n}`,
    params: {
      model: 'extractive/extractive',
      max_tokens: 100,
      messages: [{ role: 'user', content: `${facts} ${question}` }],
    },
  })),
})
console.log(`${created.id} is ${created.processing_status}`)

for (let batch = created; batch.processing_status !== 'ended'; batch = await batches.retrieve(created.id)) {
  await new Promise((resolve) => setTimeout(resolve, 100))
}
for await (const { custom_id: id, result } of await batches.results(created.id)) {
  console.log(id, result.type === 'succeeded' ? result.message.content : result)
}
await server.close()
await gateway.close()
