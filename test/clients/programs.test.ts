/** @own-process: takes long, and starts many processes. */
import { existsSync } from 'node:fs'
import { copyFile, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterEach, describe, expect, it } from 'vitest'
import type { Json, JsonObject } from '../../src/core/json.ts'
import {
  respondedRecords,
  runProgram,
  startAgentEnvironment,
  type AgentEnvironment,
} from '../support/agent-environment.ts'
import { WEATHER, weatherVendor } from '../support/weather-vendor.ts'
import type { Upstream } from '../support/upstream.ts'

/** Installed by `npm install --prefix test/clients/agents`, or in another folder that AGENTS_DIR names. */
const localAgents = fileURLToPath(new URL('agents', import.meta.url))
const agents = process.env['AGENTS_DIR'] ?? localAgents
const hasAgent = (name: string): boolean => existsSync(join(agents, 'node_modules', name))

/** Installed by `test/clients/python/install`, or in another folder that PYTHON_CLIENTS_DIR names. */
const scripts = fileURLToPath(new URL('python', import.meta.url))
const environments = process.env['PYTHON_CLIENTS_DIR'] ?? join(scripts, '.venv')
const binaryOf = (group: string, name: string): string => join(environments, group, 'bin', name)
const hasGroup = (group: string): boolean => existsSync(binaryOf(group, 'python'))

if (!hasGroup('requirements')) {
  process.stderr.write('NOTICE: test/clients/python/install has not run: the tests of Python clients are skipped.\n')
}

const node22Candidates = [
  process.execPath,
  fileURLToPath(new URL('../../.ci/runtimes/node_modules/node22/bin/node', import.meta.url)),
]

/** Mastra needs Node 22: this process, or a runtime that .ci/run installs. */
const node22 = node22Candidates.find((file, index) =>
  index === 0 ? Number(process.versions.node.split('.')[0]) >= 22 : existsSync(file),
)

const closing: (() => Promise<unknown>)[] = []
afterEach(async () => {
  for (const close of closing.splice(0).toReversed()) await close()
})

async function start(reply: Upstream['reply']): Promise<AgentEnvironment> {
  const agent = await startAgentEnvironment(reply)
  closing.push(agent.close)
  return agent
}

/** Environment variables with the base URL and the key. */
function variables({ url, secret }: AgentEnvironment): Record<string, string> {
  return {
    OPENAI_BASE_URL: `${url}/v1`,
    OPENAI_API_KEY: secret,
    ANTHROPIC_BASE_URL: url,
    ANTHROPIC_API_KEY: secret,
    GATEWAY_URL: url,
    GATEWAY_KEY: secret,
  }
}

async function runAgent(name: string, agent: AgentEnvironment, program: string = process.execPath): Promise<Json> {
  const file = join(agents, `${name}.mjs`)
  if (agents !== localAgents) await copyFile(join(localAgents, `${name}.mjs`), file)
  return lastLine(await runProgram(program, [file], agent, variables(agent)))
}

async function runPython(group: string, name: string, agent: AgentEnvironment): Promise<Json> {
  const script = join(scripts, `${name}.py`)
  return lastLine(await runProgram(binaryOf(group, 'python'), [script], agent, variables(agent)))
}

function lastLine(printed: string): Json {
  return JSON.parse(printed.trimEnd().split('\n').at(-1) ?? 'null') as Json
}

const LONG = 180_000

describe('the OpenAI Agents SDK', () => {
  it.skipIf(!hasAgent('@openai/agents'))(
    'calls a tool and answers, whole and as a stream',
    async () => {
      const agent = await start(weatherVendor())

      expect(await runAgent('openai-agents', agent)).toEqual([WEATHER, WEATHER])
      expect(agent.upstream.requests.map(({ path }) => path)).toEqual(Array(4).fill('/v1/responses'))
      expect(respondedRecords(agent.log)).toHaveLength(4)
    },
    LONG,
  )
})

describe('Mastra', () => {
  it.skipIf(!hasAgent('@mastra/core') || node22 === undefined)(
    'calls a tool and answers in both formats, whole and as a stream',
    async () => {
      const agent = await start(weatherVendor())

      expect(await runAgent('mastra', agent, node22)).toEqual([WEATHER, WEATHER, WEATHER, WEATHER])
      expect(respondedRecords(agent.log)).toHaveLength(8)
    },
    LONG,
  )
})

describe('Python', () => {
  it.skipIf(!hasGroup('requirements'))(
    'openai answers in both of its formats, whole and as a stream, and understands refusals and models',
    async () => {
      const agent = await start(weatherVendor())

      expect(await runPython('requirements', 'openai_sdk', agent)).toEqual([
        WEATHER,
        WEATHER,
        WEATHER,
        WEATHER,
        'invalid_model',
        true,
      ])
    },
    LONG,
  )

  it.skipIf(!hasGroup('requirements'))(
    'anthropic answers whole and as a stream, counts, and understands refusals and models',
    async () => {
      const agent = await start(weatherVendor())

      expect(await runPython('requirements', 'anthropic_sdk', agent)).toEqual([
        WEATHER,
        WEATHER,
        11,
        'invalid_request_error',
        true,
      ])
    },
    LONG,
  )

  it.skipIf(!hasGroup('requirements'))(
    'pydantic-ai calls a tool and answers in each format, whole and as a stream',
    async () => {
      const agent = await start(weatherVendor())

      expect(await runPython('requirements', 'pydantic_ai_agent', agent)).toEqual(Array(6).fill(WEATHER))
      expect(respondedRecords(agent.log)).toHaveLength(12)
    },
    LONG,
  )

  it.skipIf(!hasGroup('requirements-instructor'))(
    'instructor reads a structured answer, whole and as a stream',
    async () => {
      const found: JsonObject = { city: 'Paris', degrees: 21 }
      const agent = await start(weatherVendor(found))

      expect(await runPython('requirements-instructor', 'instructor_extract', agent)).toEqual([found, found])
    },
    LONG,
  )

  it.skipIf(!hasGroup('requirements-aider'))(
    'aider edits a file',
    async () => {
      const edit = 'note.txt\n```\n<<<<<<< SEARCH\nbefore\n=======\nafter\n>>>>>>> REPLACE\n```\n'
      const agent = await start(() => edit)
      const file = join(agent.home, 'note.txt')
      await writeFile(file, 'before\n')

      await runProgram(
        binaryOf('requirements-aider', 'aider'),
        [
          '--model',
          'openai/gpt-5-mini',
          '--message',
          'Write after.',
          '--no-git',
          '--yes-always',
          '--no-check-update',
          'note.txt',
        ],
        agent,
        {
          OPENAI_API_BASE: `${agent.url}/v1`,
          OPENAI_API_KEY: agent.secret,
          AIDER_ANALYTICS: 'false',
          LITELLM_LOCAL_MODEL_COST_MAP: 'True',
        },
      )

      expect(await readFile(file, 'utf8')).toBe('after\n')
      expect(respondedRecords(agent.log).length).toBeGreaterThanOrEqual(1)
    },
    LONG,
  )
})
