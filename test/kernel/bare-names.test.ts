import { afterEach, describe, expect, it } from 'vitest'
import { openaiCompatible, type Gateway } from '../../src/index.ts'
import { PRICE, startStage, type Stage } from '../support/stage.ts'
import { startUpstream, type Reply, type Upstream, type UpstreamRequest } from '../support/upstream.ts'

const closing: (() => Promise<void>)[] = []
afterEach(async () => {
  for (const close of closing.splice(0)) await close()
})

interface TestStage extends Stage {
  /** Upstream calls as `<provider> <model in the upstream request>`. */
  readonly upstreamCalls: () => readonly string[]
}

/** `a` and `b` list models; `open` accepts any. */
async function start(
  options: { readonly key?: Parameters<Gateway['keys']['create']>[0]; readonly reply?: Upstream['reply'] } = {},
): Promise<TestStage> {
  const reply = options.reply ?? ((): Reply => 'Hello.')
  const upstream = await startUpstream({ reply })
  const provider = (name: string, ids: readonly string[]) =>
    openaiCompatible({ name, baseUrl: `${upstream.url}/${name}`, models: ids.map((id) => ({ id, price: PRICE })) })
  const stage = await startStage({
    providers: [
      openaiCompatible({ name: 'open', baseUrl: `${upstream.url}/open`, defaultPrice: PRICE }),
      provider('a', ['shared', 'only-a', 'dated-2026-01-02', 'meta/llama-9']),
      provider('b', ['shared', 'only-b']),
    ],
    catalog: {
      aliases: [
        { id: 'team/fast', target: 'a/only-a' },
        { id: 'fast', target: 'a/only-a' },
      ],
    },
    ...(options.key !== undefined && { key: options.key }),
  })
  closing.push(stage.close, upstream.close)
  const upstreamCalls = () =>
    upstream.requests.map(({ path, body }) => `${path.split('/')[1]} ${String(body['model'])}`)
  return Object.assign(stage, { upstreamCalls })
}

async function statusFor(stage: Stage, model: string): Promise<{ status: number; message: string }> {
  const responded = await fetch(`${stage.url}/v1/chat/completions`, {
    method: 'POST',
    headers: { authorization: `Bearer ${stage.secret}`, 'content-type': 'application/json' },
    body: JSON.stringify({ model, messages: [{ role: 'user', content: 'Hi' }] }),
  })
  const body = (await responded.json()) as { error?: { message: string } }
  return { status: responded.status, message: body.error?.message ?? '' }
}

describe('a model name without a provider', () => {
  it.each([
    ['only-b', 'b only-b'],
    ['shared', 'a shared'],
    ['dated-2026-05-05', 'a dated-2026-05-05'],
    ['meta/llama-9', 'a meta/llama-9'],
    ['never-heard-of', 'open never-heard-of'],
    ['team/fast', 'a only-a'],
    ['b/shared', 'b shared'],
  ])('%s resolves to %s', async (model, expected) => {
    const stage = await start()

    expect((await statusFor(stage, model)).status).toBe(200)
    expect(stage.upstreamCalls()).toEqual([expected])
  })

  it('falls back to the other providers that list the model, and to no others', async () => {
    const failing = (request: UpstreamRequest): Reply => ({
      kind: 'failure',
      status: request.path.startsWith('/b') ? 400 : 401,
    })
    const stage = await start({ reply: failing })

    await statusFor(stage, 'shared')

    expect(stage.upstreamCalls()).toEqual(['a shared', 'b shared'])
  })

  it('resolves only to the providers of the key, in their order', async () => {
    const key = { name: 'own', provider_configs: [{ provider: 'b', weight: 1 }] }
    const stage = await start({ key })

    expect((await statusFor(stage, 'shared')).status).toBe(200)
    expect(stage.upstreamCalls()).toEqual(['b shared'])
    expect((await statusFor(stage, 'only-a')).status).toBe(404)
  })

  it.each([{ provider: 'b' }, { provider: 'a', allowedModels: ['shared'] }])(
    'that is an alias never reaches a model outside the providers of the key: %j',
    async (config) => {
      const stage = await start({ key: { name: 'own', providerConfigs: [config] } })

      expect((await statusFor(stage, 'fast')).status).toBe(403)
      expect((await statusFor(stage, 'fasd')).message).not.toContain('fast')
      const names = (await stage.openai.models.list()).data.map(({ id }) => id)
      expect(names).not.toContain('fast')
      expect(names.length).toBeGreaterThan(0)
      expect(stage.upstreamCalls()).toEqual([])
    },
  )

  it('that is an alias is served and listed if the key may use its target', async () => {
    const stage = await start({ key: { name: 'own', providerConfigs: [{ provider: 'a' }], allowedModels: ['fast'] } })

    expect((await statusFor(stage, 'fast')).status).toBe(200)
    expect((await stage.openai.models.list()).data.map(({ id }) => id)).toEqual(['fast'])
  })

  it('never falls back to a model that the key may not use', async () => {
    const stage = await start({ key: { name: 'narrow', allowed_models: ['b/shared'] } })

    expect((await statusFor(stage, 'shared')).status).toBe(200)
    expect((await statusFor(stage, 'only-a')).status).toBe(403)
    expect(stage.upstreamCalls()).toEqual(['b shared'])
  })
})

describe('an unknown model name', () => {
  it.each([
    ['a/only-x', 'a/only-a'],
    ['b/shred', 'b/shared'],
  ])('%s is a 404 that suggests %s', async (model, near) => {
    const { status, message } = await statusFor(await start(), model)

    expect(status).toBe(404)
    expect(message).toMatch(new RegExp(`Did you mean .*${near}`))
  })

  it('receives no suggestion of a model that the key may not use', async () => {
    const stage = await start({ key: { name: 'narrow', allowed_models: ['b/*'] } })

    expect((await statusFor(stage, 'a/only-x')).message).not.toContain('a/only-a')
    expect((await statusFor(stage, 'b/only-x')).message).toContain('b/only-b')
  })
})

describe('GET /v1/models', () => {
  const get = async (
    stage: TestStage,
    path: string,
  ): Promise<{ status: number; body: { id?: string; data?: { id: string }[] } }> => {
    const response = await fetch(`${stage.url}${path}`, { headers: { authorization: `Bearer ${stage.secret}` } })
    return { status: response.status, body: (await response.json()) as { id?: string; data?: { id: string }[] } }
  }

  it.each(['only-b', 'dated', 'dated-2026-05-06', 'open/anything', 'a%2Fonly-a', 'team%2Ffast', 'unlisted'])(
    'returns the model %s, which a request may name',
    async (name) => {
      const stage = await start()
      const id = decodeURIComponent(name)

      const asked = await stage.openai.chat.completions.create({
        model: id,
        messages: [{ role: 'user', content: 'Hi' }],
      })
      const { status, body } = await get(stage, `/v1/models/${name}`)

      expect(asked.choices).toHaveLength(1)
      expect([status, body.id]).toEqual([200, id])
    },
  )

  it.each(['only-a', 'a/unknown', '..', 'b/only-a'])(
    'returns 404 for %s if the key may only use other models',
    async (name) => {
      const stage = await start({ key: { name: 'limited', allowedModels: ['b/only-b'] } })

      expect((await get(stage, `/v1/models/${encodeURIComponent(name)}`)).status).toBe(404)
      expect((await get(stage, '/v1/models/only-b')).status).toBe(200)
    },
  )

  it('lists the models of the providers before aliases', async () => {
    const stage = await start()

    const ids = ((await get(stage, '/v1/models')).body.data ?? []).map(({ id }) => id)
    expect(ids.slice(-2)).toEqual(['team/fast', 'fast'])
    expect(ids[0]).toBe('a/shared')
  })
})
