import type { Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { app } from '../examples/saas/app.ts'
import { addDemoData } from '../examples/saas/demo-data.ts'
import { gateway } from '../examples/saas/gateway.ts'
import { meteredNanoUsd } from '../examples/saas/stripe.ts'

let base: string
let server: Server

beforeAll(async () => {
  await addDemoData(3)
  server = await new Promise((resolve) => {
    const started: Server = app.listen(0, '127.0.0.1', () => resolve(started))
  })
  base = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
})
afterAll(async () => {
  server.closeAllConnections()
  server.close()
  await gateway.close()
})

const PAGES = ['/chat', '/usage', '/invoices', '/invoices/2026-11', '/invoices/2026-11/csv']
const OPERATOR_PAGES = ['/admin', '/admin/customers/studio', '/admin/customers/studio/invoices/2026-11']

class Browser {
  cookie = ''

  async get(path: string): Promise<Reply> {
    return this.#read(await fetch(base + path, { redirect: 'manual', headers: { cookie: this.cookie } }))
  }

  async post(path: string, fields: Readonly<Record<string, string>>, headers?: HeadersInit): Promise<Reply> {
    const own = { origin: base, cookie: this.cookie }
    return this.#read(
      await fetch(base + path, {
        method: 'POST',
        redirect: 'manual',
        headers: { ...own, ...headers },
        body: new URLSearchParams(fields),
      }),
    )
  }

  async #read(response: Response): Promise<Reply> {
    const [cookie] = response.headers.getSetCookie()
    if (cookie !== undefined) this.cookie = cookie.split(';')[0] ?? ''
    return { status: response.status, headers: response.headers, text: await response.text() }
  }
}

interface Reply {
  readonly status: number
  readonly headers: Headers
  readonly text: string
}

async function signIn(email: string): Promise<Browser> {
  const browser = new Browser()
  const reply = await browser.post('/login', { email, password: 'demo' })
  expect(reply).toMatchObject({ status: 303 })
  return browser
}

/** Returns the amounts of a page in nano-dollars, exactly. */
function amountsIn(html: string): readonly number[] {
  return [...html.matchAll(/<data value="(\d+)\.(\d{9})"/g)].map(([, dollars, nano]) => Number(`${dollars}${nano}`))
}

function cardOf(html: string, title: string): string {
  return html.slice(html.indexOf(`<h2>${title}</h2>`)).split('</section>')[0] ?? ''
}

/** Asks until a question is refused, and returns the refusal. */
async function useUpBudget(browser: Browser): Promise<Reply> {
  for (let number = 0; number < 40; number += 1) {
    const fields = { question: `What does a rowing boat cost on day ${number}?`, model: 'vendor/extractive-small' }
    const reply = await browser.post('/chat', fields)
    if (reply.status === 402) return reply
    expect(reply).toMatchObject({ status: 303 })
  }
  throw new Error('40 questions were answered.')
}

const sum = (amounts: readonly number[]): number => amounts.reduce((total, amount) => total + amount, 0)
const month = new Date().toISOString().slice(0, 7)

describe('the example of a SaaS product', () => {
  it('shows the same amounts on the chat, the usage page, the invoice, its CSV and the report, to the nano-dollar', async () => {
    const lena = await signIn('lena@example.com')
    const [before = -1] = amountsIn(cardOf((await lena.get('/usage')).text, 'This month'))
    expect((await useUpBudget(lena)).text).toContain('Upgrade to Pro')
    const chat = (await lena.get('/chat')).text
    const answers = [...chat.matchAll(/<p class="small">[\s\S]*?<\/p>/g)].flatMap(([line]) => amountsIn(line))
    expect(answers.length).toBeGreaterThan(5)
    const spent = before + sum(answers)

    const usage = (await lena.get('/usage')).text
    const [ofMonth = 0, limit = 0, remaining = 0] = amountsIn(cardOf(usage, 'This month'))
    expect([ofMonth, remaining]).toEqual([spent, limit - spent])
    const { budgets } = await gateway.usage.summary({ customer: 'lena' })
    expect(budgets.map(({ spentNanoUsd }) => spentNanoUsd)).toEqual([sum(answers), spent])
    const { totals } = await gateway.usage.report({ filter: { customer: 'lena' } })
    expect(totals.cost.billedNanoUsd).toBe(spent)
    const invoice = (await lena.get(`/invoices/${month}`)).text
    const [total, ...lines] = amountsIn(invoice).toReversed()
    expect([total, sum(lines)]).toEqual([spent, spent])
    expect(invoice).toContain(`$${(Math.round(spent / 1e7) / 100).toFixed(2)}</td>`)
    const [header = '', ...rows] = (await lena.get(`/invoices/${month}/csv`)).text.trim().split(/\r?\n/)
    const column = header.split(',').indexOf('billed_nano_usd')
    expect(sum(rows.map((row) => Number(row.split(',')[column])))).toBe(spent)
  })

  it('offers an upgrade when a budget is used up, and answers at once after it', async () => {
    const lena = await signIn('lena@example.com')
    await useUpBudget(lena)
    const ask = (): Promise<Reply> =>
      lena.post('/chat', { question: 'When does the lock open?', model: 'vendor/extractive' })
    await expect.poll(async () => (await lena.get('/usage')).text).toContain('A budget is used up')
    expect(await ask()).toMatchObject({ status: 403 })
    expect(await lena.post('/plan', { plan: 'constructor' })).toMatchObject({ status: 400 })
    expect(await lena.post('/plan', { plan: 'pro' })).toMatchObject({ status: 303 })
    expect(await ask()).toMatchObject({ status: 303 })
    const { text } = await lena.get('/usage')
    expect(text).toContain('Pro plan')
    expect(text).not.toContain('A budget is used up')
  })

  it('shows the amounts of an organization as the sum of its teams', async () => {
    const ada = await signIn('ada@acme.example')
    await ada.post('/chat', { question: 'When does the lock open?', model: 'vendor/extractive' })
    const usage = (await ada.get('/usage')).text
    const [ofMonth] = amountsIn(cardOf(usage, 'This month'))
    const [research = 0, , support = 0] = amountsIn(cardOf(usage, 'Teams, this month'))
    expect(ofMonth).toBe(research + support)
    const [total] = amountsIn((await ada.get(`/invoices/${month}`)).text).toReversed()
    expect(total).toBe(ofMonth)
    const csv = (await ada.get(`/invoices/${month}/csv`)).text
    expect(csv.match(/billed_nano_usd/g)).toHaveLength(1)
  })

  it('reports to Stripe what it has billed since the start, once', async () => {
    const [ada, lena] = [await signIn('ada@acme.example'), await signIn('lena@example.com')]
    for (const browser of [ada, lena, ada]) {
      await browser.post('/chat', { question: 'Are dogs welcome?', model: 'vendor/extractive-small' })
    }
    const today = new Date().toISOString().slice(0, 10)
    const billedToday = async (customer: string): Promise<number> =>
      (await gateway.usage.report({ filter: { customer }, from: today })).totals.cost.billedNanoUsd
    const expected = [await billedToday('acme-support'), await billedToday('lena')]
    expect(Math.min(...expected)).toBeGreaterThan(0)
    const metered = (): (number | undefined)[] => ['cus_acme', 'cus_lena'].map((id) => meteredNanoUsd().get(id))
    await expect.poll(metered).toEqual(expected)
    const page = await (await signIn('operator@lockside.example')).get('/admin')
    expect(amountsIn(cardOf(page.text, 'Counted by Stripe since the start'))).toEqual(expect.arrayContaining(expected))
  })

  it('shows customers nothing of each other', async () => {
    const paul = await signIn('paul@studio.example')
    for (const path of [...PAGES, '/usage?customer=lena', '/invoices?customer=lena', '/usage?id=lena']) {
      const { status, text } = await paul.get(path)
      expect({ path, status }).toEqual({ path, status: 200 })
      expect(text).not.toMatch(/lena|acme/i)
    }
    for (const path of OPERATOR_PAGES) expect(await paul.get(path)).toMatchObject({ status: 404 })
    expect((await (await signIn('ada@acme.example')).get('/usage')).text).not.toMatch(/lena|studio/i)
  })

  it('shows the operator all customers, and what remains of each bill after the vendor is paid', async () => {
    const operator = await signIn('operator@lockside.example')
    const { text } = await operator.get('/admin')
    const rows = [...text.matchAll(/<tr>(?:(?!<\/tr>)[\s\S])*<td[\s\S]*?<\/tr>/g)].map(([row]) => amountsIn(row))
    expect(rows).toHaveLength(6)
    for (const [billed = 0, actual = 0, margin] of rows) expect(margin).toBe(billed - actual)
    expect((await operator.get('/admin?search=stud')).text).not.toContain('Lena Ohm')
    for (const path of OPERATOR_PAGES) expect(await operator.get(path)).toMatchObject({ status: 200 })
    expect(await operator.get('/admin/customers/unknown')).toMatchObject({ status: 404 })
    expect(await operator.get(`/admin?search=${'a'.repeat(1000)}`)).toMatchObject({ status: 400 })
    expect(await operator.get('/admin/customers/%E0%A4')).toMatchObject({ status: 400 })
    expect(await operator.post('/chat', { question: 'a'.repeat(20_000) })).toMatchObject({ status: 413 })
  })

  it('needs a session whose cookie it has signed', async () => {
    const paul = await signIn('paul@studio.example')
    const [text = '', signature = ''] = paul.cookie.replace('session=', '').split('.')
    const forged = Buffer.from(text, 'base64url').toString().replace('paul@studio', 'lena@').replace('lena@.', 'lena@')
    const unsigned = `${Buffer.from(forged).toString('base64url')}.${signature}`
    const wrong = new Browser()
    expect(await wrong.post('/login', { email: 'lena@example.com', password: 'wrong' })).toMatchObject({ status: 401 })
    for (const cookie of ['', 'session=', `session=${text}.`, `session=${text}`, `session=${unsigned}`]) {
      const stranger = new Browser()
      stranger.cookie = cookie
      for (const path of [...PAGES, ...OPERATOR_PAGES]) {
        const { status, headers } = await stranger.get(path)
        expect([status, headers.get('location')]).toEqual([303, '/login'])
      }
    }
    expect(await paul.post('/logout', {})).toMatchObject({ status: 303 })
    expect(await paul.get('/usage')).toMatchObject({ status: 303 })
  })

  it('sets a cookie that scripts cannot read, and never redirects to another site', async () => {
    const { headers } = await new Browser().post('/login?next=//evil.example', {
      email: 'paul@studio.example',
      password: 'demo',
      next: '//evil.example',
    })
    expect(headers.get('set-cookie')).toMatch(/HttpOnly; SameSite=Lax$/)
    expect(headers.get('location')).toBe('/chat')
  })

  it.each([
    { origin: 'https://evil.example' },
    { origin: 'null' },
    { origin: '' },
    { 'sec-fetch-site': 'cross-site' },
    { 'sec-fetch-site': 'same-site' },
    { 'sec-fetch-site': 'none' },
  ])('refuses a form that was sent with %j', async (headers) => {
    const paul = await signIn('paul@studio.example')
    for (const path of ['/plan', '/chat', '/chat/new', '/logout', '/login']) {
      expect(await paul.post(path, { plan: 'team', question: 'Hello' }, headers)).toMatchObject({ status: 403 })
    }
    expect((await gateway.customers.get('studio')).plan).toBe('pro')
  })

  it('escapes what users write, and lets pages run no scripts', async () => {
    const paul = await signIn('paul@studio.example')
    const question = '<script>alert("1")</script>\'&'
    await paul.post('/chat', { question, model: 'vendor/extractive-small' })
    const { text, headers } = await paul.get('/chat')
    expect(text).toContain('&#60;script&#62;alert(&#34;1&#34;)&#60;/script&#62;&#39;&#38;')
    expect(text).not.toContain('<script')
    expect(headers.get('content-security-policy')).toMatch(/^default-src 'none'; style-src 'self';/)
  })
})
