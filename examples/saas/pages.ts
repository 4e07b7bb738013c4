/** The pages, as HTML without scripts. */
import type { BudgetEvent, BudgetSummary, UsageSummary } from 'sluice'
import type { Conversation, Refusal, Turn } from './chat.ts'
import { count, exactMoney, html, type Html, money, moneyText, monthName, time } from './html.ts'
import { budgetText, page, per, upgradeForm } from './layout.ts'
import type { Account } from './login.ts'
import { MODELS, OFFERS } from './gateway.ts'
import type { Invoice, Payer, Sum, Totals } from './usage.ts'

export function loginPage(accounts: readonly Account[], problem?: string): Html {
  return page(
    { title: 'Sign in', account: undefined },
    html`<section class="card narrow">
      <h1>Sign in</h1>
      ${problem !== undefined && html`<p class="notice bad" role="alert">${problem}</p>`}
      <form method="post" action="/login" class="stack">
        <label>
          Email
          <input name="email" type="email" autocomplete="username" required list="accounts" autofocus />
        </label>
        <datalist id="accounts">${accounts.map(({ email }) => html`<option value="${email}"></option>`)}</datalist>
        <label>
          Password
          <input name="password" type="password" autocomplete="current-password" required />
        </label>
        <button>Sign in</button>
      </form>
      <h2>Accounts of the demo</h2>
      <p>The password of each is <code>demo</code>.</p>
      <ul>
        ${accounts.map(({ email, name }) => html`<li><code>${email}</code> ${name}</li>`)}
      </ul>
    </section>`,
  )
}

interface ChatView {
  readonly account: Account
  readonly conversation: Conversation
  readonly models: readonly string[]
  readonly summary: UsageSummary
  readonly payer: Payer
  readonly suggestions: readonly string[]
  readonly refusal?: Refusal | undefined
}

export function chatPage(view: ChatView): Html {
  const { account, conversation, models, summary, payer, suggestions, refusal } = view
  const { turns } = conversation
  return page(
    { title: 'Chat', account, path: '/chat' },
    html`<div class="title">
        <div>
          <h1>Ask the handbook</h1>
          <p>
            ${summary.budgets
              .filter(({ level }) => level === 'customer')
              .slice(0, 1)
              .map(budgetText)}
          </p>
        </div>
        <form method="post" action="/chat/new"><button class="quiet">New conversation</button></form>
      </div>
      ${turns.length > 0 && html`<section class="turns" aria-label="Conversation">${turns.map(turnHtml)}</section>`}
      ${refusal !== undefined && refusalHtml(refusal, payer, summary)}
      <form method="post" action="/chat" class="card stack">
        <label>
          Your question
          <textarea name="question" rows="2" maxlength="2000" required autofocus>${refusal?.question}</textarea>
        </label>
        <div class="row">
          <label>
            Model
            <select name="model">
              ${models.map((id) => html`<option value="${id}">${MODELS[id]}</option>`)}
            </select>
          </label>
          <button>Ask</button>
        </div>
      </form>
      ${
        turns.length === 0 &&
        html`<form method="post" action="/chat" class="row suggestions">
          <input type="hidden" name="model" value="${models[0]}" />
          ${suggestions.map((text) => html`<button class="quiet" name="question" value="${text}">${text}</button>`)}
        </form>`
      }`,
  )
}

function turnHtml({ question, answer, bill }: Turn): Html {
  return html`<article>
    <p class="question">${question}</p>
    <p class="answer">${answer}</p>
    ${
      bill !== undefined &&
      html`<p class="small">
        ${bill.cache === 'HIT' ? 'From the cache, ' : ''}${money(Math.round(bill.billedUsd * 1e9))}
        ${bill.degraded !== undefined && html`· answered by the small model, because the budget is nearly used up`}
      </p>`
    }
  </article>`
}

function refusalHtml({ status, message }: Refusal, payer: Payer, { budgets }: UsageSummary): Html {
  const isBudget = status === 402
  const [tightest] = budgets.toSorted((a, b) => a.remainingNanoUsd - b.remainingNanoUsd)
  return html`<section class="notice bad" role="alert">
    <h2>${isBudget ? 'The budget is used up' : status === 429 ? 'Too many requests' : 'There is no answer'}</h2>
    <p>${isBudget ? budgetRefusal(payer, tightest) : message}</p>
    ${isBudget && upgradeForm(payer)}
    <p><a href="/usage">See your usage</a></p>
  </section>`
}

function budgetRefusal({ parentId }: Payer, tightest: BudgetSummary | undefined): Html {
  if (tightest === undefined || parentId !== null)
    return html`The budget of your organization, your team or yourself does not cover another answer.`
  const { level, window, limitNanoUsd, resetsAt } = tightest
  const whose = level === 'session' ? 'of this conversation ' : level === 'user' ? 'of yours ' : ''
  const end = resetsAt === null ? 'Start a new conversation.' : html`It resets on ${time(resetsAt)}.`
  return html`What remains of the budget ${whose}of ${money(limitNanoUsd)} ${per(window)} does not cover the highest
  possible price of another answer. ${end}`
}

export function invoicesPage(account: Account, payer: Payer, months: readonly Sum[]): Html {
  return page(
    { title: 'Invoices', account, path: '/invoices' },
    html`<h1>Invoices</h1>
      <p>${payer.name}</p>
      <section class="card">
        <table>
          <thead>
            <tr>
              <th scope="col">Month</th>
              <th scope="col" class="number">Amount</th>
              <th scope="col">Spreadsheet</th>
            </tr>
          </thead>
          <tbody>
            ${months.map(
              ([month, amount]) =>
                html`<tr>
                  <th scope="row"><a href="/invoices/${month}">${monthName(month)}</a></th>
                  <td class="number">${money(amount)}</td>
                  <td>
                    <a href="/invoices/${month}/csv">CSV<span class="hidden"> of ${monthName(month)}</span></a>
                  </td>
                </tr>`,
            )}
          </tbody>
        </table>
      </section>`,
  )
}

/** Each line has all digits of its amount, so that the lines add up to the total. */
export function invoicePage(account: Account, { payer, month, isComplete, lines, totalNanoUsd }: Invoice): Html {
  const nameOf = new Map([payer, ...payer.teams].map(({ id, name }) => [id, name]))
  return page(
    { title: `Invoice ${month}`, account, path: '/invoices' },
    html`<article class="card invoice">
      <div class="title">
        <div>
          <h1>Invoice</h1>
          <p>${payer.name} · ${monthName(month)}${!isComplete && ' · so far'}</p>
        </div>
        <p class="number">LS-${month}-${payer.id}</p>
      </div>
      <div class="scroll" tabindex="0" role="region" aria-label="Lines">
        <table>
          <thead>
            <tr>
              <th scope="col">For</th>
              <th scope="col">Model</th>
              <th scope="col" class="number">Requests</th>
              <th scope="col" class="number">Tokens</th>
              <th scope="col" class="number">Amount</th>
            </tr>
          </thead>
          <tbody>
            ${lines.map(
              ({ group, requests, tokens, cost }) =>
                html`<tr>
                  <th scope="row">${nameOf.get(group['customer'] ?? '')}</th>
                  <td>${MODELS[group['model'] ?? ''] ?? group['model']}</td>
                  <td class="number">${count(requests)}</td>
                  <td class="number">${count(tokens.prompt + tokens.completion)}</td>
                  <td class="number">${exactMoney(cost.billedNanoUsd)}</td>
                </tr>`,
            )}
          </tbody>
          <tfoot>
            <tr>
              <th scope="row" colspan="4">Total</th>
              <td class="number">${exactMoney(totalNanoUsd)}</td>
            </tr>
            <tr class="due">
              <th scope="row" colspan="4">${isComplete ? 'Amount due' : 'Amount so far'}</th>
              <td class="number">$${(Math.round(totalNanoUsd / 1e7) / 100).toFixed(2)}</td>
            </tr>
          </tfoot>
        </table>
      </div>
    </article>`,
  )
}

/** A customer in the list of the operator. */
export interface CustomerLine extends Totals {
  readonly id: string
  readonly name: string
  readonly parentId: string | null
  readonly plan: string
}

interface AdminView {
  readonly account: Account
  readonly month: string
  readonly search: string
  readonly customers: readonly CustomerLine[]
  /** Undefined on the last page. */
  readonly next: string | undefined
  /** What Stripe has counted since the start, by its customers. */
  readonly metered: ReadonlyMap<string, number>
  readonly events: readonly BudgetEvent[]
}

export function adminPage({ account, month, search, customers, next, events, metered }: AdminView): Html {
  return page(
    { title: 'Customers', account, path: '/admin' },
    html`<div class="title">
        <div>
          <h1>Customers</h1>
          <p>${monthName(month)}</p>
        </div>
        <form method="get" action="/admin" class="row" role="search">
          <label>Id or name <input name="search" type="search" value="${search}" /></label>
          <button class="quiet">Search</button>
        </form>
      </div>
      <section class="card scroll" tabindex="0" aria-label="Customers">
        <table>
          <thead>
            <tr>
              <th scope="col">Customer</th>
              <th scope="col">Plan</th>
              <th scope="col" class="number">Requests</th>
              <th scope="col" class="number">Billed</th>
              <th scope="col" class="number">Vendor</th>
              <th scope="col" class="number">Margin</th>
              <th scope="col">Invoice</th>
            </tr>
          </thead>
          <tbody>
            ${customers.map(
              ({ id, name, parentId, plan, requests, billedNanoUsd, actualNanoUsd }) =>
                html`<tr>
                  <th scope="row">
                    <a href="/admin/customers/${id}">${name}</a>
                    ${parentId !== null && html`<span class="small">in ${parentId}</span>`}
                  </th>
                  <td>${OFFERS[plan]?.name ?? plan}</td>
                  <td class="number">${count(requests)}</td>
                  <td class="number">${money(billedNanoUsd)}</td>
                  <td class="number">${money(actualNanoUsd)}</td>
                  <td class="number">${money(billedNanoUsd - actualNanoUsd)}</td>
                  <td><a href="/admin/customers/${id}/invoices/${month}">${month}</a></td>
                </tr>`,
            )}
          </tbody>
        </table>
        ${
          next !== undefined &&
          html`<p><a href="/admin?search=${encodeURIComponent(search)}&after=${encodeURIComponent(next)}">More</a></p>`
        }
      </section>
      <section class="card">
        <h2>Counted by Stripe since the start</h2>
        ${metered.size === 0 && html`<p>Nothing yet.</p>`}
        <dl>
          ${[...metered].map(
            ([customer, amount]) =>
              html`<div>
                <dt>${customer}</dt>
                <dd>${money(amount)}</dd>
              </div>`,
          )}
        </dl>
      </section>
      <section class="card">
        <h2>Budgets that reached a share</h2>
        ${events.length === 0 && html`<p>None since the start.</p>`}
        <ul>
          ${events.map(
            ({ customer, user, share, limitUsd, window, at }) =>
              html`<li>
                ${time(at)}: ${customer} ${user !== undefined && `(${user})`} at ${Math.round(share * 100)}% of
                ${moneyText(limitUsd * 1e9)} ${per(window)}
              </li>`,
          )}
        </ul>
      </section>`,
  )
}
