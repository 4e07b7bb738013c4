import { execFile } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { expect, it } from 'vitest'

const root = fileURLToPath(new URL('../..', import.meta.url))

it.each([
  'docs/budgets.md',
  'docs/keys.md',
  'docs/operating.md',
  'docs/guides/start-in-an-existing-server.md',
  'docs/guides/cap-what-a-customer-can-spend.md',
  'docs/guides/invoice-from-the-bill.md',
  'docs/guides/cut-the-cost-of-long-conversations.md',
  'docs/guides/answer-repeated-questions-from-the-cache.md',
  'docs/guides/write-a-plugin.md',
])('the code of %s runs unchanged', async (page) => {
  // Tests run only under a test runner. Their code is that of the contract's own tests.
  const blocks = [...readFileSync(join(root, page), 'utf8').matchAll(/```ts\n([\s\S]*?)```/g)]
    .map((match) => match[1] ?? '')
    .filter((code) => !code.includes("from 'vitest'"))
  const folder = mkdtempSync(join(root, 'test/docs/run-'))
  try {
    const file = join(folder, 'page.ts')
    writeFileSync(file, `${blocks.join('\n')}\nawait gateway.close()\n`)
    const run = promisify(execFile)(process.execPath, ['--import', 'tsx', file], { cwd: root })
    await expect(run).resolves.toBeDefined()
  } finally {
    rmSync(folder, { recursive: true })
  }
})
