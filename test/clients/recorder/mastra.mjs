// Two turns of an agent with one tool, in the format of the model that MODEL names. Needs Node 22.
import { Agent } from '@mastra/core/agent'
import { createTool } from '@mastra/core/tools'
import { z } from 'zod'

const readFile = createTool({
  id: 'read_file',
  description: 'Reads a file, such as “été.ts”',
  inputSchema: z.object({ path: z.string() }),
  execute: async ({ path }) => `${path}: The log of the harbour.`,
})
const model = { id: process.env.MODEL, url: `${process.env.GATEWAY_URL}/v1`, apiKey: process.env.GATEWAY_KEY }
const instructions = 'You read the files of a harbour.'
const agent = new Agent({ id: 'reader', name: 'Reader', instructions, model, tools: { read_file: readFile } })
let messages = []
for (const content of ['Read the logs.', 'Read them again.']) {
  messages.push({ role: 'user', content })
  const { response } = await agent.generate(messages)
  messages = [...messages, ...response.messages]
}
