import { describe, expect, it } from 'vitest'
import { GatewayError, type FailureKind } from '../../src/core/errors.ts'
import type { EmbedCall, EmbeddingResult, Provider, Route } from '../../src/core/ports.ts'
import { createFailover } from '../../src/providers/failover.ts'
import { failoverRequest } from '../support/failover-request.ts'
import { manualRuntime } from '../support/manual-runtime.ts'
import { failureOf, testModel, timeouts } from '../support/provider-call.ts'

const response: EmbeddingResult = { model: 'm', embeddings: [[1]], inputTokens: 1 }
const request = { native: {}, model: 'm', inputs: ['a'], encoding: 'float' } as const

interface Played extends Route {
  readonly calls: EmbedCall[]
}

function unused(): never {
  throw new Error('Nobody asks for words')
}

/** Creates a provider that throws these failure kinds in order and then embeds. */
function createScriptedProvider(name: string, ...kinds: readonly FailureKind[]): Played {
  const calls: EmbedCall[] = []
  const provider: Provider = {
    name,
    dialect: 'chat',
    models: [testModel],
    model: () => testModel,
    complete: unused,
    stream: unused,
    embed: async (call) => {
      const kind = kinds[calls.push(call) - 1]
      if (kind !== undefined) throw new GatewayError(kind, kind)
      return response
    },
  }
  return { provider, model: testModel, calls }
}

function embedBy(...candidates: readonly Route[]) {
  const runtime = { ...manualRuntime(unused), random: () => 0, after: fireImmediately }
  const failover = createFailover({ runtime, timeouts })
  return failover.embed(candidates, { request, ...failoverRequest({ startedAt: runtime.now() }) })
}

function fireImmediately(_ms: number, callback: () => void): () => void {
  queueMicrotask(callback)
  return () => {}
}

describe('embeddings of several providers', () => {
  it('come from the first provider, which receives the model and the request', async () => {
    const [one, two] = [createScriptedProvider('one'), createScriptedProvider('two')]

    const { response: got, route } = await embedBy(one, two)

    expect(got).toBe(response)
    expect(route).toBe(one)
    expect(one.calls).toMatchObject([{ request, model: testModel }])
    expect(two.calls).toHaveLength(0)
  })

  it('are requested again after a failure, and then from the next provider', async () => {
    const [one, two] = [
      createScriptedProvider('one', 'upstream', 'overloaded', 'upstream'),
      createScriptedProvider('two'),
    ]

    const { route } = await embedBy(one, two)

    expect(one.calls).toHaveLength(3)
    expect(route).toBe(two)
  })

  it('are rejected without a retry if the request is invalid', async () => {
    const [one, two] = [createScriptedProvider('one', 'upstream-rejected'), createScriptedProvider('two')]

    expect((await failureOf(embedBy(one, two))).kind).toBe('upstream-rejected')
    expect([one.calls.length, two.calls.length]).toEqual([1, 0])
  })

  it('come from the only provider with an embeddings endpoint', async () => {
    const { embed: _embed, ...provider } = createScriptedProvider('one').provider
    const two = createScriptedProvider('two')

    expect((await embedBy({ provider, model: testModel }, two)).route).toBe(two)
  })
})
