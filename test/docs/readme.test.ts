import { execFile } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { describe, expect, it } from 'vitest'

const root = fileURLToPath(new URL('../..', import.meta.url))

/** Returns the TypeScript blocks of a page in order. */
function blocksOf(page: string): readonly string[] {
  return [...readFileSync(join(root, page), 'utf8').matchAll(/```ts\n([\s\S]*?)```/g)].map((match) => match[1] ?? '')
}

describe('the README', () => {
  it('contains code that starts a gateway and prints an answer and its bill', async () => {
    const folder = mkdtempSync(join(root, 'test/docs/run-'))
    try {
      const file = join(folder, 'readme.ts')
      const anyPort = blocksOf('README.md').join('\n').replace('port: 8787', 'port: 0')
      writeFileSync(file, `${anyPort}\nawait server.close()\nawait gateway.close()\n`)

      const { stdout } = await promisify(execFile)(process.execPath, ['--import', 'tsx', file], { cwd: root })

      expect(stdout).toMatch(/A sluice is a gate for water\. \$\d+\.\d{6}\n/)
    } finally {
      rmSync(folder, { recursive: true })
    }
  })

  it('contains the two commands of the setup', () => {
    const readme = readFileSync(join(root, 'README.md'), 'utf8')
    const { scripts } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as {
      scripts: Record<string, string>
    }

    expect(readme).toContain('npm ci && npm run demo')
    expect(readme).toContain('npm ci && npm test')
    expect(Object.keys(scripts)).toEqual(expect.arrayContaining(['demo', 'test']))
  })
})
