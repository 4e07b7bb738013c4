import { type PostgresClient, postgresStore } from '../stores/postgres.ts'

interface Connection {
  readonly client: PostgresClient
  readonly close: () => Promise<void>
}

export type Connect = (url: string) => Promise<Connection>

export interface CliIo {
  readonly environment: Readonly<Record<string, string | undefined>>
  readonly print: (line: string) => void
  readonly connect: Connect
}

const USAGE = `Usage: sluice migrate [--url URL] [--schema NAME]

Creates the tables of postgresStore, or upgrades them to the latest version. The command is safe to repeat.

  --url URL      the database; default: the environment variable DATABASE_URL
  --schema NAME  the schema of the tables; default: sluice`

/** Runs the command line. Returns the exit code: 0 for success, 1 for a failure, 2 for incorrect usage. */
export async function runCli(args: readonly string[], { environment, print, connect }: CliIo): Promise<number> {
  const [command, ...optionArguments] = args
  const options = readOptions(optionArguments)
  if (command !== 'migrate' || options === undefined) {
    print(USAGE)
    return command === '--help' ? 0 : 2
  }
  const url = options['--url'] ?? environment['DATABASE_URL']
  if (url === undefined) {
    print('The database URL is missing. Set DATABASE_URL or pass --url.')
    return 2
  }
  const schema = options['--schema'] ?? 'sluice'
  try {
    const { client, close } = await connect(url)
    try {
      await postgresStore({ client, schema }).migrate()
    } finally {
      await close()
    }
  } catch (error) {
    print(`The migration failed: ${error instanceof Error ? error.message : String(error)}`)
    return 1
  }
  print(`The schema ${schema} is up to date.`)
  return 0
}

function readOptions(args: readonly string[]): Readonly<Record<string, string>> | undefined {
  const options: Record<string, string> = {}
  for (let index = 0; index < args.length; index += 2) {
    const [name = '', value] = args.slice(index, index + 2)
    if (!['--url', '--schema'].includes(name) || value === undefined) return undefined
    options[name] = value
  }
  return options
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
