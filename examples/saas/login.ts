/** Accounts, passwords, and sessions in a signed cookie. */
import { createHmac, randomBytes, scrypt, timingSafeEqual } from 'node:crypto'
import { promisify } from 'node:util'
import type { NextFunction, Request, RequestHandler, Response } from 'express'

export interface Account {
  readonly email: string
  readonly name: string
  /** The customer of the gateway that pays for this account. */
  readonly customer: string
  /** The customer above it, if this account may see all its teams. */
  readonly organization?: string
  /** True for those who run the application. */
  readonly isOperator?: boolean
}

/** A real application has them in a database. The password of each is `demo`. */
export const ACCOUNTS: readonly Account[] = [
  { email: 'lena@example.com', name: 'Lena Ohm', customer: 'lena' },
  { email: 'paul@studio.example', name: 'Paul Reyes', customer: 'studio' },
  { email: 'ada@acme.example', name: 'Ada Brandt', customer: 'acme-support', organization: 'acme' },
  { email: 'operator@lockside.example', name: 'Operator', customer: 'lockside', isOperator: true },
]

const SESSION_MS = 8 * 60 * 60 * 1000
/** Without SESSION_SECRET, a restart ends all sessions. */
const SECRET = process.env['SESSION_SECRET'] ?? randomBytes(32)
/** Listens on this machine only, unless HOST says otherwise. */
export const HOST = process.env['HOST'] ?? '127.0.0.1'

const COOKIE = {
  httpOnly: true,
  sameSite: 'lax',
  path: '/',
  // Browsers send such cookies over https only.
  secure: HOST !== '127.0.0.1',
} as const

const hash = promisify<string, Buffer, number, Buffer>(scrypt)
const salt = randomBytes(16)
const passwordHash = await hash('demo', salt, 32)

/** Takes as long for an unknown account as for a wrong password. */
export async function findAccount(email: string, password: string): Promise<Account | undefined> {
  const isRight = timingSafeEqual(await hash(password, salt, 32), passwordHash)
  return isRight ? ACCOUNTS.find((account) => account.email === email.trim().toLowerCase()) : undefined
}

function sign(text: string): Buffer {
  return createHmac('sha256', SECRET).update(text).digest()
}

export function startSession(response: Response, { email }: Account): void {
  const text = Buffer.from(JSON.stringify({ email, endsAt: Date.now() + SESSION_MS })).toString('base64url')
  response.cookie('session', `${text}.${sign(text).toString('base64url')}`, { ...COOKIE, maxAge: SESSION_MS })
}

export function endSession(response: Response): void {
  response.clearCookie('session', COOKIE)
}

function readSession(request: Request): Account | undefined {
  const [, text = '', signature = ''] = /(?:^|; )session=([\w-]+)\.([\w-]+)/.exec(request.get('cookie') ?? '') ?? []
  const received = Buffer.from(signature, 'base64url')
  const expected = sign(text)
  if (received.length !== expected.length || !timingSafeEqual(received, expected)) return undefined
  const { email, endsAt } = JSON.parse(Buffer.from(text, 'base64url').toString()) as { email: string; endsAt: number }
  return Date.now() < endsAt ? ACCOUNTS.find((account) => account.email === email) : undefined
}

export type Page = (account: Account, request: Request, response: Response) => void | Promise<void>

/** A page for those who have logged in. */
export function signedIn(page: Page): RequestHandler {
  return async (request, response) => {
    const account = readSession(request)
    if (account === undefined) response.redirect(303, '/login')
    else await page(account, request, response)
  }
}

/** A page for those who run the application. For all others, there is no such page. */
export function operatorsOnly(page: Page): RequestHandler {
  return signedIn((account, request, response) => {
    if (account.isOperator === true) return page(account, request, response)
    response.sendStatus(404)
  })
}

/** Refuses forms that another site sent. Browsers say where a form comes from in these headers, which pages cannot set. */
export function sameOrigin(request: Request, response: Response, next: NextFunction): void {
  const site = request.get('sec-fetch-site')
  const isOwn =
    site === undefined ? request.get('origin')?.split('://')[1] === request.get('host') : site === 'same-origin'
  if (isOwn || request.method === 'GET' || request.method === 'HEAD') next()
  else response.status(403).send('This form was not sent by a page of this site.')
}
