import { afterEach, describe, expect, it } from 'vitest'
import { sendRequest, CHAT, MESSAGE, type Reply } from '../support/send-request.ts'
import { startStage, type Stage, type StageOptions } from '../support/stage.ts'

let stage: Stage | undefined
afterEach(() => stage?.close())

async function start(options: StageOptions = {}): Promise<Stage> {
  stage = await startStage(options)
  return stage
}

async function get(at: Stage, path: string, method = 'GET'): Promise<Reply> {
  return sendRequest(at, undefined, { method, path, secret: null })
}

describe('a path', () => {
  it.each([
    '/v1/chat/completions/',
    '//v1/chat/completions',
    '/v1//chat/completions',
    '/chat/completions',
    '/chat//completions/',
  ])('is accepted as %s', async (path) => {
    expect((await sendRequest(await start(), CHAT.body, { path })).status).toBe(200)
  })

  it.each(['/messages', '/v1/messages/', '//messages'])(
    'of the message format is accepted spelled %s',
    async (path) => {
      const at = await start()

      expect((await sendRequest(at, MESSAGE.body, { path })).body).toMatchObject({ type: 'message' })
      expect((await sendRequest(at, { ...MESSAGE.body, model: 'none/none' }, { path })).body).toMatchObject({
        type: 'error',
      })
    },
  )

  it('is accepted without /v1 only after the base path', async () => {
    const at = await start({ basePath: '/ai' })

    expect((await sendRequest(at, CHAT.body, { path: '/ai/chat/completions' })).status).toBe(200)
    expect((await sendRequest(at, CHAT.body, { path: '/chat/completions' })).status).toBe(404)
  })

  it.each(['/models/', '//v1/models', '/models'])('of the models is accepted as %s', async (path) => {
    expect((await sendRequest(await start(), undefined, { method: 'GET', path })).body).toMatchObject({
      object: 'list',
    })
  })

  it('requires the key in every spelling', async () => {
    const at = await start()

    for (const path of ['/chat/completions', '//v1//models', '//api/governance/virtual-keys/', '//metrics']) {
      expect((await get(at, path, path.includes('chat') ? 'POST' : 'GET')).status, path).toBe(401)
    }
  })

  it('with another method is rejected with 405 in every spelling', async () => {
    const at = await start()

    expect((await sendRequest(at, undefined, { method: 'GET', path: '/chat/completions/' })).status).toBe(405)
    expect((await sendRequest(at, undefined, { method: 'GET', path: '/v1/chat/completions' })).status).toBe(405)
  })
})

describe('a response with the data of one key', () => {
  it.each([
    ['/v1/models', 200],
    ['/v1/models/chat/large', 200],
    ['/v1/messages/batches', 200],
    ['/v1/files', 200],
    ['/v1/files/file-1', 404],
    ['/v1/responses/resp_1', 404],
  ])('is never cached: %s', async (path, status) => {
    const at = await start({ passthrough: { files: { provider: 'chat', free: true } } })
    const reply = await sendRequest(at, undefined, { method: 'GET', path })

    expect(reply.status).toBe(status)
    expect(reply.headers['cache-control']).toBe('no-store')
  })
})

describe('GET /', () => {
  it('answers 200 with one line of text', async () => {
    const reply = await get(await start(), '/')

    expect(reply.status).toBe(200)
    expect(reply.headers['content-type']).toContain('text/plain')
    expect(reply.text).toMatch(/^[^\n]+\n$/)
  })

  it('answers HEAD without a body', async () => {
    const reply = await get(await start(), '/', 'HEAD')

    expect(reply.status).toBe(200)
    expect(reply.text).toBe('')
  })

  it('answers at the base path, with and without a slash at its end', async () => {
    const at = await start({ basePath: '/ai' })

    expect((await get(at, '/ai')).status).toBe(200)
    expect((await get(at, '/ai/')).status).toBe(200)
    expect((await get(at, '/')).status).toBe(404)
  })
})
