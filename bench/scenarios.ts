import type { Work } from './load.ts'
import type { TargetName } from './targets.ts'

/** A figure to reach. Above `limit` the work is not done. */
export interface Goal {
  readonly goal: number
  readonly limit?: number
}

export interface Scenario extends Work {
  /** What BENCH_ONLY selects. */
  readonly group: string
  readonly name: string
  /** Requests of a round, for each target. */
  readonly requests: number
  /** Requests of a round for the relay, where `requests` are over too soon to measure. @default requests */
  readonly relayRequests?: number
  /** Requests to each target before the first round: code is compiled and, where it is on, the cache is full. */
  readonly warmUp: number
  /** `cpu`: processor time ÷ the relay's. `first byte`: milliseconds added to the relay's. @default 'cpu' */
  readonly figure?: 'cpu' | 'first byte'
  /** True where the cache answers each request of the target `default`. @default false */
  readonly hits?: boolean
  /** The relay is always measured as well. */
  readonly targets: readonly TargetName[]
  readonly goals: Readonly<Partial<Record<TargetName, Goal>>>
  /** The goal of governed ÷ ungoverned. */
  readonly governance?: Goal
}

const QUESTION = 'What is the capital of France?'
const TOPICS =
  'harbor glacier compiler invoice orchard violin satellite vaccine treaty volcano bakery telescope lantern granite ' +
  'sonnet turbine meadow locksmith parliament lobster cathedral algebra monsoon tapestry reactor falcon'
const VERBS = 'improve explain compare restore measure translate design repair insure photograph'
const PLACES = 'Norway Bolivia Kyoto Nairobi Tasmania Lisbon Quebec Mumbai Iceland Patagonia Cairo Vermont Sicily'

function body(
  content: string,
  more: { readonly model?: string; readonly stream?: boolean; readonly system?: string } = {},
): string {
  const { model = 'bench-model', stream = false, system } = more
  const messages = [...(system === undefined ? [] : [{ role: 'system', content: system }]), { role: 'user', content }]
  return JSON.stringify({ model: `bench/${model}`, stream, messages, max_tokens: 100 })
}

/** A question that shares few words with its neighbors. No question comes twice within 80,000. */
function question(index: number): string {
  const word = (list: string, step: number): string => {
    const words = list.split(' ')
    return words[Math.floor(index / step) % words.length] ?? ''
  }
  const [one, verb, place, other] = [word(TOPICS, 1), word(VERBS, 26), word(PLACES, 260), word(TOPICS, 3380)]
  return `How do I ${verb} a ${one} near the ${other} in ${place}?`
}

const turns = Array.from({ length: 200 }, (_, index) => ({
  role: index % 2 === 0 ? 'user' : 'assistant',
  content: `Turn ${index}. ${'The quick brown fox jumps over the lazy dog and counts to ten. '.repeat(64)}`,
}))
const largeStart = `{"model":"bench/bench-model","stream":false,"max_tokens":100,"messages":${JSON.stringify(turns).slice(0, -1)}`
/** The last message differs, so that the cache never answers. */
const large = (index: number): string => `${largeStart},{"role":"user","content":"And what about step ${index}?"}]}`

const peers: readonly TargetName[] = ['dispatch relay', 'web relay', 'portkey', 'ungoverned', 'governed']
const cache = { group: 'cache', concurrency: 32, warmUp: 20_000, relayRequests: 3000, targets: ['default'] } as const

export const scenarios: readonly Scenario[] = [
  {
    group: 'small',
    name: 'small JSON, cache off',
    body: () => body(QUESTION),
    requests: 3000,
    warmUp: 20_000,
    concurrency: 32,
    targets: peers,
    goals: { governed: { goal: 2, limit: 3 } },
    governance: { goal: 1.1 },
  },
  {
    ...cache,
    name: 'small JSON, default, each in a scope of its own',
    body: (index) => body(QUESTION, { system: `You help customer ${index}.` }),
    requests: 3000,
    goals: { default: { goal: 2.5, limit: 3.5 } },
  },
  {
    ...cache,
    name: 'small JSON, default, different questions in one scope of 1,000',
    body: (index) => body(question(index)),
    requests: 500,
    goals: { default: { goal: 5, limit: 7 } },
  },
  {
    ...cache,
    name: 'small JSON, default, near-duplicates in one scope of 1,000',
    body: (index) => body(`What is the delivery status of order ${10_000 + index} for the office in Lisbon?`),
    requests: 500,
    goals: { default: { goal: 6, limit: 9 } },
  },
  {
    ...cache,
    name: 'small JSON, default, cache hit',
    body: () => body(QUESTION),
    requests: 3000,
    hits: true,
    goals: { default: { goal: 1.5 } },
  },
  {
    group: 'large',
    name: `${Math.round(large(0).length / 1000)} KB, unchanged`,
    body: large,
    // Savings stay off: the body must leave as it came.
    headers: { 'x-savings-level': 'off' },
    requests: 60,
    warmUp: 120,
    concurrency: 4,
    targets: [...peers, 'default'],
    goals: { governed: { goal: 2, limit: 2.5 }, default: { goal: 3, limit: 4 } },
    governance: { goal: 1.1 },
  },
  {
    group: 'paced',
    name: '64 streams of 200 events, one event per 5 ms',
    body: () => body(QUESTION, { stream: true, model: 'paced-model' }),
    requests: 256,
    warmUp: 256,
    concurrency: 64,
    targets: peers,
    goals: { governed: { goal: 1.3, limit: 1.6 } },
  },
  {
    group: 'unpaced',
    name: '64 streams of 200 events, unpaced',
    body: () => body(QUESTION, { stream: true }),
    requests: 192,
    warmUp: 4000,
    concurrency: 64,
    targets: peers,
    goals: { governed: { goal: 2, limit: 3 } },
  },
  {
    group: 'first-byte',
    name: 'first byte of a stream, one at a time',
    body: () => body(QUESTION, { stream: true }),
    requests: 60,
    warmUp: 3000,
    concurrency: 1,
    figure: 'first byte',
    targets: peers,
    goals: { governed: { goal: 0.4 } },
  },
]

/** What the memory measurements send: a small governed request, one scope each where the cache is on. */
export const memoryWork: Work = {
  body: (index) => body(QUESTION, { system: `You help customer ${index}.` }),
  concurrency: 32,
}
