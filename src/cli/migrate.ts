import { postgresStore } from '../stores/postgres.ts'
import { type CliIo, type Connect, readOptions, reasonOf } from './command.ts'

export const MIGRATE_USAGE = `sluice migrate [--url URL] [--schema NAME]

Creates the tables of postgresStore, or upgrades them to the latest version. The command is safe to repeat.

  --url URL      the database; default: the environment variable DATABASE_URL
  --schema NAME  the schema of the tables; default: sluice`

export async function migrate(args: readonly string[], { environment, print, connect }: CliIo): Promise<number> {
  const options = readOptions(args, { url: 'string', schema: 'string' })
  if (options === undefined) return 2
  const { url = environment['DATABASE_URL'], schema = 'sluice' } = options.texts
  if (url === undefined) {
    print('The database URL is missing. Set DATABASE_URL or pass --url.')
    return 2
  }
  try {
    const { client, close } = await connect(url)
    try {
      await postgresStore({ client, schema }).migrate()
    } finally {
      await close()
    }
  } catch (error) {
    print(`The migration failed: ${reasonOf(error)}`)
    return 1
  }
  print(`The schema ${schema} is up to date.`)
  return 0
}

export const connectWithInstalledDriver: Connect = async (url) => {
  const pg = await import('pg').catch(() => undefined)
  if (pg !== undefined) {
    const pool = new pg.default.Pool({ connectionString: url, max: 1, connectionTimeoutMillis: 10_000 })
    return { client: pool, close: () => pool.end() }
  }
  const postgres = await import('postgres').catch(() => undefined)
  if (postgres === undefined) throw new Error('No PostgreSQL driver is installed. Run "npm install pg".')
  const sql = postgres.default(url, { max: 1, connect_timeout: 10 })
  return { client: sql, close: () => sql.end() }
}
