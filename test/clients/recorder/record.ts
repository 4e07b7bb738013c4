/**
 * Records a session of each client of docs/clients.md, for test/clients/recorded-sessions.test.ts, which does not start the clients.
 *
 *   AGENTS_DIR=… PYTHON_CLIENTS_DIR=… NODE22=… npx tsx test/clients/recorder/record.ts [name…]
 */
import { copyFile, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import type { JsonObject } from '../../../src/core/json.ts'
import { runProgram, startAgentEnvironment, type AgentEnvironment } from '../../support/agent-environment.ts'
import type { Upstream, UpstreamRequest } from '../../support/upstream.ts'
import { runClaudeCode, runCodex } from './coding-agents.ts'
import { NODE_CLIENTS } from './node-clients.ts'
import { abbreviate } from './recorded.ts'
import { editLoop, placeLoop, toolLoop } from './vendor.ts'

const here = fileURLToPath(new URL('.', import.meta.url))
const agents = process.env['AGENTS_DIR'] ?? join(here, '../agents')
const pythons = process.env['PYTHON_CLIENTS_DIR'] ?? join(here, '../python/.venv')
const node22 = process.env['NODE22'] ?? join(here, '../../../.ci/runtimes/node_modules/node22/bin/node')

interface Recorder {
  readonly reply?: Upstream['reply']
  run(agent: AgentEnvironment): Promise<unknown>
}

function variables({ url, secret }: AgentEnvironment): Record<string, string> {
  return {
    OPENAI_BASE_URL: `${url}/v1`,
    OPENAI_API_BASE: `${url}/v1`,
    OPENAI_API_KEY: secret,
    ANTHROPIC_BASE_URL: url,
    ANTHROPIC_API_KEY: secret,
    GATEWAY_URL: url,
    GATEWAY_KEY: secret,
    AIDER_ANALYTICS: 'false',
    LITELLM_LOCAL_MODEL_COST_MAP: 'True',
  }
}

const python = (group: string, script: string, mode = '') => ({
  run: (agent: AgentEnvironment) =>
    runProgram(join(pythons, group, 'bin/python'), [join(here, script)], agent, { ...variables(agent), MODE: mode }),
})

const agentProgram = (script: string, model = '', program: string = process.execPath) => ({
  run: async (agent: AgentEnvironment) => {
    const file = join(agents, script)
    await copyFile(join(here, script), file)
    await runProgram(program, [file], agent, { ...variables(agent), MODEL: model })
    await rm(file)
  },
})

const RECORDERS: Readonly<Record<string, Recorder>> = {
  ...Object.fromEntries(Object.entries(NODE_CLIENTS).map(([name, run]) => [name, { run }])),
  'openai-python-chat': python('requirements', 'openai_sdk.py', 'chat'),
  'openai-python-responses': python('requirements', 'openai_sdk.py', 'responses'),
  'anthropic-python': python('requirements', 'anthropic_sdk.py'),
  'pydantic-ai-chat': python('requirements', 'pydantic_ai_agent.py', 'openai-chat:gpt-5-mini'),
  'pydantic-ai-responses': python('requirements', 'pydantic_ai_agent.py', 'openai-responses:gpt-5-mini'),
  'pydantic-ai-messages': python('requirements', 'pydantic_ai_agent.py', 'anthropic:claude-sonnet-4-5'),
  instructor: { reply: placeLoop, ...python('requirements-instructor', 'instructor_extract.py') },
  aider: {
    reply: editLoop,
    run: async (agent) => {
      await writeFile(join(agent.home, 'note.txt'), 'line 0\nThe log of the harbour.\n')
      await python('requirements-aider', 'aider_edits.py').run(agent)
    },
  },
  'openai-agents': agentProgram('openai-agents.mjs'),
  'mastra-chat': agentProgram('mastra.mjs', 'openai/gpt-5-mini', node22),
  'mastra-messages': agentProgram('mastra.mjs', 'anthropic/claude-sonnet-4-5', node22),
  'claude-code': { run: (agent) => runClaudeCode(join(agents, 'node_modules/.bin/claude'), agent) },
  codex: { run: (agent) => runCodex(join(agents, 'node_modules/.bin/codex'), agent) },
}

const wanted = process.argv.slice(2)
for (const [name, { reply = toolLoop, run }] of Object.entries(RECORDERS)) {
  if (wanted.length > 0 && !wanted.includes(name)) continue
  const agent = await startAgentEnvironment(reply)
  try {
    await run(agent)
    const session = longestSession(agent.upstream.requests)
    const file = join(here, '../recorded', `${name}.json`)
    await writeFile(file, `${JSON.stringify({ client: name, ...session }, undefined, 1)}\n`)
    process.stdout.write(`${name}: ${agent.upstream.requests.length} requests\n`)
  } catch (error) {
    process.stdout.write(`${name}: ${String(error).slice(0, 1500)}\n`)
  } finally {
    await agent.close()
  }
}

/** The last request contains the whole session. Requests without tools, such as those for a title, are not part of it. */
function longestSession(requests: readonly UpstreamRequest[]): { readonly path: string; readonly body: JsonObject } {
  const last = requests.toSorted((a, b) => sizeOf(a) - sizeOf(b)).at(-1)
  if (last === undefined) throw new Error('The client sent no request.')
  return { path: last.path.replace(/\?.*/, ''), body: abbreviate(last.body) }
}

function sizeOf({ body }: UpstreamRequest): number {
  return JSON.stringify(body['messages'] ?? body['input'] ?? []).length
}
