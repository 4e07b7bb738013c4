import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { JsonObject } from '../../../src/core/json.ts'
import { runProgram, type AgentEnvironment } from '../../support/agent-environment.ts'
import type { Reply, UpstreamRequest } from '../../support/upstream.ts'
import { OUTPUT, responseEvents, resultsOfTurn } from './vendor.ts'

const ASKS = ['Use both tools.', 'Use them again.'] as const

/** Two turns of Claude Code, which calls a shell and reads a file in each. Returns what it printed. */
export async function runClaudeCode(program: string, agent: AgentEnvironment): Promise<readonly string[]> {
  await writeFile(join(agent.home, 'note.txt'), `${OUTPUT}\n`)
  agent.upstream.reply = (request) => claudeScript(request, agent.home)
  const printed: string[] = []
  for (const [turn, words] of ASKS.entries()) {
    const args = ['-p', words, ...(turn === 0 ? [] : ['--continue']), '--allowedTools', 'Bash(echo:*)', 'Read']
    const env = {
      ANTHROPIC_BASE_URL: agent.url,
      ANTHROPIC_AUTH_TOKEN: agent.secret,
      CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: '1',
      DISABLE_AUTOUPDATER: '1',
    }
    printed.push(await runProgram(program, args, agent, env))
  }
  return printed
}

/** Calls the shell, then reads a file, then answers with text, as it does for requests without tools (session titles). */
function claudeScript({ body, index }: UpstreamRequest, home: string): Reply {
  if (!Array.isArray(body['tools']) || body['tools'].length === 0) return 'A title'
  const thinking = body['thinking'] === undefined ? {} : { thinking: `Which tool, at ${index}?` }
  const echo = { command: `echo ${OUTPUT}`, description: 'Echo' }
  const steps: readonly Reply[] = [
    { ...thinking, toolCalls: [{ id: `toolu_${index}`, name: 'Bash', input: JSON.stringify(echo) }] },
    {
      ...thinking,
      toolCalls: [
        { id: `toolu_${index}`, name: 'Read', input: JSON.stringify({ file_path: join(home, 'note.txt') }) },
        { id: `toolu_${index}_2`, name: 'Bash', input: JSON.stringify(echo) },
      ],
    },
  ]
  return steps[Math.min(2, resultsOfTurn(body))] ?? { ...thinking, text: `Both tools ran, step ${index}.` }
}

/** Two turns of Codex, which calls a custom tool in a namespace and a function in another one in each. Returns what it printed. */
export async function runCodex(program: string, agent: AgentEnvironment): Promise<readonly string[]> {
  agent.upstream.reply = codexScript
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
  const printed: string[] = []
  for (const [turn, words] of ASKS.entries()) {
    const flags = ['--skip-git-repo-check', '--dangerously-bypass-approvals-and-sandbox']
    const args = turn === 0 ? ['exec', ...flags, words] : ['exec', 'resume', ...flags, '--last', words]
    printed.push(await runProgram(program, args, agent, { CODEX_HOME: agent.home, GATEWAY_KEY: agent.secret }))
  }
  return printed
}

function codexScript({ index, path, body }: UpstreamRequest): Reply {
  if (path !== '/v1/responses') return { kind: 'json', value: { models: [], data: [], object: 'list' } }
  const code = `text((await tools.exec_command({ cmd: 'echo ${OUTPUT}' })).output)`
  const reasoning = { type: 'reasoning', id: `rs_${index}`, summary: [], encrypted_content: `gAAAA${index}` }
  const call = { id: `ctc_${index}`, call_id: `call_${index}` }
  const steps: readonly JsonObject[] = [
    { type: 'custom_tool_call', ...call, namespace: 'functions', name: 'exec', input: code },
    { type: 'function_call', ...call, namespace: 'clock', name: 'sleep', arguments: '{"duration_ms":1}' },
    {
      type: 'message',
      id: `msg_${index}`,
      role: 'assistant',
      status: 'completed',
      content: [{ type: 'output_text', text: `Both tools ran, step ${index}.`, annotations: [] }],
    },
  ]
  return { kind: 'events', items: responseEvents(index, [reasoning, steps[resultsOfTurn(body)] ?? {}]) }
}
