import type { Work } from './load.ts'
import type { TargetName } from './targets.ts'

/** The target of a measurement. A result above `limit` is not acceptable. */
export interface Goal {
  readonly goal: number
  readonly limit?: number
}

export interface Scenario extends Work {
  /** Group that BENCH_ONLY selects. */
  readonly group: string
  readonly name: string
  /** Requests per round and target. */
  readonly requests: number
  /** Requests to each target before the first round. They compile the code and fill the cache. */
  readonly warmUp: number
  /** `cpu`: CPU time ÷ that of the relay. `first byte`: milliseconds more than the relay. @default 'cpu' */
  readonly figure?: 'cpu' | 'first byte'
  /** True if the cache answers every request to the target `default`. @default false */
  readonly hits?: boolean
  /** Targets besides the relay, which is always measured. */
  readonly targets: readonly TargetName[]
  readonly goals: Readonly<Partial<Record<TargetName, Goal>>>
  /** Two targets whose CPU time is compared. */
  readonly comparison?: { readonly of: TargetName; readonly with: TargetName; readonly goal: Goal }
}

const QUESTION = 'What is the capital of France?'
const TOPICS =
  'harbor glacier compiler invoice orchard violin satellite vaccine treaty volcano bakery telescope lantern granite ' +
  'sonnet turbine meadow locksmith parliament lobster cathedral algebra monsoon tapestry reactor falcon'
const VERBS = 'improve explain compare restore measure translate design repair insure photograph'
const PLACES = 'Norway Bolivia Kyoto Nairobi Tasmania Lisbon Quebec Mumbai Iceland Patagonia Cairo Vermont Sicily'

function body(
  content: string,
  options: { readonly model?: string; readonly stream?: boolean; readonly system?: string } = {},
): string {
  const { model = 'bench-model', stream = false, system } = options
  const messages = [...(system === undefined ? [] : [{ role: 'system', content: system }]), { role: 'user', content }]
  return JSON.stringify({ model: `bench/${model}`, stream, messages, max_tokens: 100 })
}

/** Returns a question that shares few words with its neighbors. 80,000 consecutive questions are distinct. */
function question(index: number): string {
  const word = (list: string, step: number): string => {
    const words = list.split(' ')
    return words[Math.floor(index / step) % words.length] ?? ''
  }
  const [topic, verb, place, landmark] = [word(TOPICS, 1), word(VERBS, 26), word(PLACES, 260), word(TOPICS, 3380)]
  return `How do I ${verb} a ${topic} near the ${landmark} in ${place}?`
}

const turns = Array.from({ length: 200 }, (_, index) => ({
  role: index % 2 === 0 ? 'user' : 'assistant',
  content: `Turn ${index}. ${'The quick brown fox jumps over the lazy dog and counts to ten. '.repeat(64)}`,
}))
const largeStart = `{"model":"bench/bench-model","stream":false,"max_tokens":100,"messages":${JSON.stringify(turns).slice(0, -1)}`
/** The last message differs, so that the cache has no hit. */
const large = (index: number): string => `${largeStart},{"role":"user","content":"And what about step ${index}?"}]}`

const peers: readonly TargetName[] = ['dispatch relay', 'web relay', 'portkey', 'ungoverned', 'governed']
const cache = { group: 'cache', concurrency: 32, warmUp: 20_000, targets: ['default'] } as const

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
    comparison: { of: 'governed', with: 'ungoverned', goal: { goal: 1.1 } },
  },
  {
    group: 'customers',
    name: 'small JSON, cache off, with a customer, a user and a session: 6 claims instead of 1',
    body: () => body(QUESTION),
    requests: 3000,
    warmUp: 20_000,
    concurrency: 32,
    targets: ['budget', 'customers'],
    goals: {},
    comparison: { of: 'customers', with: 'budget', goal: { goal: 1.25 } },
  },
  {
    ...cache,
    name: 'small JSON, default, one scope per request',
    body: (index) => body(QUESTION, { system: `You help customer ${index}.` }),
    requests: 3000,
    goals: { default: { goal: 2.5, limit: 3.5 } },
  },
  {
    ...cache,
    name: 'small JSON, default, different questions in one scope of 1,000',
    body: (index) => body(question(index)),
    requests: 3000,
    goals: { default: { goal: 5, limit: 7 } },
  },
  {
    ...cache,
    name: 'small JSON, default, near-duplicates in one scope of 1,000',
    body: (index) => body(`What is the delivery status of order ${10_000 + index} for the office in Lisbon?`),
    requests: 3000,
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
    // Savings are off, because the body must be forwarded unchanged.
    headers: { 'x-savings-level': 'off' },
    requests: 60,
    warmUp: 120,
    concurrency: 4,
    targets: [...peers, 'default'],
    goals: { governed: { goal: 2, limit: 2.5 }, default: { goal: 3, limit: 4 } },
    comparison: { of: 'governed', with: 'ungoverned', goal: { goal: 1.1 } },
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
    name: 'first byte of a stream, one at a time, to each server in turn',
    body: () => body(QUESTION, { stream: true }),
    requests: 200,
    warmUp: 3000,
    concurrency: 1,
    figure: 'first byte',
    targets: peers,
    goals: { governed: { goal: 0.4 } },
  },
]

/** Requests of the memory measurements: small, each in its own cache scope. */
export const memoryWork: Work = {
  body: (index) => body(QUESTION, { system: `You help customer ${index}.` }),
  concurrency: 32,
}
