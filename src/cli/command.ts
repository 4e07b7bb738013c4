/** What the commands share. */
import { parseArgs } from 'node:util'
import type { PostgresClient } from '../stores/postgres.ts'

interface Connection {
  readonly client: PostgresClient
  readonly close: () => Promise<void>
}

export type Connect = (url: string) => Promise<Connection>

/** The outside world of a command. */
export interface CliIo {
  readonly environment: Readonly<Record<string, string | undefined>>
  readonly print: (line: string) => void
  readonly connect: Connect
  /** Resolves with the exports of a module. The path is relative to the working directory. */
  readonly load: (path: string) => Promise<object>
  /** Resolves with the text of a file. */
  readonly read: (path: string) => Promise<string>
}

interface Options<Name extends string> {
  readonly texts: Readonly<Partial<Record<Name, string>>>
  readonly flags: Readonly<Partial<Record<Name, boolean>>>
}

/** Returns undefined for an unknown option, or one without its value. */
export function readOptions<Name extends string>(
  args: readonly string[],
  types: Readonly<Record<Name, 'string' | 'boolean'>>,
): Options<Name> | undefined {
  const names = Object.keys(types) as Name[]
  const options = Object.fromEntries(names.map((name) => [name, { type: types[name] }]))
  const texts: Partial<Record<Name, string>> = {}
  const flags: Partial<Record<Name, boolean>> = {}
  try {
    const { values } = parseArgs({ args: [...args], options, strict: true, allowPositionals: false })
    for (const name of names) {
      const value = values[name]
      if (typeof value === 'string') texts[name] = value
      else if (typeof value === 'boolean') flags[name] = value
    }
  } catch {
    return undefined
  }
  return { texts, flags }
}

export function reasonOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error)
}
