import { expect, it } from 'vitest'
import { openaiCompatible } from '../../src/index.ts'
import { PRICE, startStage } from '../support/stage.ts'

it.each([
  'a/SMALL',
  'a/small:latest',
  'a/Small-Latest',
  'a/small',
  'small',
  'small-latest',
  'a/small-2026-05-05',
  'small-20260505',
  'fast',
])('gives the margin function the same model for %s as for every other spelling', async (model) => {
  const margins: string[] = []
  const stage = await startStage({
    inProcess: true,
    providers: [
      openaiCompatible({
        name: 'a',
        baseUrl: 'http://upstream.example/v1',
        fetch: async () => Response.json({ choices: [{ message: { role: 'assistant', content: 'Hi.' } }] }),
        models: [{ id: 'small', price: PRICE }],
        defaultPrice: PRICE,
      }),
    ],
    catalog: { aliases: [{ id: 'fast', target: 'a/small-latest' }] },
    margin: (request) => {
      margins.push(request.model)
      return 1
    },
  })
  await stage.gateway.fetch('http://gateway.example/v1/chat/completions', {
    method: 'POST',
    headers: { authorization: `Bearer ${stage.secret}`, 'content-type': 'application/json' },
    body: JSON.stringify({ model, messages: [{ role: 'user', content: 'Hello' }] }),
  })
  await stage.close()
  expect(margins).toEqual(['a/small'])
})
