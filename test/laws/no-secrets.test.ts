import { afterEach, expect, it } from 'vitest'
import { sha256 } from '#hash'
import { memoryStore, type Store } from '../../src/index.ts'
import { callAdminApi, ADMIN_KEY, AUDIT, BUDGETS, KEYS, RATE_LIMITS } from '../support/admin-api.ts'
import { sendRequest, FORMAT_PAIRS, type Reply as ClientReply } from '../support/send-request.ts'
import { startStage, type Stage } from '../support/stage.ts'
import type { Reply } from '../support/upstream.ts'

let stage: Stage | undefined
afterEach(() => stage?.close())

const UPSTREAM_KEY = 'sk-upstream-secret'
const STORE_ADDRESS = 'redis://operator:store-password@10.1.2.3:6379'
const PROMPT = 'The patient’s number is Q4711-0815.'
const RESPONSE = 'It is noted under 1508-1174.'

/** Replies of upstreams, with secrets wherever an upstream can place them. */
const REPLIES: readonly Reply[] = [
  { text: RESPONSE },
  {
    kind: 'failure',
    status: 400,
    failure: { message: `Wrong key ${UPSTREAM_KEY} at http://10.1.2.3:8080/v1`, code: 'x' },
  },
  { kind: 'failure', status: 401, failure: { message: `Incorrect API key provided: ${UPSTREAM_KEY}` } },
  { kind: 'failure', status: 500, failure: { message: `Bearer ${UPSTREAM_KEY} failed` } },
  {
    kind: 'failure',
    status: 429,
    failure: { message: `Slow down, ${UPSTREAM_KEY}` },
    headers: { 'x-key': UPSTREAM_KEY },
  },
  { kind: 'body', body: `<html>${UPSTREAM_KEY}</html>`, headers: { 'set-cookie': `key=${UPSTREAM_KEY}` } },
  { kind: 'cut' },
]

/** A store that sometimes fails with an error that contains its address. */
function talkativeStore(isAway: () => boolean): Store {
  const store = memoryStore()
  const failing =
    <given extends unknown[], result>(method: (...given: given) => result | Promise<result>) =>
    async (...given: given): Promise<result> => {
      if (isAway()) throw new Error(`connect ECONNREFUSED ${STORE_ADDRESS}`)
      return method(...given)
    }
  return {
    ...store,
    local: false,
    get: failing(store.get),
    swap: failing(store.swap),
    reserve: failing(store.reserve),
    settle: failing(store.settle),
    levels: failing(store.levels),
    append: failing(store.append),
    entries: failing(store.entries),
    list: failing(store.list),
    ping: failing(store.ping),
  }
}

it('no secret is in any log, error, list, record or metric, and no word of prompts and answers in any but the caller’s own errors', async () => {
  let away = false
  const logged: unknown[] = []
  const at = await startStage({
    store: talkativeStore(() => away),
    admin: { key: ADMIN_KEY },
    cache: {},
    log: (record) => logged.push(record),
    key: { name: 'secretive', budget_limit_cents: 1_000, rate_limit_requests: 10_000 },
    governance: { virtual_keys: [{ name: 'configured', value: 'sk-bf-configured-secret-0001' }] },
  })
  stage = at
  const created = await callAdminApi(at, 'POST', KEYS, { name: 'created' })
  const secrets = [at.secret, String(created.body['value']), 'sk-bf-configured-secret-0001']
  const places = ['store-password', '10.1.2.3', new URL(at.upstream.url).host]
  const hidden = secrets
    .flatMap((secret) => [secret, secret.slice(10), sha256(secret)])
    .concat(ADMIN_KEY, UPSTREAM_KEY, places)
  // The letter Q prevents an accidental match in a request id.
  const words = [PROMPT, 'Q4711', RESPONSE, '1508-1174']

  const errors: ClientReply[] = []
  const everywhere = async (): Promise<void> => {
    for (const { path, model } of FORMAT_PAIRS) {
      for (const stream of [false, true]) {
        const body = { model, max_tokens: 20, stream, messages: [{ role: 'user', content: PROMPT }] }
        const replies = [
          await sendRequest(at, body, { path, secret: at.secret, headers: { 'cache-control': 'no-store' } }),
          await sendRequest(at, { ...body, messages: PROMPT }, { path, secret: secrets[1] ?? '' }),
          await sendRequest(
            at,
            { ...body, model: `${at.secret}/${ADMIN_KEY}`.slice(0, 20) },
            { path, secret: secrets[2] ?? '' },
          ),
          await sendRequest(at, body, { path, secret: `${at.secret}x` }),
          await sendRequest(at, body, { path, headers: { 'x-bf-vk': ADMIN_KEY } }),
        ]
        errors.push(...replies.filter((reply) => reply.status !== 200))
      }
    }
  }
  for (const reply of REPLIES) {
    at.upstream.reply = () => reply
    await everywhere()
  }
  away = true
  await everywhere()
  const whileAway = await Promise.all([KEYS, AUDIT, '/health', '/ready'].map((path) => callAdminApi(at, 'GET', path)))
  away = false

  const shown = await Promise.all([
    ...[KEYS, BUDGETS, RATE_LIMITS, `${AUDIT}?limit=1000`, '/metrics', '/metrics/cache', '/health', '/ready'].map(
      (path) => callAdminApi(at, 'GET', path),
    ),
    callAdminApi(at, 'GET', '/metrics', undefined, { headers: { accept: 'text/plain' } }),
    callAdminApi(at, 'GET', `${KEYS}/${at.keyId}`),
    callAdminApi(at, 'GET', `${KEYS}/${at.keyId}/usage`),
    callAdminApi(at, 'PUT', `${KEYS}/${at.keyId}`, { name: 'renamed' }),
    callAdminApi(at, 'POST', KEYS, { name: 'x', value: at.secret, [at.secret]: 1 }),
  ])
  expect(shown.map((reply) => reply.status)).toEqual([200, 200, 200, 200, 200, 200, 200, 200, 200, 200, 200, 200, 400])
  expect(logged.length).toBeGreaterThan(100)
  expect(errors.length).toBeGreaterThan(100)

  const texts = {
    log: logged.map((record) => JSON.stringify(record)),
    errors: errors.map(({ text, headers }) => `${text}${JSON.stringify(headers)}`),
    away: whileAway.map(({ text }) => text),
    // The last request has the secret as a field name, which the error contains.
    shown: shown.slice(0, -1).map(({ text, headers }) => `${text}${JSON.stringify(headers)}`),
  }
  for (const [place, lines] of Object.entries(texts)) {
    // An error may quote the caller's own request.
    for (const secret of place === 'errors' ? hidden : [...hidden, ...words]) {
      expect(lines.find((line) => line.includes(secret)) ?? '', `${secret} in ${place}`).toBe('')
    }
  }
})
