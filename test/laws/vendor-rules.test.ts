import { describe, expect, it } from 'vitest'
import { asObject, parseJson, type JsonObject } from '../../src/core/json.ts'
import type { Dialect } from '../../src/core/prompt.ts'
import type { Model } from '../../src/core/ports.ts'
import type { Steering } from '../../src/plugins/savings/tier.ts'
import type { WaterfallOptions } from '../../src/plugins/savings/waterfall.ts'
import { jobOf, MODEL, smallModel, textStore, waterfallOf } from '../plugins/savings/bench.ts'
import { wireConversation, type WireTurns } from '../plugins/savings/wire-conversations.ts'
import { IS_FULL } from '../support/full.ts'
import { fc } from '../support/properties.ts'
import { chatFormat, messagesFormat, responsesFormat, type WholeFormat } from '../support/two-way-formats.ts'
import { violationsOf } from '../support/vendor-rules/index.ts'

const FORMATS: Readonly<Record<Dialect, WholeFormat>> = {
  chat: chatFormat,
  messages: messagesFormat,
  responses: responsesFormat,
}
const DIALECTS = ['chat', 'messages', 'responses'] as const
const RUNS = { numRuns: IS_FULL ? 20 : 3 }

const STEERINGS: readonly (readonly [string, Steering])[] = [
  ['the slider', { level: 'extreme', vanishing: false, recursive: false }],
  ['a forced slider', { level: 'extreme', vanishing: false, recursive: false, force: true }],
  ['vanishing context', { vanishing: true, recursive: false }],
  ['forced vanishing context', { vanishing: true, recursive: false, force: true }],
  ['recursive summaries', { vanishing: false, recursive: true }],
  ['forced recursive summaries', { vanishing: false, recursive: true, force: true }],
  ['no header', { vanishing: false, recursive: false }],
]

const CACHED: Model = { ...MODEL, price: { ...MODEL.price, cacheRead: 0.3, cacheWrite: 3.75 } }
const START = 1e12

function bodyOf(body: string | Uint8Array): JsonObject {
  const text = typeof body === 'string' ? body : new TextDecoder().decode(body)
  return asObject(parseJson(text)) ?? {}
}

/** Sends each turn to one waterfall, 30 seconds apart, and returns the violations of all sent requests. */
async function send(
  dialect: Dialect,
  turns: WireTurns,
  { steering, model = MODEL, ...options }: Partial<WaterfallOptions> & { steering: Steering; model?: Model },
): Promise<{ readonly violations: readonly string[]; readonly rewrites: number }> {
  const { small } = smallModel((text) => `Facts and values: ${text.slice(0, 200)}`)
  const thresholds = { vanishing: 9000, recursive: 14_000, family: 4000 }
  const waterfall = waterfallOf({ thresholdTokens: thresholds, store: textStore().store, ...options })
  const format = FORMATS[dialect]
  const violations: string[] = []
  let rewrites = 0
  for (const [turn, body] of turns.entries()) {
    const prompt = format.readPrompt(body)
    const now = START + turn * 30_000
    const { rewrite } = await waterfall(jobOf(prompt, { steering, small, model, now }))
    if (rewrite === undefined) continue
    rewrites++
    const sent = bodyOf(format.writePrompt(rewrite.prompt, 'mock/large').body)
    violations.push(...violationsOf[dialect](body, sent))
  }
  return { violations, rewrites }
}

describe.each(DIALECTS)('random conversations in the %s format', (dialect) => {
  it('follow the rules of the vendor before they are shortened', () => {
    fc.assert(
      fc.property(wireConversation(dialect), (turns) => {
        for (const body of turns) expect(violationsOf[dialect](body, body)).toEqual([])
      }),
      RUNS,
    )
  })

  it.each(STEERINGS)('follow them after %s, cold and warm', async (_, steering) => {
    let rewrites = 0
    await fc.assert(
      fc.asyncProperty(wireConversation(dialect), fc.boolean(), async (turns, isCached) => {
        const sent = await send(dialect, turns, { steering, model: isCached ? CACHED : MODEL })
        expect(sent.violations).toEqual([])
        rewrites += sent.rewrites
      }),
      RUNS,
    )
    // A few conversations may all be too short.
    if (IS_FULL) expect(rewrites).toBeGreaterThan(0)
  })
})
