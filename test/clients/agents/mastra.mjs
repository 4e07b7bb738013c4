// Runs a Mastra agent for two steps in both formats. Needs Node 22.
import { Agent } from '@mastra/core/agent'
import { createTool } from '@mastra/core/tools'
import { z } from 'zod'

const weather = createTool({
  id: 'weather',
  description: 'The weather of a city',
  inputSchema: z.object({ city: z.string() }),
  execute: async () => ({ degrees: 21 }),
})
const answers = []
for (const id of ['openai/gpt-5-mini', 'anthropic/claude-sonnet-4-5']) {
  const model = { id, url: `${process.env.GATEWAY_URL}/v1`, apiKey: process.env.GATEWAY_KEY }
  const agent = new Agent({ id: 'guide', name: 'Guide', instructions: 'Be brief.', model, tools: { weather } })
  answers.push((await agent.generate('What is the weather in Paris?')).text)
  const streamed = await agent.stream('What is the weather in Paris?')
  answers.push(await streamed.text)
}
process.stdout.write(`${JSON.stringify(answers)}\n`)
