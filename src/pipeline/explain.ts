import type { CacheHit } from '../cache/find-answer.ts'
import type { CacheMiss } from '../cache/cache-miss.ts'
import type { CacheQuestion } from '../cache/semantic-cache.ts'
import { createSingleFlight } from '../cache/single-flight.ts'
import { ZERO } from '../core/money.ts'
import type { Forecast } from '../governance/forecast.ts'
import type { SmallModel } from '../savings/tier.ts'
import { describe, type CacheResult } from './explanation.ts'
import type { Reservation } from '../governance/reservation.ts'
import { baseHeaders, sendJson } from './head.ts'
import { plan } from './plan.ts'
import { quote } from './reserve.ts'
import type { Parsed, Reserved } from './exchange.ts'
import type { Services } from './services.ts'
import { waitForStore } from './store-wait.ts'

/**
 * Answers what would happen to a request: its limits, its cache state, its tier, its tokens, its prices and its route.
 * No upstream is called, no limit is charged, and nothing is left in the cache, in the statistics or in what tiers
 * remember.
 */
export async function explain(parsed: Parsed, services: Services): Promise<undefined> {
  await parsed.size.prepare()
  const forecast = await waitForStore(parsed, services.ledger.forecast(parsed.key, quote(parsed, false)), services)
  const dryRun = dryRunOf(services)
  parsed.reservation = takenNothing(forecast)
  const planned = await plan(parsed as Reserved, dryRun.services)
  const body = describe(planned, { forecast, found: dryRun.found(), hasCache: services.memory !== undefined })
  // No settlement follows that could carry the audit record.
  parsed.reservation = undefined
  await services.observers.observeRequest(parsed, { status: 200 })
  sendJson(parsed.sink, 200, baseHeaders(parsed.id, forecast.rate), JSON.stringify(body))
  return undefined
}

function takenNothing({ rate, quote: seen, outputTokens }: Forecast): Reservation {
  return {
    isReserved: false,
    rate,
    quote: seen,
    outputTokens,
    settle: () => Promise.resolve(),
    settlement: () => ({ reservationId: '', charges: [], tallies: [] }),
  }
}

/** The same services, of which nothing is used up: the stage that plans runs on them as it always does. */
function dryRunOf(services: Services): { readonly services: Services; readonly found: () => CacheResult } {
  const { memory } = services
  let found: CacheResult
  const lookUp = async (question: CacheQuestion): Promise<CacheHit | CacheMiss> => {
    const seen = await (memory?.cache ?? { peek: nothingFound }).peek(question)
    found = seen
    return seen.hit ? seen : { hit: false, spent: ZERO, store: () => false, becameHit: () => {} }
  }
  return {
    services: {
      ...services,
      ...(memory !== undefined && {
        memory: { cache: { ...memory.cache, lookUp }, singleFlight: createSingleFlight() },
      }),
      ...services.dryRun(),
      smallModel: (route) => standIn(services.smallModel(route), services),
    },
    found: () => found,
  }
}

async function nothingFound(): Promise<CacheMiss> {
  return { hit: false, spent: ZERO, store: () => false, becameHit: () => {} }
}

/** A third of what it reads, at most: about as long as what small models write. */
const SHARE = 3
const CHARACTERS_A_TOKEN = 4

/** Costs what the small model costs and says something of the length that it would say. */
function standIn(small: SmallModel | undefined, { meter }: Services): SmallModel | undefined {
  if (small === undefined) return undefined
  return {
    name: small.name,
    price: small.price,
    ask: async ({ instruction, text, maxTokens }) => {
      const said = text.slice(0, Math.min(text.length / SHARE, maxTokens * CHARACTERS_A_TOKEN))
      const { estimate } = meter.tokenizer
      return { text: said, spent: small.price(estimate(instruction) + estimate(text), estimate(said)) }
    },
  }
}
