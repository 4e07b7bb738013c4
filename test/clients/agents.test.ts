/** @own-process: takes long, and starts many processes. */
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterEach, describe, expect, it } from 'vitest'
import type { AgentSession } from '../plugins/savings/agent-sessions.ts'
import { NO_HEADER, playSession } from '../plugins/savings/play-session.ts'
import { respondedRecords, startAgentEnvironment, type AgentEnvironment } from '../support/agent-environment.ts'
import { runClaudeCode, runCodex } from './recorder/coding-agents.ts'
import { longSession, sessionOf } from './recorder/recorded.ts'
import { OUTPUT, resultsOfTurn } from './recorder/vendor.ts'

/** Installed by `npm ci --prefix test/clients/agents`, or in another folder that AGENTS_DIR names. */
const folder = process.env['AGENTS_DIR'] ?? fileURLToPath(new URL('agents', import.meta.url))
const programOf = (name: string): string => join(folder, 'node_modules/.bin', name)

const closing: (() => Promise<unknown>)[] = []
afterEach(async () => {
  for (const close of closing.splice(0).toReversed()) await close()
})

async function start(): Promise<AgentEnvironment> {
  const agent = await startAgentEnvironment(() => 'Hello.')
  closing.push(agent.close)
  return agent
}

const FORCED = [
  { level: 'extreme', force: true, ...NO_HEADER },
  { vanishing: true, recursive: false, force: true },
  { vanishing: false, recursive: true, force: true },
] as const

/** Sends a long session through the tiers, cold and warm: by default, with `agents: true`, and with each header. */
async function expectValidRewrites(session: AgentSession, { isMarked }: { isMarked: boolean }): Promise<void> {
  for (const turns of [[9], [7, 8, 9]]) {
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

/** The last request of an agent, repeated to a long session. */
function agentSession(name: string, { upstream }: AgentEnvironment, path: string): AgentSession {
  const last = upstream.requests.findLast((request) => request.path.startsWith(path) && resultsOfTurn(request.body) > 0)
  const session = sessionOf(name, path, last?.body ?? {})
  return { name, dialect: session.dialect, bodyAt: (repeats) => longSession(session, repeats).at(-1) ?? {} }
}

describe('Codex with its default model, with only the base URL and the key changed', () => {
  it.skipIf(!existsSync(programOf('codex')))(
    'runs two tools, finishes and resumes',
    async () => {
      const agent = await start()

      const printed = await runCodex(programOf('codex'), agent)

      expect(printed).toEqual([expect.stringContaining('Both tools ran'), expect.stringContaining('Both tools ran')])
      const asked = agent.upstream.requests.filter(({ path }) => path === '/v1/responses')
      expect(asked.map(({ body }) => resultsOfTurn(body))).toEqual([0, 1, 2, 0, 1, 2])
      expect(asked[2]?.text).toContain(`"${OUTPUT}`)
      expect(new Set(asked.map(({ body }) => String(body['model']).includes('/')))).toEqual(new Set([false]))
      expect(respondedRecords(agent.log)).toHaveLength(6)
      await expectValidRewrites(agentSession('Codex', agent, '/v1/responses'), { isMarked: false })
    },
    180_000,
  )
})

describe('Claude Code with its default model, with only the base URL and the key changed', () => {
  it.skipIf(!existsSync(programOf('claude')))(
    'runs two tools, finishes and continues',
    async () => {
      const agent = await start()

      const printed = await runClaudeCode(programOf('claude'), agent)

      expect(printed).toEqual([expect.stringContaining('Both tools ran'), expect.stringContaining('Both tools ran')])
      const results = agent.upstream.requests.map(({ body }) => resultsOfTurn(body))
      expect(results.filter((count) => count === 3)).toHaveLength(2)
      expect(agent.upstream.last.text).toContain(OUTPUT)
      expect(respondedRecords(agent.log).length).toBeGreaterThanOrEqual(6)
      await expectValidRewrites(agentSession('Claude Code', agent, '/v1/messages'), { isMarked: true })
    },
    180_000,
  )
})
