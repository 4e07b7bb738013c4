/** Programs that consist of the lines in the table "Mount it" of the README. */
import { readFileSync } from 'node:fs'
import { mkdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

const readme = readFileSync(fileURLToPath(new URL('../../README.md', import.meta.url)), 'utf8')
const table = /## Mount it\n([\s\S]*?)\n\n(?!\|)/.exec(readme.replace('## Mount it\n\n', '## Mount it\n'))?.[1] ?? ''

/** Returns the line of the README that begins with `start`. */
function line(start: string): string {
  const code = [...table.matchAll(/`([^`]+)`/g)].map(([, text]) => text ?? '').find((text) => text.startsWith(start))
  if (code === undefined) throw new Error(`The README has no line that begins with ${start}`)
  return code
}

/** Writes the programs into the project, for the upstream at this address. */
export async function writeMountPrograms(project: string, upstreamUrl: string): Promise<void> {
  const mounted = await readFile(join(project, 'mounted.js'), 'utf8')
  const files: Readonly<Record<string, string>> = {
    'mounted.js': mounted.replace('UPSTREAM_URL', JSON.stringify(upstreamUrl)),
    'web.js': `import { createMounted } from './mounted.js'\nconst gateway = createMounted()\n${line('export default')}\n`,
    'bun-serve.js': `import { createMounted } from './mounted.js'
const gateway = createMounted()
const port = 0
const server = ${line('Bun.serve')}
console.log('http://127.0.0.1:' + server.port)
`,
    'node-mounts.js': nodeProgram(),
    'hono.js': `import { Hono } from 'hono'
import { serve } from 'sluice/node'
import { createMounted } from './mounted.js'
const gateway = createMounted()
const app = new Hono()
${line('app.mount(')}
const server = await serve(app, { port: 0, hostname: '127.0.0.1' })
console.log(server.url + '/ai')
`,
    'h3.js': `import { createServer } from 'node:http'
import { createApp, createRouter, fromNodeMiddleware, toNodeListener } from 'h3'
import { toNodeHandler } from 'sluice/node'
import { createMounted } from './mounted.js'
const handle = toNodeHandler(createMounted('/ai'))
const app = createApp().use(createRouter().use('/ai/**', fromNodeMiddleware(handle)))
const server = createServer(toNodeListener(app)).listen(0, '127.0.0.1', () => {
  console.log('http://127.0.0.1:' + server.address().port + '/ai')
})
`,
    'next.config.mjs': `export default { turbopack: { root: '/' }, outputFileTracingRoot: '/' }\n`,
    'app/layout.js': 'export default ({ children }) => <html><body>{children}</body></html>\n',
    'app/nodejs/[...path]/route.js': nextRoute('nodejs'),
    'app/edge/[...path]/route.js': nextRoute('edge'),
  }
  for (const [name, text] of Object.entries(files)) {
    await mkdir(join(project, name, '..'), { recursive: true })
    await writeFile(join(project, name), text)
  }
}

function nodeProgram(): string {
  return `import { createServer } from 'node:http'
import express from 'express'
import fastify from 'fastify'
import { serve, toNodeHandler } from 'sluice/node'
import { toExpress } from 'sluice/express'
import { toFastify } from 'sluice/fastify'
import { createMounted } from './mounted.js'
const listen = (server) => new Promise((resolve) => {
  server.listen(0, '127.0.0.1', () => resolve('http://127.0.0.1:' + server.address().port))
})
const port = 0
const urls = []
{
  const gateway = createMounted()
  urls.push((await ${line('serve(')}).url)
  urls.push(await listen(createServer(${line('toNodeHandler(')})))
}
{
  const gateway = createMounted('/ai')
  const app = express()
  ${line('app.use(')}
  urls.push((await listen(createServer(app))) + '/ai')
}
{
  const gateway = createMounted('/ai')
  const app = fastify()
  ${line('app.register(')}
  urls.push((await app.listen({ port: 0, host: '127.0.0.1' })) + '/ai')
}
console.log(urls.join(' '))
`
}

function nextRoute(runtime: string): string {
  return `import { toNext } from 'sluice/next'
import { createMounted } from '../../../mounted.js'
export const runtime = '${runtime}'
const gateway = createMounted('/${runtime}')
${line('export const {')}
`
}
