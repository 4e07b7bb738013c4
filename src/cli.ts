#!/usr/bin/env node
import { connectWithInstalledDriver, runCli } from './cli/migrate.ts'

void runCli(process.argv.slice(2), {
  environment: process.env,
  print: (line) => void process.stdout.write(`${line}\n`),
  connect: connectWithInstalledDriver,
}).then((exitCode) => {
  process.exitCode = exitCode
})
