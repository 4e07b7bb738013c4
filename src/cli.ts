#!/usr/bin/env node
import { readFile } from 'node:fs/promises'
import { resolve } from 'node:path'
import { pathToFileURL } from 'node:url'
import { connectWithInstalledDriver } from './cli/migrate.ts'
import { runCli } from './cli/run.ts'

void runCli(process.argv.slice(2), {
  environment: process.env,
  print: (line) => void process.stdout.write(`${line}\n`),
  connect: connectWithInstalledDriver,
  load: async (path) => (await import(pathToFileURL(resolve(path)).href)) as object,
  read: (path) => readFile(path, 'utf8'),
}).then((exitCode) => {
  process.exitCode = exitCode
})
