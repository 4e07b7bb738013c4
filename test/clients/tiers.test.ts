import type Anthropic from '@anthropic-ai/sdk'
import type OpenAI from 'openai'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { chatClient } from '../../src/formats/chat/client.ts'
import { PromptMeter, createTokenizer } from '../../src/tokens/meter.ts'
import { prose } from '../plugins/savings/conversation.ts'
import { CHAT_MODEL, MESSAGE_MODEL, startStage, type Stage } from '../support/stage.ts'
import type { UpstreamRequest } from '../support/upstream.ts'

const SYSTEM = 'You are careful. Never guess an amount.'
const QUESTION = 'Which port does the billing service listen on?'
const FACT = 'The billing service listens on port 7443, and nothing else does.'

let conversations = 0

/** Creates a conversation with about 750 tokens per turn and the fact in the middle. */
function createTurns(count: number): { role: 'user' | 'assistant'; content: string }[] {
  const talk = Array.from({ length: count }, (_, at) => ({
    role: at % 2 === 0 ? ('user' as const) : ('assistant' as const),
    content: at === (count & ~1) / 2 ? `${prose(at, 120)} ${FACT}` : prose(at, 380),
  }))
  const [first] = talk
  if (first !== undefined) first.content = `This is conversation ${conversations++}. ${first.content}`
  return [...talk, { role: 'user', content: QUESTION }]
}

/** The gateway discards summaries with fewer words. */
const SUMMARY = `They talk about the services of the company. ${FACT}`
const reply = ({ body }: UpstreamRequest): string => (body['model'] === 'small' ? SUMMARY : 'Port 7443.')

let stage: Stage
beforeAll(async () => {
  const smallPrice = { input: 0.1, output: 0.2 }
  stage = await startStage({ smallPrice, reply, savings: { keep: 0 } })
})
afterAll(() => stage.close())

interface TierRequest {
  readonly headers: Record<string, string>
  readonly turns: { role: 'user' | 'assistant'; content: string }[]
}

const endpoints: Record<string, (asked: TierRequest) => Promise<Headers>> = {
  chat: async ({ headers, turns: talk }) => {
    const messages: OpenAI.ChatCompletionMessageParam[] = [{ role: 'system', content: SYSTEM }, ...talk]
    const create = stage.openai.chat.completions.create({ model: CHAT_MODEL, max_tokens: 50, messages }, { headers })
    return (await create.withResponse()).response.headers
  },
  messages: async ({ headers, turns: talk }) => {
    const messages: Anthropic.MessageParam[] = talk
    const create = stage.anthropic.messages.create(
      { model: MESSAGE_MODEL, max_tokens: 50, system: SYSTEM, messages },
      { headers },
    )
    return (await create.withResponse()).response.headers
  },
}

/** Returns the messages that the requested model received, as text. */
function sentMessages(): string {
  const request = stage.upstream.requests.findLast(({ body }) => body['model'] === 'large')
  return request?.text ?? ''
}

const createLongTurns = (): ReturnType<typeof createTurns> => createTurns(200)

describe.each(Object.entries(endpoints))('the waterfall on the %s endpoint', (_, ask) => {
  it.each([
    ['extreme', 16_384],
    ['max', 32_768],
    ['med', 65_536],
    ['min', 131_072],
  ])('at level %s sends at most the cap, and reports the reduction', async (level, cap) => {
    const headers = await ask({ headers: { 'x-savings-level': level }, turns: createLongTurns() })

    const [original, optimized] = ['original', 'optimized'].map((name) => Number(headers.get(`x-svc-${name}-tokens`)))
    expect(headers.get('x-svc-strategy')).toBe(`Savings-Slider (${level}: ${cap} tokens)`)
    expect(headers.get('x-svc-tokens-saved')).toBe(String(original! - optimized!))
    expect(headers.get('x-svc-reduction-pct')).toBe(`${Math.round(100 * (1 - optimized! / original!))}%`)
    expect(sentMessages()).toContain(JSON.stringify(SYSTEM).slice(1, -1))
    expect(sentMessages()).toContain(QUESTION)
    expect(sentMessages()).toContain(FACT)
  })

  it('does not change a prompt within the cap', async () => {
    const headers = await ask({ headers: { 'x-savings-level': 'extreme' }, turns: createTurns(6) })

    expect(headers.get('x-svc-strategy')).toBe('Passthrough (no optimization needed)')
    expect(headers.get('x-svc-original-tokens')).toBe(headers.get('x-svc-optimized-tokens'))
  })

  it('sends everything at level off', async () => {
    const headers = await ask({ headers: { 'x-savings-level': 'off' }, turns: createLongTurns() })

    expect(headers.get('x-svc-strategy')).toBe('Passthrough (no optimization needed)')
    expect(headers.get('x-svc-reduction-pct')).toBe('0%')
  })

  it('rejects an unknown level with the name of the header', async () => {
    await expect(ask({ headers: { 'x-savings-level': 'much' }, turns: createTurns(2) })).rejects.toMatchObject({
      status: 400,
    })
  })

  it.each([
    ['x-vanishing-context', /^Vanishing-Context \(\d+ of 20[01] sections\)$/],
    ['x-svc-rlm', /^Recursive-RLM \(controller: (chat|anthropic)\/small\)$/],
  ])('with %s keeps the fact that the question requires', async (name, strategy) => {
    const headers = await ask({ headers: { [name]: 'true' }, turns: createLongTurns() })

    expect(headers.get('x-svc-strategy')).toMatch(strategy)
    expect(sentMessages()).toContain(FACT)
    expect(Number(headers.get('x-svc-optimized-tokens'))).toBeLessThan(Number(headers.get('x-svc-original-tokens')) / 4)
  })

  it('summarizes a conversation of 30k tokens without a header', async () => {
    const headers = await ask({ headers: {}, turns: createTurns(40) })

    expect(headers.get('x-svc-strategy')).toMatch(
      /^Family-Lock \((chat|anthropic)\/small -> (chat|anthropic)\/large\)$/,
    )
    expect(sentMessages()).toContain(QUESTION)
  })

  it('answers a short conversation without calling a small model', async () => {
    const before = stage.upstream.requests.length

    const headers = await ask({ headers: {}, turns: createTurns(4) })

    expect(headers.get('x-svc-strategy')).toBe('Passthrough (no optimization needed)')
    expect(stage.upstream.requests.length).toBe(before + 1)
  })

  it('serves the request when every small model fails', async () => {
    stage.upstream.reply = ({ body }) => (body['model'] === 'small' ? { kind: 'failure', status: 500 } : 'Port 7443.')
    try {
      const headers = await ask({ headers: { 'x-svc-rlm': 'true' }, turns: createTurns(150) })

      expect(headers.get('x-svc-theoretical-cost')).toMatch(/^\$\d/)
      expect(sentMessages()).toContain(QUESTION)
    } finally {
      stage.upstream.reply = reply
    }
  })
})

/** A conversation whose prompt has this many tokens on the chat endpoint, as the gateway counts them. */
async function turnsOf(tokens: number): Promise<TierRequest['turns']> {
  const meter = new PromptMeter(createTokenizer())
  const sizeOf = (talk: TierRequest['turns']): Promise<number> =>
    meter.countPrompt(
      chatClient.readPrompt({ model: CHAT_MODEL, messages: [{ role: 'system', content: SYSTEM }, ...talk] }),
    )
  let talk = createTurns(2)
  while ((await sizeOf(talk)) < tokens - 2000) talk = [...createTurns(2).slice(0, 2), ...talk]
  const [first, ...others] = talk
  let filled = { role: 'user' as const, content: first?.content ?? '' }
  while ((await sizeOf([filled, ...others])) < tokens)
    filled = { ...filled, content: `${filled.content} again and again` }
  return [filled, ...others]
}

describe('a prompt of 148,945 tokens', () => {
  let talk: TierRequest['turns']
  beforeAll(async () => {
    talk = await turnsOf(148_945)
  })

  describe.each(Object.entries(endpoints))('on the %s endpoint', (_, ask) => {
    it.each([
      ['extreme', 89],
      ['max', 78],
      ['med', 56],
      ['min', 12],
    ])('is reduced at level %s by %i percent, within one', async (level, percent) => {
      const headers = await ask({ headers: { 'x-savings-level': level }, turns: talk })

      expect(Math.abs(Number.parseInt(headers.get('x-svc-reduction-pct') ?? '', 10) - percent)).toBeLessThanOrEqual(1)
    })
  })
})
