import { expect, it } from 'vitest'
import { fieldCostsOf, findVendorWork } from '../../../src/formats/prompt-checks.ts'
import { messagesClient } from '../../../src/formats/messages/client.ts'

it.each([
  ['computer_toolset_20260801', undefined],
  ['browser_toolset_20260801', undefined],
  ['bash_20250124', undefined],
  ['memory_20250818', undefined],
  ['web_search_20260318', 'tools[0]'],
  ['code_execution_20260521', 'tools[0]'],
  ['browser_toolset_20260801x', 'tools[0]'],
])('a tool of the type %s is run by the caller unless it is vendor-side work', async (type, expected) => {
  const prompt = messagesClient.readPrompt({
    model: 'anthropic/claude-opus-5-5',
    max_tokens: 20,
    messages: [{ role: 'user', content: 'Hello?' }],
    tools: [{ type, name: 'tool' }],
  })

  expect(findVendorWork(prompt, await fieldCostsOf(prompt))).toBe(expected)
})
