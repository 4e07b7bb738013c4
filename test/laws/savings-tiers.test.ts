import { describe, expect, it } from 'vitest'
import { lastUserIndex } from '../../src/core/messages.ts'
import { type Message, type Prompt } from '../../src/core/prompt.ts'
import { LEVEL_CAPS, type Steering } from '../../src/plugins/savings/tier.ts'
import { conversation, pairsAreValid, rolesAlternate } from '../plugins/savings/conversation.ts'
import { jobOf, meter, smallModel, waterfallOf } from '../plugins/savings/bench.ts'
import { cases, fc } from '../support/properties.ts'

const RUNS = { numRuns: cases(60) }
const CAP = LEVEL_CAPS.extreme
const steerings: readonly [string, Steering][] = [
  ['the slider', { level: 'extreme', vanishing: false, recursive: false }],
  ['vanishing context', { vanishing: true, recursive: false }],
  ['recursive summaries', { vanishing: false, recursive: true }],
  ['no header', { vanishing: false, recursive: false }],
]

const systemOf = (prompt: Prompt): readonly Message[] => prompt.messages.filter((message) => message.role === 'system')
const liveOf = (prompt: Prompt): readonly Message[] => prompt.messages.slice(lastUserIndex(prompt.messages))

/** Parts of which tiers shorten nothing, and results without their text. */
function fixedPartsOf({ messages }: Prompt): readonly string[] {
  const parts = messages.flatMap((message) => message.parts).filter(({ type }) => type !== 'text')
  return parts.map((part) => JSON.stringify(part.type === 'tool-result' ? { ...part, content: [] } : part))
}

/**
 * Returns the tokens from the last user message on, including the message before it, whose tool calls it may answer.
 */
async function countLiveTokens(prompt: Prompt): Promise<number> {
  const before = prompt.messages.slice(lastUserIndex(prompt.messages) - 1)
  return meter.countPrompt({ ...prompt, messages: [...systemOf(prompt), ...before] })
}

/** Returns the tokens of the system prompt and of the last user message with the tool calls that it answers. */
async function countFixedTokens(prompt: Prompt): Promise<number> {
  const asked = lastUserIndex(prompt.messages)
  const fixed = prompt.messages.slice(Math.max(0, asked - 1), asked + 1)
  return meter.countPrompt({ ...prompt, messages: [...systemOf(prompt), ...fixed] })
}

describe.each(steerings)('for any conversation, with %s', (_, steering) => {
  const optimize = async (prompt: Prompt) => {
    const { small } = smallModel((text) => `Facts and values: ${text.slice(0, 200)}`)
    const waterfall = waterfallOf({ thresholdTokens: { vanishing: 9000, recursive: 14_000, family: 4000 } })
    return waterfall(jobOf(prompt, { steering, small }))
  }

  it('system prompt, tools and last user message remain unchanged', async () => {
    await fc.assert(
      fc.asyncProperty(conversation, async (prompt) => {
        const { rewrite } = await optimize(prompt)
        const after = rewrite?.prompt ?? prompt
        expect(after.tools).toBe(prompt.tools)
        expect(systemOf(after)).toEqual(systemOf(prompt))
        expect(liveOf(after)[0]).toEqual(liveOf(prompt)[0])
      }),
      RUNS,
    )
  })

  it('everything after the last user message remains while it fits', async () => {
    await fc.assert(
      fc.asyncProperty(conversation, async (prompt) => {
        fc.pre((await countLiveTokens(prompt)) < 3000)
        const { rewrite } = await optimize(prompt)
        expect(liveOf(rewrite?.prompt ?? prompt)).toEqual(liveOf(prompt))
      }),
      RUNS,
    )
  })

  it('calls keep their results, and roles still alternate', async () => {
    await fc.assert(
      fc.asyncProperty(conversation, async (prompt) => {
        const { rewrite } = await optimize(prompt)
        const { messages } = rewrite?.prompt ?? prompt
        expect(pairsAreValid(messages)).toBe(pairsAreValid(prompt.messages))
        if (prompt.native.dialect === 'messages' && rolesAlternate(prompt.messages)) {
          expect(rolesAlternate(messages)).toBe(true)
        }
      }),
      RUNS,
    )
  })

  it('no reasoning, image, id or argument changes', async () => {
    await fc.assert(
      fc.asyncProperty(conversation, async (prompt) => {
        const { rewrite } = await optimize(prompt)
        const received = new Set(fixedPartsOf(prompt))
        expect(fixedPartsOf(rewrite?.prompt ?? prompt).filter((part) => !received.has(part))).toEqual([])
      }),
      RUNS,
    )
  })

  it('a rewritten prompt is smaller and counted correctly', async () => {
    await fc.assert(
      fc.asyncProperty(conversation, async (prompt) => {
        const { rewrite, tokens } = await optimize(prompt)
        if (rewrite === undefined) return
        expect(rewrite.tokens).toBe(await meter.countPrompt(rewrite.prompt))
        expect(tokens).toBe(await meter.countPrompt(prompt))
        expect(rewrite.tokens).toBeLessThan(tokens)
      }),
      RUNS,
    )
  })
})

describe('the slider', () => {
  const steering: Steering = { level: 'extreme', vanishing: false, recursive: false }

  it('never exceeds its cap, and does not change a prompt within it', async () => {
    await fc.assert(
      fc.asyncProperty(conversation, async (prompt) => {
        const { rewrite } = await waterfallOf()(jobOf(prompt, { steering }))
        const before = await meter.countPrompt(prompt)
        // The messages that must not be shortened can exceed the cap alone.
        fc.pre((await countFixedTokens(prompt)) < CAP)
        if (before <= CAP) expect(rewrite).toBeUndefined()
        else expect(rewrite?.tokens).toBeLessThanOrEqual(CAP)
      }),
      { numRuns: cases(100) },
    )
  })

  it.each(['stable', 'auto'] as const)('sends the same prefix from turn to turn, in %s mode', async (slider) => {
    await fc.assert(
      fc.asyncProperty(conversation, async (prompt) => {
        const waterfall = waterfallOf({ slider })
        let grown = prompt
        let before: readonly Message[] = []
        for (let turn = 0; turn < 4; turn++) {
          const { rewrite } = await waterfall(jobOf(grown, { steering }))
          if (rewrite === undefined || rewrite.tokens > CAP * 0.85) return
          const { messages } = rewrite.prompt
          // In auto mode, the first turn makes a new selection, and the second one keeps it.
          if (turn > (slider === 'auto' ? 1 : 0)) expect(messages.slice(0, before.length)).toEqual(before)
          if (prompt.native.dialect === 'messages' && rolesAlternate(prompt.messages)) {
            expect(rolesAlternate(messages)).toBe(true)
          }
          before = messages
          const response: Message = {
            role: 'assistant',
            parts: [{ type: 'text', text: `It was the orchard ${turn}.` }],
          }
          const question: Message = {
            role: 'user',
            parts: [{ type: 'text', text: `And the harbour-${turn}.ts glacier?` }],
          }
          grown = { ...grown, messages: [...grown.messages, response, question] }
        }
      }),
      RUNS,
    )
  })
})
