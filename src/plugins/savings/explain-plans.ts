import {
  checkOptions,
  expects,
  integerFrom,
  listOf,
  numberFrom,
  oneOf,
  type OptionCheck,
  optionsOf,
} from '../../core/check-options.ts'
import { type ExplainedPlan, explainRequests, type PlanSetup, type SessionTotals } from './explain-session.ts'
import { isJsonObject } from '../../core/json.ts'
import { type LoggedBody, type LoggedRequest, readRequests } from './explain-input.ts'
import type { Services } from '../../kernel/services.ts'
import { checkHeaders } from '../../kernel/parse-request.ts'
import { readSteeringHeaders, type Steering, type Tier } from './tier.ts'
import { memoryStore } from '../../stores/memory.ts'
import { PromptMeter, createTokenizer } from '../../tokens/meter.ts'
import { checkSavings, createPromptMarker, createSavings, type SavingsOptions } from './options.ts'
import { NO_OBSERVER } from './shadow.ts'
import { internalRequest } from '../../http/internal-request.ts'

export type { ExplainedPlan, LoggedBody, LoggedRequest }

/** A conversation as the body of its last request, or a log of requests in the order of their times. */
export type ExplainInput = LoggedBody | Iterable<LoggedBody | LoggedRequest> | AsyncIterable<LoggedBody | LoggedRequest>

/** A plan of your own for `gateway.savings.explain`. */
export interface CustomPlan {
  readonly name: string
  /** Replaces these options of the gateway, or of the defaults if its savings are off. @default the options of the gateway */
  readonly savings?: SavingsOptions
  /** Savings headers of each request, such as `{ 'X-Savings-Level': 'med' }`. @default none */
  readonly headers?: Readonly<Record<string, string>>
}

/** Options of `gateway.savings.explain`. */
export interface ExplainSavingsOptions {
  /** Names of built-in plans, and own plans. The plan `off` is always explained, as the first one. @default all built-in plans */
  readonly plans?: readonly (string | CustomPlan)[]
  /** Assumed time between requests without a known time, in seconds. @default 30 */
  readonly secondsBetween?: number
  /** Further requests are not read. @default 1_000 */
  readonly maxRequests?: number
  /** Stops the explanation, which then rejects with the signal's reason. @default none */
  readonly signal?: AbortSignal
}

/** What each plan would have cost and lost for the given requests. */
export interface SavingsExplanation extends SessionTotals {
  /** What the figures assume. */
  readonly assumptions: readonly string[]
}

const MAX_PLANS = 50
const checkOwnPlan = optionsOf(
  {
    name: expects('a string that is not empty', (value) => typeof value === 'string' && value !== ''),
    savings: checkSavings,
    headers: expects(
      'an object with strings',
      (value) => isJsonObject(value) && Object.values(value).every((header) => typeof header === 'string'),
    ),
  },
  ['name'],
)
const checkPlan: OptionCheck = (value, path) => {
  if (typeof value !== 'string') return checkOwnPlan(value, path)
  const names = BUILT_IN_PLANS.map(({ name }) => name)
  return oneOf(...names)(value, path)
}
const checkExplain: OptionCheck = optionsOf({
  plans: (value, path) =>
    Array.isArray(value) && value.length > MAX_PLANS
      ? { path, text: `expected at most ${MAX_PLANS} plans, got ${value.length}. Explain them in several calls.` }
      : listOf('a list of plans', checkPlan)(value, path),
  secondsBetween: numberFrom(0, 1e9),
  maxRequests: integerFrom(1, 100_000),
  signal: expects('an AbortSignal', (value) => value instanceof AbortSignal),
})

interface ExplainDependencies {
  readonly savings: false | SavingsOptions
  readonly services: Services
}

export async function explainSavings(
  input: ExplainInput,
  options: ExplainSavingsOptions,
  { savings: configured, services }: ExplainDependencies,
): Promise<SavingsExplanation> {
  checkOptions('gateway.savings.explain', options, checkExplain)
  const { plans: chosen = BUILT_IN_PLANS, secondsBetween = 30, maxRequests = 1000, signal } = options
  const { runtime } = services
  const savings = configured === false ? {} : configured
  const clock = { now: runtime.now() }
  const meter = new PromptMeter(createTokenizer(), () => 0)
  const createSetup = ({ name, savings: changes, headers = {} }: CustomPlan): PlanSetup => {
    const isOff = configured === false && name === CONFIGURED.name
    const { shadowShare: _, embedder: __, ...own } = { ...(isOff ? NO_SAVINGS : savings), ...changes }
    const planRuntime = { ...runtime, now: () => clock.now }
    const dependencies = { store: memoryStore({ now: planRuntime.now }), meter, runtime: planRuntime }
    const waterfall = createSavings(own, dependencies, NO_OBSERVER)
    const steering = readPlanHeaders(lowerCaseNames(headers), services)
    return { name, steering, waterfall, markPrompt: createPromptMarker(own, dependencies) }
  }
  const plans = [OFF, ...chosen.map(toPlan).filter(({ name }) => name !== OFF.name)].map(createSetup)
  const requests = readRequests(input, { start: clock.now, secondsBetween })
  const totals = await explainRequests(requests, { plans, meter, clock, maxRequests, signal }, services)
  return { ...totals, assumptions: assumptionsOf(savings) }
}

const CONFIGURED: CustomPlan = { name: 'configured' }
const NO_SAVINGS: SavingsOptions = { tiers: [], promptCache: false }

const OFF: CustomPlan = { name: 'off', headers: { 'x-savings-level': 'off' } }

const onlyFamilyLock = (builtIn: readonly Tier[]): readonly Tier[] => builtIn.filter(({ tier }) => tier === 4)

const FORCED = { 'x-svc-force': 'true' }

const BUILT_IN_PLANS: readonly CustomPlan[] = [
  OFF,
  { name: 'markers', savings: { tiers: [], promptCache: true } },
  CONFIGURED,
  ...(['min', 'med', 'max', 'extreme'] as const).flatMap((level) =>
    withForced(`level ${level}`, { 'x-savings-level': level }),
  ),
  ...withForced('vanishing', { 'x-vanishing-context': 'true' }),
  ...withForced('recursive', { 'x-svc-rlm': 'true' }),
  { name: 'family', savings: { tiers: onlyFamilyLock, agents: true, keep: 0 } },
  { name: 'automatic', savings: { agents: false } },
  { name: 'automatic with agents', savings: { agents: true } },
  ...[0.9, 0.8].map((keep) => ({
    name: `automatic with a floor of ${keep}`,
    savings: { agents: true, keep: keep },
  })),
  { name: 'automatic without a floor', savings: { agents: true, keep: 0 } },
]

/** Returns the plan as it runs by default, and the one that shortens even if sending everything is cheaper. */
function withForced(name: string, headers: NonNullable<CustomPlan['headers']>): readonly CustomPlan[] {
  return [
    { name, headers },
    { name: `${name}, forced`, headers: { ...headers, ...FORCED } },
  ]
}

function toPlan(plan: string | CustomPlan): CustomPlan {
  return typeof plan === 'string' ? (BUILT_IN_PLANS.find(({ name }) => name === plan) ?? OFF) : plan
}

function readPlanHeaders(headers: Record<string, string>, services: Services): Steering {
  const request = internalRequest('', headers, '')
  checkHeaders({ request, isSteered: false }, { canExplain: false }, services)
  return readSteeringHeaders(request)
}

function lowerCaseNames(headers: Readonly<Record<string, string>>): Record<string, string> {
  return Object.fromEntries(Object.entries(headers).map(([name, value]) => [name.toLowerCase(), value]))
}

function assumptionsOf({ summarizer = 'model', embedder }: SavingsOptions): readonly string[] {
  return [
    'The vendor counts tokens like o200k, and caches prefixes for five minutes after their last use: those with a marker in the messages format, all others in other formats.',
    'A request continues the conversation whose last prompt it begins with. Requests without a later one in their conversation have no known answer, so neither their output nor their facts are counted.',
    summarizer === 'model'
      ? 'Small models are not called. Their text is the first third of what they read, at the price of a call of that length.'
      : 'Summaries are extracted without a model.',
    'The semantic cache is not used.',
    ...(embedder === undefined ? [] : ['The embedder is not called: the ranking uses words only.']),
  ]
}
