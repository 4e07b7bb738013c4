import { afterEach, expect, it } from 'vitest'
import { callAdminApi, ADMIN_KEY, AUDIT_PAGE, KEYS } from '../support/admin-api.ts'
import { sendRequest, ENDPOINTS, type Endpoint, type Reply } from '../support/send-request.ts'
import { startStage, type Stage } from '../support/stage.ts'
import { buildEvents, gate } from '../support/upstream.ts'

let stage: Stage | undefined
afterEach(() => stage?.close())

it('a key is rotated under load without a dropped request: create, switch, verify, disable, delete', async () => {
  const rest = gate()
  const begun = gate()
  let streams = 0
  const at = await startStage({
    admin: { key: ADMIN_KEY },
    reply: (request) => {
      if (!request.text.includes('A long one')) return 'Hello from upstream.'
      streams += 1
      if (streams === 8) begun.open()
      const [first, ...events] = buildEvents(request, { text: 'A long answer.' })
      return { kind: 'events', items: [...(first === undefined ? [] : [first]), rest.opened, ...events] }
    },
  })
  stage = at
  const create = async (name: string): Promise<{ id: string; secret: string }> => {
    const { body } = await callAdminApi(at, 'POST', KEYS, { name, budget_limit_cents: 100_000 })
    return { id: String(body['id']), secret: String(body['value']) }
  }

  const old = await create('old')
  let current = old.secret
  const over = new AbortController()
  const replies: Reply[] = []
  const underWay = new Set<string>()
  const waiting = new Set<() => void>()
  const worker = async (index: number): Promise<void> => {
    for (let count = 0; !over.signal.aborted; count += 1) {
      const secret = current
      const name = `${secret} ${index} ${count}`
      const { path, body } = ENDPOINTS[count % 2] as Endpoint
      underWay.add(name)
      replies.push(await sendRequest(at, { ...body, stream: count % 3 === 0 }, { path, secret }))
      underWay.delete(name)
      for (const look of waiting) look()
    }
  }
  const workers = Array.from({ length: 12 }, (_, index) => worker(index))
  const long = ENDPOINTS.flatMap(({ path, body }) =>
    Array.from({ length: 4 }, () =>
      sendRequest(
        at,
        { ...body, messages: [{ role: 'user', content: 'A long one' }], stream: true },
        { path, secret: old.secret },
      ),
    ),
  )
  const until = (holds: () => boolean): Promise<void> =>
    new Promise((resolve) => {
      const look = (): void => {
        if (!holds()) return
        waiting.delete(look)
        resolve()
      }
      waiting.add(look)
      look()
    })
  const responded = (count: number): Promise<void> => until(() => replies.length >= count)
  try {
    await begun.opened
    await responded(50)

    const next = await create('next')
    current = next.secret
    // The application has switched when no short request uses the old key; long streams may still run.
    await until(() => ![...underWay].some((name) => name.startsWith(old.secret)))
    await responded(replies.length + 20)
    const trail = await callAdminApi(at, 'GET', `/api/governance/audit?key_id=${next.id}`)
    expect(AUDIT_PAGE.parse(trail.body).records.length).toBeGreaterThan(0)
    expect((await callAdminApi(at, 'PUT', `${KEYS}/${old.id}`, { is_active: false })).status).toBe(200)
    expect((await sendRequest(at, ENDPOINTS[0]?.body, { secret: old.secret })).status).toBe(401)
    await responded(replies.length + 50)
    expect((await callAdminApi(at, 'DELETE', `${KEYS}/${old.id}`)).status).toBe(200)
    await responded(replies.length + 50)
  } finally {
    over.abort()
    rest.open()
    await Promise.allSettled([...workers, ...long])
  }

  expect(new Set(replies.map((reply) => reply.status))).toEqual(new Set([200]))
  for (const reply of await Promise.all(long)) {
    expect(reply.status).toBe(200)
    expect(reply.text).toMatch(/\[DONE\]|message_stop/)
  }
  const { records } = await at.gateway.audit.read({ keyId: old.id, limit: 1000 })
  expect(records.filter((record) => record.outcome === 'answered').length).toBeGreaterThan(8)
})
