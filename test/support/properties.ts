/**
 * fast-check for property tests. A failing property prints the command that repeats it: LAW_SEED and LAW_PATH are read
 * here, and start at the case that failed.
 */
import { relative } from 'node:path'
import { fileURLToPath } from 'node:url'
import * as fc from 'fast-check'
import { expect } from 'vitest'
import { cases, IS_FULL } from './full.ts'

const root = fileURLToPath(new URL('../..', import.meta.url))
const { LAW_SEED, LAW_PATH } = process.env

fc.configureGlobal({
  numRuns: cases(100),
  ...(LAW_SEED === undefined ? {} : { seed: Number(LAW_SEED) }),
  ...(LAW_PATH === undefined ? {} : { path: LAW_PATH }),
  reporter: (details: fc.RunDetails<unknown>) => {
    const message = fc.defaultReportMessage(details)
    if (message !== undefined)
      throw new Error(`${repeatCommand(details)}\n${message}`, { cause: details.errorInstance })
  },
})

function repeatCommand({ seed, counterexamplePath }: fc.RunDetails<unknown>): string {
  const { currentTestName = '', testPath = '' } = expect.getState()
  const variables = [
    ...(IS_FULL ? ['FULL_TESTS=1'] : []),
    `LAW_SEED=${seed}`,
    ...(counterexamplePath === null ? [] : [`LAW_PATH=${counterexamplePath}`]),
  ]
  // Vitest reads the title as a regular expression in which a space separates the groups.
  const title = currentTestName.replaceAll(' > ', ' ').replaceAll(/\W/g, '.')
  return `To repeat: ${variables.join(' ')} npx vitest run ${relative(root, testPath)} -t ${title}`
}

export { cases, fc }
