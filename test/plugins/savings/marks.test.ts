import { describe, expect, it } from 'vitest'
import { textOfMessage } from '../../../src/core/messages.ts'
import { type Dialect, type Message } from '../../../src/core/prompt.ts'
import { jobOf, meter, smallModel, textStore, waterfallOf } from './bench.ts'
import { promptOf, rolesAlternate, text } from './conversation.ts'

const EXTREME = { level: 'extreme', vanishing: false, recursive: false } as const
const THINGS = ['harbour', 'ledger', 'orchard', 'violin', 'glacier', 'compiler', 'passport']

const user = (words: string): Message => ({ role: 'user', parts: [text(words)] })
const assistant = (words: string): Message => ({ role: 'assistant', parts: [text(words)] })

/** Returns unique lines: each contains the name of its message and its position. */
function lines(name: string, count: number): string[] {
  return Array.from(
    { length: count },
    (_, at) => `Line ${name}-${at} describes the ${THINGS[at % THINGS.length]} at length and in some detail.`,
  )
}

const QUESTION = user(
  'What of the harbour, the glacier and the passport, and which ledger and violin and orchard was it?',
)

/** Old text that is neither in the prompt as sent nor in what the small model was asked to summarize. */
async function lostLines(conversation: readonly Message[]): Promise<readonly string[]> {
  const { small, modelCalls } = smallModel('Facts and values: the summary of what came before.')
  const { rewrite } = await waterfallOf({ tiers: (own) => own.filter(({ tier }) => tier === 4) })(
    jobOf(promptOf([...conversation, QUESTION], 'chat'), { small }),
  )
  expect(rewrite?.tier).toBe(4)
  const known = [...(rewrite?.prompt.messages ?? []).map(textOfMessage), ...modelCalls.map((one) => one.text)].join(
    '\n',
  )
  return conversation.flatMap((message) => textOfMessage(message).split('\n')).filter((line) => !known.includes(line))
}

describe('the summary of tier 4', () => {
  it('covers the omitted part of an excerpted answer', async () => {
    const past = Array.from({ length: 12 }, (_, at) => [
      user(`Question ${at}?`),
      assistant(lines(`a${at}`, 120).join('\n')),
    ])
    expect(await lostLines(past.flat())).toEqual([])
  })

  it('covers the omitted part of a pasted document', async () => {
    const past = [user(lines('document', 1500).join('\n')), assistant('Read.'), user('Thanks.'), assistant('Yes?')]
    expect(await lostLines(past)).toEqual([])
  })

  it('covers a message that an earlier cut left unchanged and a later cut omits', async () => {
    const { store } = textStore()
    const { small, modelCalls } = smallModel('Facts and values: the summary of what came before.')
    const waterfall = waterfallOf({ store, tiers: (own) => own.filter(({ tier }) => tier === 4) })
    const messages: Message[] = []
    let sent = ''
    for (let turn = 0; turn < 40; turn++) {
      messages.push(user(`Question ${turn} of the ${THINGS[turn % THINGS.length]}?`))
      const { rewrite } = await waterfall(jobOf(promptOf(messages, 'chat'), { small }))
      sent = (rewrite?.prompt.messages ?? messages).map(textOfMessage).join('\n')
      messages.push(assistant(lines(`a${turn}`, 100).join('\n')))
    }
    const known = [sent, ...modelCalls.map((one) => one.text)].join('\n')
    const old = messages.slice(0, -1).flatMap((message) => textOfMessage(message).split('\n'))
    expect(old.filter((line) => !known.includes(line))).toEqual([])
  })
})

describe('the notice of omitted tokens', () => {
  it.each<Dialect>(['chat', 'messages'])('is present if each message is excerpted, %s', async (dialect) => {
    const past = [user(lines('document', 1500).join('\n')), assistant(lines('answer', 900).join('\n'))]
    const { rewrite, tokens } = await waterfallOf()(
      jobOf(promptOf([...past, QUESTION], dialect), { steering: EXTREME }),
    )
    const sent = rewrite?.prompt.messages ?? []
    const words = sent.map(textOfMessage).join('\n')
    expect(words).toContain('Line document-')
    expect(words).toContain('Line answer-')
    const amount = Number(/About ([\d,]+) tokens/.exec(words)?.[1]?.replace(',', ''))
    expect(Math.abs(amount - (tokens - (rewrite?.tokens ?? 0)))).toBeLessThan(1000)
    if (dialect === 'messages') expect(rolesAlternate(sent)).toBe(true)
  })

  it('states small numbers of tokens', async () => {
    const past = Array.from({ length: 20 }, (_, at) => [
      user(`Question ${at}?`),
      assistant(lines(`a${at}`, 58).join('\n')),
    ])
    const prompt = promptOf([...past.flat(), QUESTION], 'chat')
    expect(await meter.countPrompt(prompt)).toBeGreaterThan(16_384)
    const { rewrite } = await waterfallOf()(jobOf(prompt, { steering: EXTREME }))
    const words = (rewrite?.prompt.messages ?? []).map(textOfMessage).join('\n')
    expect(words).toMatch(/About [\d,]+ tokens of this conversation are left out/)
  })

  it('is in the heading of a summary', async () => {
    const past = Array.from({ length: 12 }, (_, at) => [
      user(`Question ${at}?`),
      assistant(lines(`a${at}`, 120).join('\n')),
    ])
    const { small } = smallModel('Facts and values: the summary of what came before.')
    const tiers = { vanishing: false, recursive: true }
    const four = await waterfallOf()(jobOf(promptOf([...past.flat(), QUESTION], 'chat'), { small }))
    const three = await waterfallOf()(jobOf(promptOf([...past.flat(), QUESTION], 'chat'), { small, steering: tiers }))
    for (const { rewrite } of [four, three]) {
      const words = (rewrite?.prompt.messages ?? []).map(textOfMessage).join('\n')
      expect(words).toMatch(/about [\d,]+ tokens are left out/i)
    }
  })
})
