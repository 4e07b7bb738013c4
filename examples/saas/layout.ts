/** The frame of the pages, and what several of them show. */
import type { BudgetSummary } from 'sluice'
import { type Offer, OFFERS } from './gateway.ts'
import { html, type Html, type HtmlValue, money } from './html.ts'
import type { Account } from './login.ts'
import type { Payer } from './usage.ts'

interface Frame {
  readonly title: string
  /** Undefined before login. */
  readonly account: Account | undefined
  readonly path?: string
}

export function page({ title, account, path = '' }: Frame, body: HtmlValue): Html {
  const links = [
    ['/chat', 'Chat'],
    ['/usage', 'Usage'],
    ['/invoices', 'Invoices'],
    ...(account?.isOperator === true ? [['/admin', 'Customers'] as const] : []),
  ] as const
  return html`<!doctype html>
    <html lang="en">
      <head>
        <meta charset="utf-8" />
        <meta name="viewport" content="width=device-width, initial-scale=1" />
        <meta name="color-scheme" content="light dark" />
        <title>${title} – Lockside</title>
        <link rel="stylesheet" href="/style.css" />
      </head>
      <body>
        <a class="skip" href="#main">Skip to the content</a>
        <header>
          <div>
            <strong>Lockside</strong>
            ${
              account !== undefined &&
              html`<nav aria-label="Pages">
                  ${links.map(
                    ([href, name]) => html`<a href="${href}" ${path === href && html`aria-current="page"`}>${name}</a>`,
                  )}
                </nav>
                <form method="post" action="/logout">
                  <span>${account.name}</span>
                  <button class="quiet">Sign out</button>
                </form>`
            }
          </div>
        </header>
        <main id="main">${body}</main>
      </body>
    </html>`
}

const WINDOWS: Readonly<Record<string, string>> = { '1h': 'This hour', '1d': 'Today', '1M': 'This month' }

const PER: Readonly<Record<string, string>> = { '1h': 'per hour', '1d': 'per day', '1M': 'per month', session: 'each' }

export function windowName(window: string): string {
  return WINDOWS[window] ?? window
}

export function per(window: string): string {
  return PER[window] ?? window
}

export function budgetText({ window, spentNanoUsd, limitNanoUsd }: BudgetSummary): Html {
  return html`${windowName(window)}: ${money(spentNanoUsd)} of ${money(limitNanoUsd)}`
}

function nextOffer({ plan }: Payer): readonly [id: string, offer: Offer] | undefined {
  const offers = Object.entries(OFFERS)
  return offers[offers.findIndex(([id]) => id === plan) + 1]
}

export function upgradeForm(payer: Payer): Html | undefined {
  const next = nextOffer(payer)
  if (next === undefined || payer.parentId !== null) return html`<p>Ask your organization for a larger budget.</p>`
  const [id, { name, text }] = next
  return html`<form method="post" action="/plan" class="row">
    <button name="plan" value="${id}">Upgrade to ${name}</button>
    <span>${text}</span>
  </form>`
}
