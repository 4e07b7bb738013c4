import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { describe, expect, it } from 'vitest'
import { blocksOf, runCode } from './pages.ts'

const root = fileURLToPath(new URL('../..', import.meta.url))

/** Runs the blocks of a page on a free port and then `more`, closes the gateway, and returns the output. */
async function runPage(page: string, more = '', env: Readonly<Record<string, string>> = {}): Promise<string> {
  const anyPort = blocksOf(page).join('\n').replace('port: 8787', 'port: 0')
  return runCode(`${anyPort}\n${more}\nawait server.close()\nawait gateway.close()\n`, env)
}

describe('the guide to wrapping the gateway', () => {
  it('contains code that checks a login, adds CORS headers and logs', async () => {
    const requests = `
      import { createServer } from 'node:http'
      const own = createServer(handle).listen(0)
      const ask = async (base: string, path: string, init: RequestInit): Promise<void> => {
        const response = await fetch(base + path, init)
        const { headers } = response
        console.log('>', response.status, headers.get('access-control-allow-origin'), headers.get('access-control-allow-headers'))
        await response.text()
      }
      const login = { 'x-app-login': 'secret' }
      await ask(server.url, '/v1/models', {})
      await ask(server.url, '/v1/models', { headers: login })
      await ask(server.url, '/health', { headers: login })
      await ask(server.url, '/v1/models', { method: 'OPTIONS', headers: { 'access-control-request-headers': 'authorization' } })
      await ask('http://localhost:' + (own.address() as { port: number }).port, '/health', {})
      own.close()
      own.closeAllConnections()
    `

    const stdout = await runPage('docs/guides/wrap-the-gateway.md', requests, { APP_LOGIN: 'secret' })

    const site = 'https://app.example.com'
    expect(stdout.trim().split('\n')).toEqual([
      'GET /v1/models 401 -',
      `> 401 ${site} null`,
      'GET /v1/models 401 -',
      `> 401 ${site} null`,
      'GET /health 200 -',
      `> 200 ${site} null`,
      'OPTIONS /v1/models 204 -',
      `> 204 ${site} authorization`,
      '> 200 null null',
    ])
  }, 60_000)
})

describe('the README', () => {
  it('contains code that starts a gateway and prints an answer and its bill', async () => {
    const stdout = await runPage('README.md')

    expect(stdout).toMatch(/A sluice is a gate for water\. \$\d+\.\d{6}\n/)
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
