/** @own-process: PGlite takes 500 MB, which a shared process would keep. */
import type { PGlite } from '@electric-sql/pglite'
import { afterAll, describe, expect, it } from 'vitest'
import { runCli } from '../../src/cli/run.ts'
import { postgresStore } from '../../src/postgres.ts'
import { createPglite } from '../support/postgres.ts'

describe('sluice migrate', () => {
  const opened: string[] = []
  let database: PGlite | undefined
  const run = async (words: readonly string[], environment: Readonly<Record<string, string>> = {}) => {
    const lines: string[] = []
    const connect = async (url: string) => {
      opened.push(url)
      if (url.includes('down')) throw new Error('connection refused')
      database ??= await createPglite()
      return { client: database, close: async () => {} }
    }
    const print = (line: string): void => void lines.push(line)
    const [load, read] = [async () => ({}), async () => '']
    const code = await runCli(words, { environment, print, connect, load, read })
    return { code, text: lines.join('\n') }
  }
  afterAll(async () => database?.close())

  it('creates the tables in the database of DATABASE_URL, and may be repeated', async () => {
    const environment = { DATABASE_URL: 'postgres://one' }
    expect(await run(['migrate'], environment)).toEqual({ code: 0, text: 'The schema sluice is up to date.' })
    expect(await run(['migrate'], environment)).toMatchObject({ code: 0 })
    expect(opened).toEqual(['postgres://one', 'postgres://one'])
    const store = postgresStore({ client: database ?? (await createPglite()) })
    await store.set('a', 'x')
    expect(await store.get('a')).toBe('x')
  })

  it('accepts a URL and a schema', async () => {
    expect(await run(['migrate', '--url', 'postgres://two', '--schema', 'other'])).toEqual({
      code: 0,
      text: 'The schema other is up to date.',
    })
  })

  it('exits with 1 and the reason when the database cannot be reached', async () => {
    expect(await run(['migrate', '--url', 'postgres://down'])).toEqual({
      code: 1,
      text: 'The migration failed: connection refused',
    })
  })

  it('exits with 2 for wrong usage', async () => {
    expect(await run(['migrate'])).toMatchObject({ code: 2, text: expect.stringContaining('DATABASE_URL') as string })
    for (const words of [[], ['migrat'], ['migrate', '--url'], ['migrate', '--other', 'x']]) {
      expect(await run(words)).toMatchObject({ code: 2, text: expect.stringContaining('Usage') as string })
    }
  })
})
