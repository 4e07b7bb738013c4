import { createSemanticCache, type SemanticCache } from '../../src/plugins/cache/semantic-cache.ts'
import type { Completion } from '../../src/core/completion.ts'
import type { JsonObject } from '../../src/core/json.ts'
import type { Prompt } from '../../src/core/prompt.ts'
import { readPrompt } from '../../src/formats/chat/request-reader.ts'

/** CPU time of the cache for one request, and of JSON.parse and JSON.stringify of the same body in the same round. */
export interface RequestFigures {
  readonly name: string
  readonly microseconds: number
  readonly jsonMicroseconds: number
  readonly ratio: number
}

const ENTRIES = 1000
const ROUNDS = 15
const PER_ROUND = 200

interface Scenario {
  readonly name: string
  readonly bodyOf: (serial: number) => JsonObject
  /** Entries that are stored before the first measurement. */
  readonly stored: (serial: number) => JsonObject
  readonly perRound?: number
}

const TOPICS =
  `invoices contracts harbors glaciers orchards violins telescopes refugees volcanoes bakeries aqueducts satellites
  vineyards lighthouses parliaments tapestries reactors marathons libraries monasteries canals symphonies nurseries`.split(
    /\s+/,
  )
const ACTIONS = 'maintain inspect restore finance insure relocate document regulate decorate repair'.split(' ')

/** Returns a question that shares function words with the others, but few content words. */
function differentQuestion(serial: number): string {
  const topic = TOPICS[serial % TOPICS.length] ?? ''
  const action = ACTIONS[Math.floor(serial / TOPICS.length) % ACTIONS.length] ?? ''
  const place = `${TOPICS[(serial * 7 + 3) % TOPICS.length] ?? ''}${serial % 977}`
  return `How should a small town ${action} its ${topic} when the budget for ${place} is cut by ${serial % 89} percent?`
}

/** Returns the same question about a different customer for each number. */
function nearDuplicate(serial: number): string {
  return `What is the current delivery status of the order that customer ${name(serial)} placed with our shop in the spring?`
}

function name(serial: number): string {
  let [rest, text] = [serial * 7919 + 13, '']
  for (let letter = 0; letter < 7; letter += 1) {
    text += String.fromCharCode(97 + (rest % 26))
    rest = Math.floor(rest / 3) + 17 * letter + serial
  }
  return text.slice(0, 1).toUpperCase() + text.slice(1)
}

const SYSTEM = 'You are a helpful assistant of a small town. Answer in two sentences, and say when you do not know.'

function body(question: string, system: string = SYSTEM): JsonObject {
  return {
    model: 'chat/large',
    messages: [
      { role: 'system', content: system },
      { role: 'user', content: question },
    ],
    max_tokens: 200,
    temperature: 0.2,
  }
}

const LONG = 'The council discussed the repair of the harbor wall, and asked for three offers. '.repeat(10_000)

const SCENARIOS: readonly Scenario[] = [
  {
    name: 'one scope per request',
    bodyOf: (serial) => body(differentQuestion(serial), `${SYSTEM} ${serial}`),
    stored: (serial) => body(differentQuestion(serial), `${SYSTEM} stored ${serial}`),
  },
  {
    name: 'different questions, one scope of 1,000',
    bodyOf: (serial) => body(differentQuestion(serial)),
    stored: (serial) => body(differentQuestion(serial)),
  },
  {
    name: 'near-duplicates, one scope of 1,000',
    bodyOf: (serial) => body(nearDuplicate(serial)),
    stored: (serial) => body(nearDuplicate(serial)),
  },
  {
    name: 'hit on the same text',
    bodyOf: (serial) => body(differentQuestion(serial % ENTRIES)),
    stored: (serial) => body(differentQuestion(serial)),
  },
  {
    name: 'hit on another spelling',
    bodyOf: (serial) => body(`Please tell me: ${differentQuestion(serial % ENTRIES).replace('?', '')}`),
    stored: (serial) => body(differentQuestion(serial)),
  },
  {
    name: '800 KB, one scope per request',
    bodyOf: (serial) => body(differentQuestion(serial), `${serial} ${LONG}`),
    stored: (serial) => body(differentQuestion(serial), `stored ${serial}`),
    perRound: 5,
  },
]

const RESPONSE: Completion = {
  id: 'answer',
  model: 'large',
  parts: [{ type: 'text', text: 'It depends on the contract, and on who signed it.' }],
  finish: 'stop',
}

/** Measures each kind of request in process: the lookup and, after a miss, storing the response. */
export async function timeRequests(): Promise<readonly RequestFigures[]> {
  const figures: RequestFigures[] = []
  for (const scenario of SCENARIOS) figures.push(await timeScenario(scenario))
  return figures
}

async function timeScenario({ name: label, bodyOf, stored, perRound = PER_ROUND }: Scenario): Promise<RequestFigures> {
  const cache = createSemanticCache({ runtime: { now: () => Date.now(), after: timer }, maxEntries: ENTRIES })
  for (let serial = 0; serial < ENTRIES; serial += 1) await request(cache, readPrompt(stored(serial)))
  const [own, json]: [number[], number[]] = [[], []]
  let serial = ENTRIES
  for (let round = -15; round < ROUNDS; round += 1) {
    const bodies = Array.from({ length: perRound }, () => bodyOf((serial += 1)))
    const texts = bodies.map((value) => JSON.stringify(value))
    const prompts = bodies.map((value) => readPrompt(value))
    const [cpu, plain] = [await timed(() => requests(cache, prompts)), await timed(() => reparse(texts))]
    if (round < 0) continue
    own.push(cpu / perRound)
    json.push(plain / perRound)
  }
  const [microseconds, jsonMicroseconds] = [median(own), median(json)]
  return { name: label, microseconds, jsonMicroseconds, ratio: microseconds / jsonMicroseconds }
}

async function requests(cache: SemanticCache, prompts: readonly Prompt[]): Promise<void> {
  for (const prompt of prompts) await request(cache, prompt)
}

async function request(cache: SemanticCache, prompt: Prompt): Promise<void> {
  const found = await cache.lookUp({ prompt, keyId: 'key-1', modelName: 'chat/large' })
  if (!found.hit) await found.store(RESPONSE, 100)
}

async function reparse(texts: readonly string[]): Promise<void> {
  let length = 0
  for (const text of texts) length += JSON.stringify(JSON.parse(text)).length
  if (length === 0) throw new Error('No body was parsed.')
}

/** Returns the CPU time of `work` in microseconds. */
async function timed(work: () => Promise<void>): Promise<number> {
  const before = process.cpuUsage()
  await work()
  const { user, system } = process.cpuUsage(before)
  return user + system
}

function median(values: readonly number[]): number {
  return values.toSorted((one, other) => one - other)[Math.floor(values.length / 2)] ?? 0
}

function timer(ms: number, run: () => void): () => void {
  const handle = setTimeout(run, ms)
  return () => clearTimeout(handle)
}
