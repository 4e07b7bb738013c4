import type { CliIo } from './command.ts'
import { migrate, MIGRATE_USAGE } from './migrate.ts'
import { reconcile, RECONCILE_USAGE } from './reconcile.ts'

interface Command {
  readonly usage: string
  /** Returns 2 for incorrect usage. */
  readonly run: (args: readonly string[], io: CliIo) => Promise<number>
}

const COMMANDS: ReadonlyMap<string, Command> = new Map([
  ['migrate', { usage: MIGRATE_USAGE, run: migrate }],
  ['reconcile', { usage: RECONCILE_USAGE, run: reconcile }],
])

/** Runs the command line. Returns the exit code: 0 for success, 1 for a failure, 2 for incorrect usage. */
export async function runCli([name = '', ...args]: readonly string[], io: CliIo): Promise<number> {
  const command = COMMANDS.get(name)
  if (command === undefined || args.includes('--help')) {
    const shown = command === undefined ? [...COMMANDS.values()] : [command]
    io.print(`Usage: ${shown.map(({ usage }) => usage).join('\n\n')}`)
    return command !== undefined || name === '--help' ? 0 : 2
  }
  let hasPrinted = false
  const print = (line: string): void => {
    hasPrinted = true
    io.print(line)
  }
  const code = await command.run(args, { ...io, print })
  if (code === 2 && !hasPrinted) io.print(`Usage: ${command.usage}`)
  return code
}
