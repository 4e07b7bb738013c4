#!/usr/bin/env node
/**
 * The `sluice` command.
 *
 * @module
 */
import { connectWithInstalledDriver, runCli } from './cli/migrate.ts'

const io = {
  environment: process.env,
  print: (line: string): void => void process.stdout.write(`${line}\n`),
  connect: connectWithInstalledDriver,
}

void runCli(process.argv.slice(2), io).then((code) => {
  process.exitCode = code
})
