import { describe, expect, it } from 'vitest'
import type { Model } from '../../../src/core/ports.ts'
import { AGENT_SESSIONS, type AgentSession } from './agent-sessions.ts'
import { MODEL } from './bench.ts'
import { NO_HEADER, playSession } from './play-session.ts'
import { everyNth } from '../../support/full.ts'

const CACHED: Model = { ...MODEL, price: { ...MODEL.price, cacheRead: 0.3, cacheWrite: 3.75 } }
/** Steps of the session at its last two turns, or at its first turn here. */
const WARM = [20, 21, 26] as const
const COLD = [26] as const

const isMarked = ({ name }: AgentSession): boolean => name === 'Claude Code'

describe.each(everyNth(2, AGENT_SESSIONS).map((session) => [session.name, session] as const))(
  'a session of %s',
  (_, session) => {
    it('is sent as received by default, cold and warm', async () => {
      for (const turns of [COLD, WARM])
        for (const { rewrite } of await playSession(session, turns, { agents: false })) expect(rewrite).toBeUndefined()
    })

    it.each([
      ['cold', COLD],
      ['warm', WARM],
    ])('follows the rules of the vendor with savings.agents, %s', async (_name, turns) => {
      const played = await playSession(session, turns, { agents: true })
      for (const { violations } of played) expect(violations).toEqual([])
      // A prefix that the caller marked is not rewritten without a header.
      expect(played.some(({ rewrite }) => rewrite !== undefined)).toBe(!isMarked(session))
    })

    it('is not rewritten if another process may just have sent it', async () => {
      const small = { ...session, bodyAt: () => session.bodyAt(14) }
      const [played] = await playSession(small, COLD, { agents: true, model: CACHED })
      expect(played?.rewrite).toBeUndefined()
    })

    it.each([
      ['the slider', { level: 'extreme', force: true, ...NO_HEADER }],
      ['vanishing context', { vanishing: true, recursive: false, force: true }],
      ['recursive summaries', { vanishing: false, recursive: true, force: true }],
    ] as const)('follows the rules of the vendor with %s', async (_name, steering) => {
      for (const { violations } of await playSession(session, WARM, { agents: false, steering }))
        expect(violations).toEqual([])
    })
  },
)
