import type { CacheHit } from '../cache/find-answer.ts'
import type { CacheMiss, CacheQuestion } from '../cache/semantic-cache.ts'
import { createSingleFlight } from '../cache/single-flight.ts'
import { ZERO } from '../core/money.ts'
import type { Forecast } from '../governance/forecast.ts'
import type { SmallModel } from '../savings/tier.ts'
import { describe, type Found } from './explanation.ts'
import { baseHead, jsonResponse } from './head.ts'
import { plan } from './plan.ts'
import { quote } from './reserve.ts'
import type { Parts, Planned, Understood } from './stages.ts'

/**
 * What would happen to a request: its limits, its cache state, its tier, its tokens, its prices and its route. Nothing
 * is asked of an upstream, taken of a limit, or left in the cache, in the statistics or in what tiers remember.
 */
export async function explain(understood: Understood, parts: Parts): Promise<Response> {
  const told = await parts.ledger.forecast(understood.key, quote(understood, false))
  const rehearsal = rehearse(parts)
  const planned = await plan({ ...understood, reservation: takenNothing(told) }, rehearsal.parts)
  const body = describe(planned, { told, found: rehearsal.found(), hasCache: parts.memory !== undefined })
  await parts.records.record(understood, { status: 200 })
  return jsonResponse(200, baseHead(understood.id, told.rate), JSON.stringify(body))
}

function takenNothing({ rate, quote: seen, outputTokens }: Forecast): Planned['reservation'] {
  return {
    rate,
    quote: seen,
    outputTokens,
    settle: () => Promise.resolve(),
    settlement: () => ({ ticket: '', charges: [], tallies: [] }),
  }
}

/** The same parts, of which nothing is used up: the stage that plans runs on them as it always does. */
function rehearse(parts: Parts): { readonly parts: Parts; readonly found: () => Found } {
  const { memory } = parts
  let found: Found
  const lookUp = async (question: CacheQuestion): Promise<CacheHit | CacheMiss> => {
    const seen = await (memory?.cache ?? { peek: nothingFound }).peek(question)
    found = seen
    return seen.hit ? seen : { hit: false, spent: ZERO, store: () => false, becameHit: () => {} }
  }
  return {
    parts: {
      ...parts,
      ...(memory !== undefined && {
        memory: { cache: { ...memory.cache, lookUp }, singleFlight: createSingleFlight() },
      }),
      waterfall: parts.rehearsal(),
      smallModel: (route) => standIn(parts.smallModel(route), parts),
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
function standIn(small: SmallModel | undefined, { meter }: Parts): SmallModel | undefined {
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
