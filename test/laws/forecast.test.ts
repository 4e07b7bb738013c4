import { callerOfKey } from '../../src/governance/caller.ts'
import { expect, it } from 'vitest'
import { GatewayError } from '../../src/core/errors.ts'
import { quote, createTestGovernance, usage, parseNewKey } from '../governance/test-governance.ts'
import { cases, fc } from '../support/properties.ts'
import { resultOrError } from '../support/result-or-error.ts'

const request = fc.record({
  prompt: fc.integer({ min: 1, max: 400 }),
  output: fc.integer({ min: 1, max: 400 }),
  price: fc.constantFrom(0, 10_000, 1_000_000),
  settles: fc.boolean(),
})

it('a forecast equals the reservation after it, and reserves nothing', async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.record({
        cents: fc.constantFrom(undefined, 0, 1, 20, 90),
        requests: fc.constantFrom(undefined, 0, 2, 5),
        tokens: fc.constantFrom(undefined, 0, 100, 900),
      }),
      fc.array(request, { minLength: 1, maxLength: 8 }),
      async ({ cents, requests, tokens }, steps) => {
        const { keyring, ledger } = createTestGovernance()
        const { key } = await keyring.create(
          parseNewKey({
            name: 'k',
            budget_limit_cents: cents,
            rate_limit_requests: requests,
            rate_limit_tokens: tokens,
          }),
        )
        for (const { prompt, output, price, settles } of steps) {
          const wanted = quote(prompt, output, price)
          const forecast = await ledger.forecast(callerOfKey(key), wanted)
          expect(await ledger.forecast(callerOfKey(key), wanted)).toEqual(forecast)

          const real = await resultOrError(() => ledger.reserve(callerOfKey(key), wanted))

          if (GatewayError.is(real)) {
            expect(forecast.error).toMatchObject({ kind: real.kind, message: real.message, details: real.details })
            continue
          }
          const reservation = real as Awaited<ReturnType<typeof ledger.reserve>>
          expect(forecast.error).toBeUndefined()
          expect(forecast.outputTokens).toBe(reservation.outputTokens)
          expect(forecast.rate.limit).toBe(reservation.rate.limit)
          if (settles) await reservation.settle(usage(prompt, 1))
        }
      },
    ),
    { numRuns: cases(300) },
  )
})
