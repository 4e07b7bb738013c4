import { expect, it } from 'vitest'
import { openaiCompatible } from '../../src/index.ts'
import type { LogRecord } from '../../src/plugins/request-log/request-log.ts'
import { PRICE, startStage } from '../support/stage.ts'

async function send(margin: number): Promise<{ readonly status: number; readonly text: string; readonly log: string }> {
  const records: LogRecord[] = []
  const stage = await startStage({
    inProcess: true,
    providers: [
      openaiCompatible({
        name: 'a',
        baseUrl: 'http://upstream.example/v1',
        fetch: async () => Response.json({ choices: [{ message: { role: 'assistant', content: 'Hi.' } }] }),
        models: [{ id: 'small', price: PRICE }],
      }),
    ],
    margin: () => margin,
    log: (record) => records.push(record),
  })
  const response = await stage.gateway.fetch('http://gateway.example/v1/chat/completions', {
    method: 'POST',
    headers: { authorization: `Bearer ${stage.secret}`, 'content-type': 'application/json' },
    body: JSON.stringify({ model: 'a/small', messages: [{ role: 'user', content: 'Hello' }] }),
  })
  const text = await response.text()
  await stage.close()
  return { status: response.status, text, log: JSON.stringify(records) }
}

it.each([0, 1.5, 10])('bills with a margin function that returns %d', async (margin) => {
  expect((await send(margin)).status).toBe(200)
})

it.each([
  [50, 'got 50. Did you mean 1.5?'],
  [10.01, 'got 10.01.'],
  [-0.01, 'got -0.01.'],
  [NaN, 'got NaN.'],
  [Infinity, 'got Infinity.'],
])('refuses a request for which the margin function returns %d, and logs the value', async (margin, problem) => {
  const { status, text, log } = await send(margin)

  expect(status).toBe(500)
  expect(text).toContain('Contact the operator')
  expect(text).not.toContain(problem)
  expect(log).toContain(`margin: expected a number from 0 to 10, or a function that returns one, ${problem}`)
})
