import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { anthropic, createGateway, openaiCompatible } from '../../src/index.ts'
import { extractive } from '../../src/testing.ts'
import { testProvider } from '../../src/testing.ts'
import { startUpstream, type Upstream } from '../support/upstream.ts'
import { echo } from '../types/ports-program.ts'

const api = { afterEach, beforeEach, describe, expect, it }
const models = [
  { id: 'large', family: 'mine', price: { input: 1, output: 2 }, contextWindowTokens: 128_000, maxOutputTokens: 4096 },
]

let upstream: Upstream
beforeAll(async () => {
  upstream = await startUpstream()
})
afterAll(() => upstream.close())

testProvider('echo()', async () => ({ gateway: createGateway({ providers: [echo()] }), model: 'echo/words' }), api)

testProvider(
  'extractive()',
  async () => ({
    gateway: createGateway({ providers: [extractive()] }),
    model: 'extractive/extractive',
    question: 'A sluice is a gate for water. What is a sluice?',
  }),
  api,
)

testProvider(
  'openaiCompatible()',
  async () => {
    const provider = openaiCompatible({ name: 'mine', baseUrl: upstream.baseUrl, models })
    return { gateway: createGateway({ providers: [provider], cache: false }), model: 'mine/large' }
  },
  api,
)

testProvider(
  'anthropic()',
  async () => {
    const provider = anthropic({ name: 'mine', baseUrl: upstream.url, apiKey: 'test', models })
    return { gateway: createGateway({ providers: [provider], cache: false }), model: 'mine/large' }
  },
  api,
)
