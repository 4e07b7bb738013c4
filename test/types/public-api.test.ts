/** @own-process: the compiler takes 300 MB. */
import { readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import ts from 'typescript'
import { afterEach, beforeAll, describe, expect, it } from 'vitest'
import { createGateway, GatewayError, type Gateway } from '../../src/index.ts'
import { extractive } from '../../src/testing.ts'
import { fromWire, toWire, WIRE_NAMES } from '../../src/core/field-names.ts'
import { IS_FULL } from '../support/full.ts'
import { runTypicalProgram, useWireNames } from './typical-program.ts'

const SECRET = 'sk-mine-0123456789abcdef'
const running: Gateway[] = []
afterEach(async () => {
  for (const gateway of running.splice(0)) await gateway.close()
})

function start(): Gateway {
  const gateway = createGateway({ providers: [extractive()] })
  running.push(gateway)
  return gateway
}

async function failureOf(work: Promise<unknown>): Promise<GatewayError> {
  const failure = await work.then(
    () => undefined,
    (error: unknown) => error,
  )
  if (!(failure instanceof GatewayError)) throw new Error('The call did not reject with a GatewayError.')
  return failure
}

/** Returns the status of a request with this secret: 200 for an active key. */
async function statusOf(gateway: Gateway, secret: string): Promise<number> {
  const response = await gateway.fetch('http://gateway/v1/models', { headers: { authorization: `Bearer ${secret}` } })
  await response.text()
  return response.status
}

describe('a program', () => {
  const programs = [
    ['reads keys, usage and bills', 'typical-program.ts'],
    ['fills options from environment variables, which may be unset', 'environment-program.ts'],
    ['implements a provider, a store, a tier, an embedder and an index', 'ports-program.ts'],
  ] as const
  const pathOf = (path: string): string => fileURLToPath(new URL(path, import.meta.url))
  // `npm run types` compiles them, too.
  describe.runIf(IS_FULL)('of a user', () => {
    let options: ts.CompilerOptions
    let compiled: ts.Program

    beforeAll(() => {
      const read = ts.readConfigFile(pathOf('../../tsconfig.json'), (path) => ts.sys.readFile(path))
      const { config } = read as { readonly config: object }
      options = ts.parseJsonConfigFileContent(config, ts.sys, pathOf('../..')).options
      const files = programs.map(([, name]) => pathOf(name))
      compiled = ts.createProgram(files, options)
    })

    it.each(programs)('that %s compiles through the public entry', (_what, name) => {
      const source = compiled.getSourceFile(pathOf(name))
      const problems = [...compiled.getSemanticDiagnostics(source), ...compiled.getSyntacticDiagnostics(source)]

      expect(source?.text).toContain('import')
      expect(problems.map(({ messageText }) => ts.flattenDiagnosticMessageText(messageText, '\n'))).toEqual([])
      expect(options.exactOptionalPropertyTypes).toBe(true)
    })
  })

  it.each(programs)('that %s needs no cast', (_what, name) => {
    expect(readFileSync(pathOf(name), 'utf8')).not.toMatch(/\bas (?!const\b)|\bany\b|!\./)
  })
})

describe('a typical program', () => {
  it('reads its key, usage, log, bill, audit and metrics', async () => {
    const { secret, listed, bill, usage, logged, audit, metrics, sums } = await runTypicalProgram()

    expect(secret).toMatch(/^sk-bf-/)
    expect(listed).toEqual(['first app'])
    expect(bill).toMatchObject({ cache: 'MISS', margin: 1.5, isEstimated: false, billedUsd: usage.cost.billedUsd })
    expect(usage).toMatchObject({ requests: 1, budgetLimitCents: 1000, byModel: [{ model: 'extractive/extractive' }] })
    expect(logged.some((line) => line.includes('extractive/extractive'))).toBe(true)
    expect(usage.cost.billedUsd).toBeGreaterThan(0)
    expect(audit).toMatchObject([{ keyId: usage.keyId, outcome: 'answered', costUsd: bill?.billedUsd }])
    expect(metrics.optimizer.requestsTotal).toBe(1)
    expect(sums.every((sum) => typeof sum === 'number')).toBe(true)
  })

  it('accepts the names of the HTTP API', async () => {
    expect(await useWireNames()).toBe(700)
  })
})

it('every field has its name of the HTTP API, and back', () => {
  const records = Object.fromEntries(Object.keys(WIRE_NAMES).map((name) => [name, 1]))
  const wireRecords = Object.fromEntries(Object.values(WIRE_NAMES).map((name) => [name, 1]))

  expect(Object.entries(Object(toWire(records)))).toEqual(Object.entries(wireRecords))
  expect(Object.entries(Object(fromWire(wireRecords)))).toEqual(Object.entries(records))
})

describe('records in process', () => {
  it('have no field with a name of the HTTP API', async () => {
    const gateway = start()
    const key = await gateway.keys.create({ name: 'app', plan: 'free', providerConfigs: [{ provider: 'extractive' }] })
    await statusOf(gateway, key.value)
    const budget = await gateway.budgets.create({ maxLimitUsd: 5 })
    const rateLimit = await gateway.rateLimits.create({ tokenMaxLimit: 5 })
    const records = [
      key,
      budget,
      rateLimit,
      await gateway.keys.list(),
      await gateway.budgets.list(),
      await gateway.rateLimits.list(),
      await gateway.keys.usage(key.id),
      await gateway.keys.rateLimit(key.id),
      await gateway.keys.limits(key.id),
      await gateway.audit.read(),
      gateway.metrics.summary(),
      gateway.metrics.cache(),
    ]

    const wire: ReadonlySet<string> = new Set(Object.values(WIRE_NAMES))
    expect(namesIn(records).filter((name) => wire.has(name) || name.includes('_'))).toEqual([])
  })

  it.each([
    [{ name: 'app', budgetLimitCents: -5 }, 'budgetLimitCents'],
    [{ name: 'app', providerConfigs: [{ provider: 'a', allowedModels: 'x' }] }, 'providerConfigs.0.allowedModels'],
    [{ name: 'app', budget_limit_cents: -5 }, 'budget_limit_cents'],
    [{ name: 'app', tokenResetDuration: '1d' }, 'tokenResetDuration'],
  ])('are rejected with the field name of the caller: %j', async (fields, param) => {
    const failure = await failureOf(Reflect.apply(start().keys.create, undefined, [fields]))

    expect(failure).toMatchObject({ kind: 'invalid-admin-request', details: { param } })
    expect(failure.message.startsWith(`${param}: `)).toBe(true)
  })

  it('are rejected when a field is given in both spellings', async () => {
    const both = { name: 'app', budgetLimitCents: 5, budget_limit_cents: 6 }

    expect((await failureOf(start().keys.create(both))).message).toContain('budget_limit_cents is the same field')
  })
})

describe('keys.create({ value })', () => {
  it('uses the given secret', async () => {
    const gateway = start()
    const { value, keyPrefix } = await gateway.keys.create({ name: 'mine', value: SECRET })

    expect([value, keyPrefix]).toEqual([SECRET, SECRET.slice(0, 10)])
    expect(await statusOf(gateway, SECRET)).toBe(200)
  })

  it('rejects a secret of another key without creating a key', async () => {
    const gateway = start()
    await gateway.keys.create({ name: 'mine', value: SECRET })

    expect((await failureOf(gateway.keys.create({ name: 'again', value: SECRET }))).kind).toBe('conflict')
    expect((await gateway.keys.list()).keys).toHaveLength(1)
    expect(await statusOf(gateway, SECRET)).toBe(200)
  })

  it('rejects a secret that is too short', async () => {
    expect(await failureOf(start().keys.create({ name: 'short', value: 'secret' }))).toMatchObject({
      kind: 'invalid-admin-request',
      details: { param: 'value' },
    })
  })

  it('does not change the secret of a key: the own secret is accepted, another one rejected', async () => {
    const gateway = start()
    const { value, ...key } = await gateway.keys.create({ name: 'mine' })

    await Reflect.apply(gateway.keys.update, undefined, [key.id, { ...key, value, description: 'sent back' }])
    expect((await gateway.keys.get(key.id)).description).toBe('sent back')
    const failure = await failureOf(Reflect.apply(gateway.keys.update, undefined, [key.id, { value: SECRET }]))
    expect(failure.details.param).toBe('value')
    expect(await statusOf(gateway, value)).toBe(200)
  })
})

function namesIn(value: unknown): readonly string[] {
  if (typeof value !== 'object' || value === null) return []
  return Object.entries(value).flatMap(([name, field]) => [...(Array.isArray(value) ? [] : [name]), ...namesIn(field)])
}
