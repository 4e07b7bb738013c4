// Runs the OpenAI Agents SDK for two steps, configured only by OPENAI_BASE_URL and OPENAI_API_KEY.
import { Agent, run, setTracingDisabled, tool } from '@openai/agents'
import { z } from 'zod'

setTracingDisabled(true)
const weather = tool({
  name: 'weather',
  description: 'The weather of a city',
  parameters: z.object({ city: z.string() }),
  execute: async ({ city }) => `21 degrees in ${city}`,
})
const agent = new Agent({ name: 'Guide', instructions: 'Be brief.', model: 'gpt-5-mini', tools: [weather] })

const whole = await run(agent, 'What is the weather in Paris?')
const streamed = await run(agent, 'What is the weather in Paris?', { stream: true })
for await (const _ of streamed) {
  // The last item is the response.
}
await streamed.completed
process.stdout.write(`${JSON.stringify([whole.finalOutput, streamed.finalOutput])}\n`)
