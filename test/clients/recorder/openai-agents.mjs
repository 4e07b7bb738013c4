// Two turns of an agent with one tool, configured only by OPENAI_BASE_URL and OPENAI_API_KEY.
import { Agent, run, setTracingDisabled, tool, user } from '@openai/agents'
import { z } from 'zod'

setTracingDisabled(true)
const readFile = tool({
  name: 'read_file',
  description: 'Reads a file, such as “été.ts”',
  parameters: z.object({ path: z.string() }),
  execute: async ({ path }) => `${path}: The log of the harbour.`,
})
const agent = new Agent({
  name: 'Reader',
  instructions: 'You read the files of a harbour.',
  model: 'gpt-5-mini',
  modelSettings: { store: false, providerData: { include: ['reasoning.encrypted_content'] } },
  tools: [readFile],
})
let history = []
for (const words of ['Read the logs.', 'Read them again.']) {
  const result = await run(agent, [...history, user(words)])
  history = result.history
}
