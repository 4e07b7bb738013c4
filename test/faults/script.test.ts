import { execFile } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { expect, it } from 'vitest'
import { bundlePrograms } from '../support/programs.ts'

const run = promisify(execFile)

it('a process stays alive while its request waits for a retry, and exits after the answer', async () => {
  const programs = await bundlePrograms({
    retry: { file: fileURLToPath(new URL('../support/scripts/retry.ts', import.meta.url)) },
  })
  const { stdout } = await run(process.execPath, [programs.fileOf('retry')])
  await programs.remove()
  expect(stdout).toBe('200 2 At last.\n')
})
