/** @own-process: takes long, and starts many processes. */
import { existsSync } from 'node:fs'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterEach, describe, expect, it } from 'vitest'
import type { SseEvent } from '../../src/core/answer.ts'
import { asArray, isJsonObject, type JsonObject } from '../../src/core/json.ts'
import {
  answeredRecords,
  runProgram,
  startAgentEnvironment,
  type AgentEnvironment,
} from '../support/agent-environment.ts'
import type { Reply, Upstream, UpstreamRequest } from '../support/upstream.ts'
import type { AgentSession } from '../plugins/savings/agent-sessions.ts'
import { NO_HEADER, playSession } from '../plugins/savings/play-session.ts'
import { lengthen } from './long-agent-session.ts'

/** Installed by `npm ci --prefix test/clients/agents`, or in another folder that AGENTS_DIR names. */
const folder = process.env['AGENTS_DIR'] ?? fileURLToPath(new URL('agents', import.meta.url))
const programOf = (name: string): string => join(folder, 'node_modules/.bin', name)

const closing: (() => Promise<unknown>)[] = []
afterEach(async () => {
  for (const close of closing.splice(0).toReversed()) await close()
})

async function start(reply: Upstream['reply']): Promise<AgentEnvironment> {
  const agent = await startAgentEnvironment(reply)
  closing.push(agent.close)
  return agent
}

const run = (
  name: string,
  args: readonly string[],
  agent: AgentEnvironment,
  env: Record<string, string>,
): Promise<string> => runProgram(programOf(name), args, agent, env)

const FORCED = [
  { level: 'extreme', force: true, ...NO_HEADER },
  { vanishing: true, recursive: false, force: true },
  { vanishing: false, recursive: true, force: true },
] as const

/** Sends a long session through the tiers, cold and warm: by default, with `agents: true`, and with each header. */
async function expectValidRewrites(session: AgentSession, { isMarked }: { isMarked: boolean }): Promise<void> {
  for (const turns of [[24], [20, 21, 24]]) {
    for (const { rewrite } of await playSession(session, turns, { agents: false })) expect(rewrite).toBeUndefined()
    const automatic = await playSession(session, turns, { agents: true })
    expect(automatic.some(({ rewrite }) => rewrite !== undefined)).toBe(!isMarked)
    for (const { violations } of automatic) expect(violations).toEqual([])
    for (const steering of FORCED) {
      const played = await playSession(session, turns, { agents: false, steering })
      expect(played.some(({ rewrite }) => rewrite !== undefined)).toBe(true)
      for (const { violations } of played) expect(violations).toEqual([])
    }
  }
}

describe('Codex with its default model, with only the base URL and the key changed', () => {
  it.skipIf(!existsSync(programOf('codex')))(
    'runs two tools and finishes',
    async () => {
      const agent = await start(codexScript)
      await writeFile(
        join(agent.home, 'config.toml'),
        [
          'model_provider = "gateway"',
          'check_for_update_on_startup = false',
          '[analytics]',
          'enabled = false',
          '[model_providers.gateway]',
          'name = "gateway"',
          `base_url = "${agent.url}/v1"`,
          'env_key = "GATEWAY_KEY"',
          'wire_api = "responses"',
        ].join('\n'),
      )

      const printed = await run(
        'codex',
        ['exec', '--skip-git-repo-check', '--dangerously-bypass-approvals-and-sandbox', 'Use both tools.'],
        agent,
        { CODEX_HOME: agent.home, GATEWAY_KEY: agent.secret },
      )

      expect(printed).toContain('Both tools ran.')
      const asked = agent.upstream.requests.filter(({ path }) => path === '/v1/responses')
      expect(asked.map(({ body }) => toolOutputs(body).length)).toEqual([0, 1, 2])
      expect(JSON.stringify(toolOutputs(asked[2]?.body ?? {})[0])).toContain('from the shell')
      expect(new Set(asked.map(({ body }) => String(body['model']).includes('/')))).toEqual(new Set([false]))
      expect(answeredRecords(agent.log)).toHaveLength(3)
      const session = { dialect: 'responses', output: 'from the shell' } as const
      await expectValidRewrites(lengthen('Codex', asked.at(-1)?.body ?? {}, session), { isMarked: false })
    },
    180_000,
  )
})

describe('Claude Code with its default model, with only the base URL and the key changed', () => {
  it.skipIf(!existsSync(programOf('claude')))(
    'runs two tools and finishes',
    async () => {
      const agent = await start((request) => claudeScript(request, agent.home))
      await writeFile(join(agent.home, 'note.txt'), 'from the file\n')

      const printed = await run('claude', ['-p', 'Use both tools.', '--allowedTools', 'Bash(echo:*)', 'Read'], agent, {
        ANTHROPIC_BASE_URL: agent.url,
        ANTHROPIC_AUTH_TOKEN: agent.secret,
        CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: '1',
        DISABLE_AUTOUPDATER: '1',
      })

      expect(printed).toContain('Both tools ran.')
      const last = agent.upstream.requests.findLast(({ body }) => toolResults(body) === 2)
      expect(last?.text).toContain('from the shell')
      expect(last?.text).toContain('from the file')
      expect(answeredRecords(agent.log).length).toBeGreaterThanOrEqual(3)
      const session = { dialect: 'anthropic', output: 'from the shell' } as const
      await expectValidRewrites(lengthen('Claude Code', last?.body ?? {}, session), { isMarked: true })
    },
    180_000,
  )
})

function toolOutputs(body: JsonObject): readonly JsonObject[] {
  return asArray(body['input'])
    .filter(isJsonObject)
    .filter(({ type }) => String(type).endsWith('_call_output'))
}

/** Calls a custom tool in a namespace, then a function in another one, then answers with text. */
function codexScript({ index, path, body }: UpstreamRequest): Reply {
  if (path !== '/v1/responses') return { kind: 'json', value: { models: [], data: [], object: 'list' } }
  const code = "text((await tools.exec_command({ cmd: 'echo from the shell' })).output)"
  const steps: readonly JsonObject[] = [
    { type: 'custom_tool_call', id: 'ctc_1', call_id: 'call_1', namespace: 'functions', name: 'exec', input: code },
    {
      type: 'function_call',
      id: 'fc_2',
      call_id: 'call_2',
      namespace: 'clock',
      name: 'sleep',
      arguments: '{"duration_ms":1}',
    },
    {
      type: 'message',
      id: 'msg_3',
      role: 'assistant',
      status: 'completed',
      content: [{ type: 'output_text', text: 'Both tools ran.', annotations: [] }],
    },
  ]
  return { kind: 'events', items: responseEvents(`resp_${index}`, steps[toolOutputs(body).length] ?? {}) }
}

function responseEvents(id: string, item: JsonObject): readonly SseEvent[] {
  const usage = { input_tokens: 100, output_tokens: 10, total_tokens: 110 }
  const response = { id, object: 'response', model: 'as-asked', error: null }
  const events: readonly JsonObject[] = [
    { type: 'response.created', response: { ...response, status: 'in_progress', output: [], usage: null } },
    { type: 'response.output_item.added', output_index: 0, item },
    { type: 'response.output_item.done', output_index: 0, item },
    { type: 'response.completed', response: { ...response, status: 'completed', output: [item], usage } },
  ]
  return events.map((event, index) => ({
    event: String(event['type']),
    data: JSON.stringify({ ...event, sequence_number: index }),
  }))
}

function toolResults(body: JsonObject): number {
  return asArray(body['messages'])
    .flatMap((message) => (isJsonObject(message) ? asArray(message['content']) : []))
    .filter((block) => isJsonObject(block) && block['type'] === 'tool_result').length
}

/**
 * Calls the shell, then reads a file, then answers with text, as it does for requests without tools (session titles).
 */
function claudeScript({ body }: UpstreamRequest, home: string): Reply {
  if (asArray(body['tools']).length === 0) return 'A title'
  const steps: readonly Reply[] = [
    { toolCalls: [{ id: 'toolu_1', name: 'Bash', input: '{"command":"echo from the shell","description":"Echo"}' }] },
    { toolCalls: [{ id: 'toolu_2', name: 'Read', input: JSON.stringify({ file_path: join(home, 'note.txt') }) }] },
  ]
  return steps[toolResults(body)] ?? 'Both tools ran.'
}
