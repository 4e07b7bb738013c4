import type OpenAI from 'openai'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { chatClient } from '../../src/formats/chat/client.ts'
import type { Thresholds } from '../../src/plugins/savings/tier.ts'
import { PromptMeter, createTokenizer } from '../../src/tokens/meter.ts'
import { prose } from '../plugins/savings/conversation.ts'
import { CHAT_MODEL, startStage, type Stage } from '../support/stage.ts'
import { everyNth } from '../support/full.ts'

interface Body {
  readonly messages: { role: 'user' | 'assistant'; content: string }[]
  readonly tools?: OpenAI.ChatCompletionTool[]
}

const TOOL: OpenAI.ChatCompletionTool = {
  type: 'function',
  function: { name: 'read_file', parameters: { type: 'object', properties: { path: { type: 'string' } } } },
}
const SUMMARY = 'They talk about the harbour, the ledger and the services of the company.'

/** Returns a conversation whose prompt has slightly more tokens than this. */
async function conversationOf(tokens: number, seed: number): Promise<Body['messages']> {
  const meter = new PromptMeter(createTokenizer())
  const messages: Body['messages'] = [{ role: 'user', content: `Begin conversation ${seed}.` }]
  const sizeOf = () => meter.countPrompt(chatClient.readPrompt({ model: CHAT_MODEL, messages }))
  for (let at = 0; (await sizeOf()) <= tokens; at++) {
    messages.push({ role: 'assistant', content: prose(seed + at + 5000, 120) })
    messages.push({ role: 'user', content: prose(seed + at, 40) })
  }
  return messages
}

const stages = new Map<string, Stage>()
beforeAll(async () => {
  const smallPrice = { input: 0.1, output: 0.2 }
  const shared = {
    smallPrice,
    reply: ({ body }: { body: Record<string, unknown> }) => (body['model'] === 'small' ? SUMMARY : 'Yes.'),
  }
  stages.set('triggers', await startStage({ ...shared, savings: { keep: 0, agents: true } }))
  stages.set('default', await startStage(shared))
})
afterAll(async () => {
  for (const stage of stages.values()) await stage.close()
})

async function strategyOf(name: string, body: Body): Promise<string | null | undefined> {
  const create = stages.get(name)?.openai.chat.completions.create({ model: CHAT_MODEL, max_tokens: 50, ...body })
  const { response } = (await create?.withResponse()) ?? {}
  return response?.headers.get('x-svc-strategy')
}

const PASSTHROUGH = /^Passthrough/
const SIZES = [
  [19_000, PASSTHROUGH],
  [21_000, /^Family-Lock/],
  [51_000, /^Vanishing-Context/],
  [81_000, /^Vanishing-Context/],
] as const

describe('savings: { keep: 0, agents: true }', () => {
  it.each(SIZES)('starts a tier at %d tokens', async (tokens, strategy) => {
    expect(await strategyOf('triggers', { messages: await conversationOf(tokens, tokens) })).toMatch(strategy)
  })

  it.each(everyNth(2, SIZES))('starts a tier at %d tokens in a conversation with tools', async (tokens, strategy) => {
    const body = { messages: await conversationOf(tokens, tokens + 1), tools: [TOOL] }
    expect(await strategyOf('triggers', body)).toMatch(strategy)
  })

  it('starts tier 4 at the default size if its threshold is undefined, as from an unset variable', async () => {
    const thresholdTokens: Partial<Thresholds> = {}
    Reflect.set(thresholdTokens, 'family', undefined)
    stages.set('undefined', await startStage({ reply: () => SUMMARY, savings: { keep: 0, thresholdTokens } }))

    expect(await strategyOf('undefined', { messages: await conversationOf(21_000, 11) })).toMatch(/^Family-Lock/)
  })

  it('tries tier 3 above 80,000 tokens if tier 2 is removed', async () => {
    const { smallPrice } = { smallPrice: { input: 0.1, output: 0.2 } }
    const stage = await startStage({
      smallPrice,
      reply: ({ body }) => (body['model'] === 'small' ? SUMMARY : 'Yes.'),
      savings: { keep: 0, agents: true, tiers: (own) => own.filter(({ tier }) => tier === 3) },
    })
    stages.set('recursive', stage)
    expect(await strategyOf('recursive', { messages: await conversationOf(79_000, 3) })).toMatch(PASSTHROUGH)
    expect(await strategyOf('recursive', { messages: await conversationOf(81_000, 4) })).toMatch(/^Recursive-RLM/)
  })
})

describe('the default savings.keep', () => {
  it('is named in the explanation of a tier that would keep less', async () => {
    const stage = stages.get('default')
    const response = await fetch(`${stage?.url}/v1/chat/completions`, {
      method: 'POST',
      headers: {
        authorization: `Bearer ${stage?.secret}`,
        'content-type': 'application/json',
        'x-svc-explain': 'true',
      },
      body: JSON.stringify({ model: CHAT_MODEL, messages: await conversationOf(21_000, 9) }),
    })
    expect(await response.json()).toMatchObject({
      tier: {
        chosen: null,
        verdicts: expect.arrayContaining([
          { tier: 4, outcome: 'below-floor', reason: expect.stringContaining('savings.keep (97.0%)') },
        ]),
      },
    })
  })
})
