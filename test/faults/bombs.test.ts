/** @own-process: measures the time of requests, and how long the event loop is blocked. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { JsonObject } from '../../src/core/json.ts'
import { responseText, sendRequest, FORMAT_PAIRS, ENDPOINTS, type Endpoint } from '../support/send-request.ts'
import { startStage, type Stage } from '../support/stage.ts'
import { everyNth } from '../support/full.ts'

let stage: Stage
beforeAll(async () => {
  stage = await startStage({ key: { name: 'bombs', budget_limit_cents: 100_000, rate_limit_tokens: 1_000_000_000 } })
})
afterAll(() => stage.close())

const SIZE = 100_000

/** Pseudorandom letters, the same in every run. */
function randomText(alphabet: string): string {
  let state = 12_345
  const letters: string[] = []
  while (letters.length < SIZE) {
    state = (Math.imul(state, 1_103_515_245) + 12_345) >>> 0
    letters.push(alphabet[(state >>> 16) % alphabet.length] ?? '')
  }
  return letters.join('')
}

const fill = (piece: string): string => piece.repeat(Math.ceil(SIZE / piece.length)).slice(0, SIZE)
const LETTERS = 'abcdefghijklmnopqrstuvwxyz'
const prose = fill('The quick brown fox jumps over the lazy dog, and nobody minds it at all. ')

const bombs: readonly (readonly [string, string])[] = [
  ['one letter', fill('a')],
  ['blanks', fill(' ')],
  ['line ends', fill('\n')],
  ['line ends of two signs', fill('\r\n')],
  ['exclamation marks', fill('!')],
  ['random letters', randomText(LETTERS)],
  ['random letters of both cases', randomText(LETTERS + LETTERS.toUpperCase())],
  ['Chinese', randomText('我们的时间都在这里不会说话人大小中国上下')],
  ['one Chinese sign', fill('我')],
  ['joiners', fill('\u200d')],
  ['combining marks', fill('\u0301')],
  ['families of emoji', fill('👩‍👩‍👧‍👦')],
  ['halves of surrogate pairs', fill('\ud83d')],
  ['base64', randomText(`${LETTERS}${LETTERS.toUpperCase()}0123456789+/`)],
  ['angle brackets', fill('<')],
  ['special tokens', fill('<|endoftext|>')],
  ['tabs', fill('\t')],
  ['at signs', fill('a@')],
  ['brackets', fill('[')],
  ['braces', fill('{"a":')],
  ['quotes', fill('"')],
  ['backslashes', fill('\\')],
  ['digits', fill('7')],
  ['digits and dots', fill('1.')],
  ['what looks like keys', fill('sk-')],
  ['what looks like bearers', fill('Bearer ')],
  ['what looks like addresses', fill('http://a')],
  ['letters and apostrophes', fill("a'")],
  ['letters and blanks in turn', fill('a ')],
  ['blanks before a letter', `${' '.repeat(SIZE - 1)}a`],
]

const withContent = (endpoint: Endpoint, content: string): JsonObject => ({
  ...endpoint.body,
  messages: [{ role: 'user', content }],
})

/** Returns the shortest of three runs in milliseconds, to reduce noise, or the first one that is below `enough`. */
async function measureShortest(work: () => Promise<unknown>, enough = 0): Promise<number> {
  let best = Number.POSITIVE_INFINITY
  for (let run = 0; run < 3 && best >= enough; run += 1) {
    const start = performance.now()
    await work()
    best = Math.min(best, performance.now() - start)
  }
  return best
}

/** Ten times the time of prose, plus a margin for a busy machine. */
const maxDuration = (proseMs: number): number => 10 * proseMs + 250

describe.each(ENDPOINTS)('100 KB on the $name endpoint', (endpoint) => {
  let proseMs = 0
  beforeAll(async () => {
    await sendRequest(stage, withContent(endpoint, prose), { path: endpoint.path })
    proseMs = await measureShortest(() => sendRequest(stage, withContent(endpoint, prose), { path: endpoint.path }))
  })

  it.each(everyNth(3, bombs))('of %s takes at most ten times as long as prose', async (_, text) => {
    let status = 0
    const ms = await measureShortest(async () => {
      status = (await sendRequest(stage, withContent(endpoint, text), { path: endpoint.path })).status
    }, maxDuration(proseMs))
    expect(status).toBe(200)
    expect(ms).toBeLessThan(maxDuration(proseMs))
  })

  it.each(everyNth(3, bombs.slice(0, 16)))(
    'of %s in a tool’s description and schema takes at most ten times as long',
    async (_, text) => {
      const schema = { type: 'object', description: text }
      const tool = endpoint.path.includes('chat')
        ? { type: 'function', function: { name: 'tool', description: text, parameters: schema } }
        : { name: 'tool', description: text, input_schema: schema }
      let status = 0
      const ms = await measureShortest(
        async () => {
          status = (await sendRequest(stage, { ...endpoint.body, tools: [tool] }, { path: endpoint.path })).status
        },
        2 * maxDuration(proseMs),
      )
      expect(status).toBe(200)
      expect(ms).toBeLessThan(2 * maxDuration(proseMs))
    },
  )
})

describe('an answer of 100 KB without reported usage', () => {
  let proseMs = 0
  const [endpoint] = ENDPOINTS as [Endpoint, Endpoint]
  const responded = async (text: string, stream: boolean): Promise<void> => {
    stage.upstream.reply = () => ({ text: [text], usage: null })
    const reply = await sendRequest(stage, { ...endpoint.body, stream }, { path: endpoint.path })
    expect(reply.status).toBe(200)
    if (!stream) expect(responseText(reply)).toBe(text)
  }
  beforeAll(async () => {
    await responded(prose, true)
    proseMs = await measureShortest(() => responded(prose, false))
  })
  afterAll(() => {
    stage.upstream.reply = () => 'Hello from upstream.'
  })

  it.each(everyNth(3, bombs))('of %s is counted in at most ten times the time of prose', async (_, text) => {
    const limit = maxDuration(proseMs)
    expect(await measureShortest(() => responded(text, false), limit)).toBeLessThan(limit)
    expect(await measureShortest(() => responded(text, true), limit)).toBeLessThan(limit)
  })
})

describe('the error of an upstream', () => {
  let proseMs = 0
  const refused = async ({ path, body }: Endpoint, text: string): Promise<void> => {
    const failure = { message: text.slice(0, 50_000), code: text.slice(0, 1000), param: text.slice(0, 1000) }
    stage.upstream.reply = () => ({ kind: 'failure', status: 400, failure })
    const reply = await sendRequest(stage, body, { path })
    expect(reply.status).toBe(400)
    expect(reply.text.length).toBeLessThan(40_000)
  }
  beforeAll(async () => {
    const [endpoint] = FORMAT_PAIRS as [Endpoint]
    await refused(endpoint, prose)
    proseMs = await measureShortest(() => refused(endpoint, prose))
  })
  afterAll(() => {
    stage.upstream.reply = () => 'Hello from upstream.'
  })

  it.each(everyNth(3, bombs))('of 50 KB of %s is processed in at most ten times the time of prose', async (_, text) => {
    const limit = maxDuration(proseMs)
    for (const endpoint of FORMAT_PAIRS)
      expect(await measureShortest(() => refused(endpoint, text), limit)).toBeLessThan(limit)
  })
})

describe('counting a prompt', () => {
  it('never blocks the event loop for more than ten times as long as prose', async () => {
    const longestTurn = async (text: string): Promise<number> => {
      let longest = 0
      let last = performance.now()
      let running = true
      const tick = (): void => {
        longest = Math.max(longest, performance.now() - last)
        last = performance.now()
        if (running) setImmediate(tick)
      }
      setImmediate(tick)
      await sendRequest(stage, withContent(ENDPOINTS[0] as Endpoint, text))
      running = false
      return longest
    }
    const best = async (text: string, enough = 0): Promise<number> => {
      let shortest = Number.POSITIVE_INFINITY
      for (let run = 0; run < 3 && shortest >= enough; run += 1) shortest = Math.min(shortest, await longestTurn(text))
      return shortest
    }
    const limit = maxDuration(await best(prose))
    for (const [name, text] of bombs) expect(await best(text, limit), name).toBeLessThan(limit)
  })
})
