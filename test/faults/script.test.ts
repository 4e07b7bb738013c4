import { execFile } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { expect, it } from 'vitest'

const run = promisify(execFile)

it('a process stays alive while its request waits for a retry, and exits after the answer', async () => {
  const script = fileURLToPath(new URL('../support/scripts/retry.ts', import.meta.url))
  const { stdout } = await run(process.execPath, ['--import', 'tsx', script])
  expect(stdout).toBe('200 2 At last.\n')
})
