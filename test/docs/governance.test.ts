import { expect, it } from 'vitest'
import { blocksOf, runCode } from './pages.ts'

it.each([
  'docs/budgets.md',
  'docs/keys.md',
  'docs/customers.md',
  'docs/operating.md',
  'docs/guides/start-in-an-existing-server.md',
  'docs/guides/cap-what-a-customer-can-spend.md',
  'docs/guides/invoice-from-the-bill.md',
  'docs/guides/bill-my-customers.md',
  'docs/guides/cap-my-agents.md',
  'docs/guides/let-customers-bring-their-own-key.md',
  'docs/guides/cut-the-cost-of-long-conversations.md',
  'docs/guides/answer-repeated-questions-from-the-cache.md',
  'docs/guides/write-a-plugin.md',
])('the code of %s runs unchanged', async (page) => {
  // Tests run only under a test runner. Their code is that of the contract's own tests.
  const blocks = blocksOf(page).filter((code) => !code.includes("from 'vitest'"))
  await expect(runCode(`${blocks.join('\n')}\nawait gateway.close()\n`)).resolves.toBeDefined()
})
