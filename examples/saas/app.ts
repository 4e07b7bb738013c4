/** The routes of the application. */
import { readFileSync } from 'node:fs'
import express, { type NextFunction, type Request, type Response } from 'express'
import { GatewayError } from 'sluice'
import { ask, conversationOf, modelsOf, type Refusal, startConversation } from './chat.ts'
import { QUESTIONS } from './demo-data.ts'
import { budgetEvents, gateway, OFFERS } from './gateway.ts'
import { meteredNanoUsd } from './stripe.ts'
import type { Html } from './html.ts'
import {
  type Account,
  ACCOUNTS,
  endSession,
  findAccount,
  operatorsOnly,
  type Page,
  sameOrigin,
  signedIn,
  startSession,
} from './login.ts'
import { adminPage, chatPage, type CustomerLine, invoicePage, invoicesPage, loginPage } from './pages.ts'
import { payerOf, readInvoice, readInvoiceCsv, readMonths, readTotals, readUsage } from './usage.ts'
import { usagePage } from './usage-page.ts'

const style = readFileSync(new URL('style.css', import.meta.url), 'utf8')
export const app = express()
app.disable('x-powered-by')
app.use((_, response, next) => {
  response.set({
    // Pages need no scripts, so none that someone smuggled in runs.
    'content-security-policy':
      "default-src 'none'; style-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    'referrer-policy': 'same-origin',
    'x-content-type-options': 'nosniff',
    'cache-control': 'no-store',
  })
  next()
})
app.use(sameOrigin)
app.use(express.urlencoded({ extended: false, limit: '16kb' }))

function send(response: Response, page: Html, status = 200): void {
  response.status(status).type('html').send(page.text)
}

function field(request: Request, name: string): string {
  const value = (request.body as Readonly<Record<string, unknown>> | undefined)?.[name]
  return typeof value === 'string' ? value : ''
}

/** Whose usage an account sees: that of its organization, if it may, or of its customer. */
function payerIdOf({ organization, customer }: Account): string {
  return organization ?? customer
}

const MONTH = /^20\d\d-(?:0[1-9]|1[0-2])$/
const thisMonth = (): string => new Date().toISOString().slice(0, 7)

app.get('/style.css', (_, response) => void response.type('css').send(style))
app.get('/', (_, response) => response.redirect('/chat'))

app.get('/login', (_, response) => send(response, loginPage(ACCOUNTS)))
app.post('/login', async (request, response) => {
  const account = await findAccount(field(request, 'email'), field(request, 'password'))
  if (account === undefined) return send(response, loginPage(ACCOUNTS, 'The email or the password is wrong.'), 401)
  startSession(response, account)
  response.redirect(303, '/chat')
})
app.post('/logout', (_, response) => {
  endSession(response)
  response.redirect(303, '/login')
})

/** Routes for those who have signed in, and for those who run the application. */
const member = {
  get: (path: string, page: Page) => app.get(path, signedIn(page)),
  post: (path: string, page: Page) => app.post(path, signedIn(page)),
}
const operator = { get: (path: string, page: Page) => app.get(path, operatorsOnly(page)) }

async function sendChat(account: Account, response: Response, refusal?: Refusal): Promise<void> {
  const { customer, email } = account
  const conversation = conversationOf(account)
  const [models, summary, payer] = await Promise.all([
    modelsOf(account),
    gateway.usage.summary({ customer, user: email, session: conversation.id }),
    payerOf(customer),
  ])
  const view = {
    account,
    conversation,
    models,
    summary,
    payer,
    suggestions: QUESTIONS,
    refusal,
  }
  send(response, chatPage(view), refusal?.status)
}

member.get('/chat', (account, _, response) => sendChat(account, response))
member.post('/chat', async (account, request, response) => {
  const question = field(request, 'question').trim().slice(0, 2000)
  const refusal = question === '' ? undefined : await ask(account, question, field(request, 'model'))
  if (refusal === undefined) response.redirect(303, '/chat')
  else await sendChat(account, response, refusal)
})
member.post('/chat/new', (account, _, response) => {
  startConversation(account.email)
  response.redirect(303, '/chat')
})

async function sendUsage(account: Account, response: Response, customer: string, user?: Account): Promise<void> {
  const view = await readUsage(customer, user)
  const ids = [customer, ...view.payer.teams.map(({ id }) => id)]
  const events = budgetEvents.filter((event) => ids.includes(event.customer ?? ''))
  send(response, usagePage({ ...view, account, events, month: thisMonth() }))
}

member.get('/usage', (account, _, response) => sendUsage(account, response, payerIdOf(account), account))
member.post('/plan', async (account, request, response) => {
  const plan = field(request, 'plan')
  const { parentId } = await gateway.customers.get(payerIdOf(account))
  if (!Object.hasOwn(OFFERS, plan) || parentId !== null) return void response.sendStatus(400)
  // A real application takes the payment first.
  await gateway.customers.update(payerIdOf(account), { plan })
  response.redirect(303, '/usage')
})

member.get('/invoices', async (account, _, response) => {
  const id = payerIdOf(account)
  send(response, invoicesPage(account, await payerOf(id), await readMonths(id)))
})

async function sendInvoice(account: Account, request: Request, response: Response, customer: string): Promise<void> {
  const month = String(request.params['month'])
  if (!MONTH.test(month)) return void response.sendStatus(404)
  send(response, invoicePage(account, await readInvoice(customer, month)))
}

member.get('/invoices/:month', (account, request, response) =>
  sendInvoice(account, request, response, payerIdOf(account)),
)
member.get('/invoices/:month/csv', async (account, request, response) => {
  const month = String(request.params['month'])
  if (!MONTH.test(month)) return void response.sendStatus(404)
  response.attachment(`invoice-${month}.csv`).send(await readInvoiceCsv(payerIdOf(account), month))
})

operator.get('/admin', async (account, request, response) => {
  const { search, after } = request.query
  const query = {
    limit: 50,
    ...(typeof search === 'string' && search !== '' && { search }),
    ...(typeof after === 'string' && { after }),
  }
  const { customers, next } = await gateway.customers.list(query)
  const lines = customers.map(async ({ id, name, parentId, plan }): Promise<CustomerLine> => {
    return { id, name, parentId, plan: plan ?? 'free', ...(await readTotals(id)) }
  })
  const view = {
    account,
    month: thisMonth(),
    search: query.search ?? '',
    next: next ?? undefined,
    events: budgetEvents,
    metered: meteredNanoUsd(),
  }
  send(response, adminPage({ ...view, customers: await Promise.all(lines) }))
})
operator.get('/admin/customers/:id', (account, request, response) =>
  sendUsage(account, response, String(request.params['id'])),
)
operator.get('/admin/customers/:id/invoices/:month', (account, request, response) =>
  sendInvoice(account, request, response, String(request.params['id'])),
)

function statusOf(error: unknown): number {
  if (GatewayError.is(error)) return { 'not-found': 404, 'invalid-admin-request': 400 }[String(error.kind)] ?? 500
  // A form that Express cannot read.
  const { status } = Object(error) as { readonly status?: unknown }
  return typeof status === 'number' && status >= 400 && status < 500 ? status : 500
}

app.use((error: unknown, _: Request, response: Response, next: NextFunction) => {
  if (response.headersSent) return next(error)
  const status = statusOf(error)
  if (status === 500) console.error(error)
  response.sendStatus(status)
})
