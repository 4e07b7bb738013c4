import { execFile } from 'node:child_process'
import { mkdtemp, rm } from 'node:fs/promises'
import { homedir } from 'node:os'
import { join } from 'node:path'
import { anthropic, createGateway, openai, type Gateway, type LogRecord } from '../../src/index.ts'
import { serve } from '../../src/node.ts'
import { startUpstream, type Upstream } from './upstream.ts'

/** A gateway for programs that receive only its base URL and a key. */
export interface AgentEnvironment {
  readonly url: string
  readonly secret: string
  readonly upstream: Upstream
  readonly log: readonly LogRecord[]
  /** Home folder of the program, deleted by `close`. */
  readonly home: string
  close(): Promise<void>
}

/** Starts a gateway that configures two vendors and lists no models. */
export async function startAgentEnvironment(reply: Upstream['reply']): Promise<AgentEnvironment> {
  const log: LogRecord[] = []
  const upstream = await startUpstream({ reply })
  const gateway: Gateway = createGateway({
    providers: [
      openai({ apiKey: 'sk-vendor', baseUrl: upstream.baseUrl }),
      anthropic({ apiKey: 'sk-vendor', baseUrl: upstream.url }),
    ],
    log: (line) => log.push(line),
  })
  const server = await serve(gateway, { port: 0 })
  // Agents refuse to keep their programs in the folder for temporary files.
  const home = await mkdtemp(join(homedir(), '.agent-under-test-'))
  const key = await gateway.keys.create({ name: 'agent' })
  return {
    url: server.url,
    secret: key.value,
    upstream,
    log,
    home,
    close: async () => {
      await rm(home, { recursive: true, force: true })
      await server.close()
      await gateway.close()
      await upstream.close()
    },
  }
}

/**
 * Runs a program with only these environment variables, and returns its stdout. If it fails, the error contains its
 * output.
 */
export function runProgram(
  file: string,
  args: readonly string[],
  { home }: Pick<AgentEnvironment, 'home'>,
  env: Readonly<Record<string, string>>,
): Promise<string> {
  const options = { cwd: home, timeout: 150_000, env: { PATH: process.env['PATH'] ?? '', HOME: home, ...env } }
  return new Promise((resolve, reject) => {
    const child = execFile(file, [...args], options, (error, stdout, stderr) => {
      if (error === null) resolve(stdout)
      else reject(new Error(`${file} failed: ${stdout}\n${stderr}`, { cause: error }))
    })
    child.stdin?.end()
  })
}

/** Returns the log records of answered requests. */
export function respondedRecords(log: readonly LogRecord[]): readonly LogRecord[] {
  return log.filter((line) => line.event === undefined && line.outcome === 'answered')
}
