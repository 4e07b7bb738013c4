import { describe, expect, it } from 'vitest'
import { billingEvents } from '../../src/billing.ts'
import { runCli } from '../../src/cli/run.ts'
import { createGateway, type GatewayOptions } from '../../src/index.ts'
import { extractive } from '../../src/testing.ts'

const DAY = '2026-11-27'
const PERIOD = ['--from', DAY, '--to', DAY]

function setUp(options: Partial<GatewayOptions> = {}) {
  const gateway = createGateway({
    providers: [extractive({ price: { input: 500, output: 2_000 } })],
    margin: 1,
    cache: false,
    runtime: { now: () => Date.parse(`${DAY}T12:00:00Z`) },
    ...options,
  })
  const ask = async (): Promise<string | null> => {
    const response = await gateway.with({ customer: 'acme' }).fetch('http://gateway/v1/chat/completions', {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({
        model: 'extractive/extractive',
        max_tokens: 16,
        messages: [{ role: 'user', content: 'Hello there.' }],
      }),
    })
    await response.text()
    return response.headers.get('x-svc-billed-amount')
  }
  const files: Record<string, string> = {}
  const run = async (words: readonly string[], exports: object = { gateway }) => {
    const lines: string[] = []
    const code = await runCli(words, {
      environment: {},
      print: (line) => void lines.push(line),
      connect: () => Promise.reject(new Error('no database')),
      load: async (path) => {
        if (path === 'missing.js') throw new Error('Cannot find module')
        return exports
      },
      read: async (path) => files[path] ?? '',
    })
    return { code, text: lines.join('\n') }
  }
  return { gateway, ask, run, files }
}

describe('sluice reconcile', () => {
  it('exits with 0 and names the sum without differences', async () => {
    const { ask, run } = setUp()
    const amount = await ask()
    expect(await run(['reconcile', '--gateway', 'gateway.js', ...PERIOD])).toEqual({
      code: 0,
      text: `${DAY} to ${DAY}: ${amount}000 billed, no differences`,
    })
  })

  it('exits with 1 and lists events that are not delivered', async () => {
    const failing = billingEvents({
      send: () => {
        throw new Error('down')
      },
    })
    const { ask, run } = setUp({ plugins: [failing] })
    await ask()
    const { code, text } = await run(['reconcile', '--gateway', 'gateway.js', ...PERIOD])
    expect(code).toBe(1)
    expect(text).toMatch(/1 difference\nwaiting {2}2026-11-27 {2}billing {2}\$0\.\d{9}/)
  })

  it('compares a vendor’s export by day and model', async () => {
    const { ask, run, files } = setUp()
    const amount = await ask()
    files['export.json'] = JSON.stringify([{ day: DAY, model: 'extractive', costUsd: 1 }])
    const { code, text } = await run(['reconcile', '--gateway', 'g.js', ...PERIOD, '--vendor', 'export.json'])
    expect(code).toBe(0)
    expect(text).toContain(`extractive  ledger ${amount}000  vendor $1.000000000  difference $`)
  })

  it('prints the result as JSON with --json', async () => {
    const { gateway, ask, run } = setUp()
    await ask()
    const { code, text } = await run(['reconcile', '--gateway', 'g.js', ...PERIOD, '--json'], { default: gateway })
    expect(code).toBe(0)
    expect(JSON.parse(text)).toMatchObject({ from: DAY, isEqual: true, differences: [] })
  })

  it.each([
    [['reconcile'], 2, 'Usage: sluice reconcile'],
    [['reconcile', '--gateway', 'g.js', '--from', DAY], 2, 'Usage: sluice reconcile'],
    [['reconcile', '--gateway', 'g.js', ...PERIOD, '--other'], 2, 'Usage: sluice reconcile'],
    [['reconcile', '--help'], 0, 'Usage: sluice reconcile'],
    [['--help'], 0, 'sluice migrate'],
    [['reconcile', '--gateway', 'missing.js', ...PERIOD], 1, 'The reconciliation failed: Cannot find module'],
    [['reconcile', '--gateway', 'g.js', '--from', 'soon', '--to', DAY], 1, 'from: expected'],
    [['reconcile', '--gateway', 'g.js', ...PERIOD, '--vendor', 'none.json'], 1, 'The reconciliation failed'],
  ])('%j exits with %d and says %s', async (words, code, text) => {
    expect(await setUp().run(words)).toMatchObject({ code, text: expect.stringContaining(text) as string })
  })

  it('exits with 2 if the module exports no gateway', async () => {
    const { run } = setUp()
    expect(await run(['reconcile', '--gateway', 'g.js', ...PERIOD], { default: {} })).toEqual({
      code: 2,
      text: 'g.js exports no gateway. Export it as default, or as gateway.',
    })
  })
})
