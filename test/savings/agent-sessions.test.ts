import { describe, expect, it } from 'vitest'
import { asObject, parseJson, type JsonObject } from '../../src/core/json.ts'
import type { Model } from '../../src/core/ports.ts'
import type { Rewrite, Steering } from '../../src/savings/tier.ts'
import { chatFormat, messagesFormat, responsesFormat } from '../support/two-way-formats.ts'
import { violationsOf } from '../support/vendor-rules/index.ts'
import { AGENT_SESSIONS, type AgentSession } from './agent-sessions.ts'
import { jobOf, MODEL, smallModel, textStore, waterfallOf } from './bench.ts'

const FORMATS = { openai: chatFormat, anthropic: messagesFormat, responses: responsesFormat } as const
const NO_HEADER: Steering = { vanishing: false, recursive: false }
const CACHED: Model = { ...MODEL, price: { ...MODEL.price, cacheRead: 0.3, cacheWrite: 3.75 } }
/** The thresholds are low, so that short sessions reach them. */
const THRESHOLDS = { family: 6000, vanishing: 15_000, recursive: 24_000 }
/** Steps of the session at its last two turns, or at its first turn here. */
const WARM = [20, 21, 26] as const
const COLD = [26] as const

interface Turn {
  readonly rewrite: Rewrite | undefined
  readonly violations: readonly string[]
}

async function play(
  { dialect, bodyAt }: AgentSession,
  turns: readonly number[],
  { agents, steering = NO_HEADER, model = MODEL }: { agents: boolean; steering?: Steering; model?: Model },
): Promise<readonly Turn[]> {
  const { small } = smallModel((words) => `Facts and values: ${words.slice(100, 400)}`)
  const waterfall = waterfallOf({ thresholds: THRESHOLDS, store: textStore().store, agents })
  const format = FORMATS[dialect]
  const played: Turn[] = []
  for (const [turn, count] of turns.entries()) {
    const body = bodyAt(count)
    const job = jobOf(format.readPrompt(body), { small, model, steering, now: 1e12 + turn * 20_000 })
    const { rewrite } = await waterfall(job)
    const violations = rewrite === undefined ? [] : violationsOf[dialect](body, sentBody(format, rewrite))
    played.push({ rewrite, violations })
  }
  return played
}

function sentBody(format: (typeof FORMATS)[keyof typeof FORMATS], { prompt }: Rewrite): JsonObject {
  const { body } = format.writePrompt(prompt, 'mock/large')
  return asObject(parseJson(typeof body === 'string' ? body : new TextDecoder().decode(body))) ?? {}
}

const isMarked = ({ name }: AgentSession): boolean => name === 'Claude Code'

describe.each(AGENT_SESSIONS.map((session) => [session.name, session] as const))('a session of %s', (_, session) => {
  it('is sent as received by default, cold and warm', async () => {
    for (const turns of [COLD, WARM])
      for (const { rewrite } of await play(session, turns, { agents: false })) expect(rewrite).toBeUndefined()
  })

  it.each([
    ['cold', COLD],
    ['warm', WARM],
  ])('follows the rules of the vendor with savings.agents, %s', async (_name, turns) => {
    const played = await play(session, turns, { agents: true })
    for (const { violations } of played) expect(violations).toEqual([])
    // A prefix that the caller marked is not rewritten without a header.
    expect(played.some(({ rewrite }) => rewrite !== undefined)).toBe(!isMarked(session))
  })

  it('is not rewritten if another process may just have sent it', async () => {
    const small = { ...session, bodyAt: () => session.bodyAt(14) }
    const [played] = await play(small, COLD, { agents: true, model: CACHED })
    expect(played?.rewrite).toBeUndefined()
  })

  it.each([
    ['the slider', { level: 'extreme', force: true, ...NO_HEADER }],
    ['vanishing context', { vanishing: true, recursive: false, force: true }],
    ['recursive summaries', { vanishing: false, recursive: true, force: true }],
  ] as const)('follows the rules of the vendor with %s', async (_name, steering) => {
    for (const { violations } of await play(session, WARM, { agents: false, steering })) expect(violations).toEqual([])
  })
})
