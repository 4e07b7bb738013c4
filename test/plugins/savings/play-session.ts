import { asObject, parseJson, type JsonObject } from '../../../src/core/json.ts'
import type { Model } from '../../../src/core/ports.ts'
import type { Rewrite, Steering } from '../../../src/plugins/savings/tier.ts'
import { chatFormat, messagesFormat, responsesFormat } from '../../support/two-way-formats.ts'
import { violationsOf } from '../../support/vendor-rules/index.ts'
import type { AgentSession } from './agent-sessions.ts'
import { jobOf, MODEL, smallModel, textStore, waterfallOf } from './bench.ts'

const FORMATS = { chat: chatFormat, messages: messagesFormat, responses: responsesFormat } as const
export const NO_HEADER: Steering = { vanishing: false, recursive: false }
/** The thresholds are low, so that short sessions reach them. */
const THRESHOLDS = { family: 6000, vanishing: 15_000, recursive: 24_000 }

export interface PlayedTurn {
  readonly rewrite: Rewrite | undefined
  /** How the sent request breaks the rules of the vendor, or changes what must stay. */
  readonly violations: readonly string[]
}

/** Sends the bodies of these turns through the tiers, 20 seconds apart. */
export async function playSession(
  { dialect, bodyAt }: AgentSession,
  turns: readonly number[],
  { agents, steering = NO_HEADER, model = MODEL }: { agents: boolean; steering?: Steering; model?: Model },
): Promise<readonly PlayedTurn[]> {
  const { small } = smallModel((words) => `Facts and values: ${words.slice(100, 400)}`)
  const waterfall = waterfallOf({ thresholdTokens: THRESHOLDS, store: textStore().store, agents })
  const format = FORMATS[dialect]
  const played: PlayedTurn[] = []
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
