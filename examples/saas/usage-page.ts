/** The page on which customers see what they have spent, and what remains. */
import type { BudgetEvent, BudgetSummary, UsageReportRow } from 'sluice'
import { MODELS, OFFERS } from './gateway.ts'
import { count, dayName, html, type Html, money, moneyText, monthName, time } from './html.ts'
import { page, per, upgradeForm, windowName } from './layout.ts'
import type { Account } from './login.ts'
import { billed, type Payer, sumBy, type UsageView } from './usage.ts'

interface UsagePageView extends UsageView {
  readonly account: Account
  /** The newest events first. */
  readonly events: readonly BudgetEvent[]
  readonly month: string
}

export function usagePage({ account, payer, summary, own, teams, days, rows, events, month }: UsagePageView): Html {
  const budgets = [...summary.budgets, ...teams.flatMap(({ summary }) => summary.budgets), ...own.budgets]
  const usedUp = events.find(
    (event) =>
      event.share === 1 &&
      event.resetsAt > Date.parse(summary.at) &&
      (event.user ?? account.email) === account.email &&
      // Not a budget that has been changed since, such as by an upgrade.
      budgets.some(({ window, limitUsd }) => event.window === window && event.limitUsd === limitUsd),
  )
  const offer = OFFERS[payer.plan]
  return page(
    { title: `Usage of ${payer.name}`, account, path: '/usage' },
    html`<div class="title">
        <div>
          <h1>Usage</h1>
          <p>${payer.name} · ${offer?.name} plan</p>
        </div>
        <a class="button quiet" href="/invoices/${month}">Invoice for ${monthName(month)}</a>
      </div>
      ${
        usedUp !== undefined &&
        html`<section class="notice bad" role="status">
          <h2>A budget is used up</h2>
          <p>${usedUpText(usedUp)}</p>
          ${upgradeForm(payer)}
        </section>`
      }
      <div class="cards">
        ${[...summary.budgets, ...own.budgets].map(budgetCard)}
        ${[...summary.rateLimits, ...own.rateLimits].map(
          ({ level, window, unit, limit, spent, resetsAt }) =>
            html`<section class="card">
              <h2>${windowName(window)}${level === 'user' && ', you alone'}</h2>
              <p class="big">${count(spent)} <span>of ${count(limit)} ${unit}</span></p>
              ${meter(spent, limit)} ${resetsAt !== null && html`<p class="small">Resets ${time(resetsAt)}</p>`}
            </section>`,
        )}
      </div>
      ${teams.length > 0 && teamsCard(teams)} ${dailyCard(days, rows)}
      <div class="cards wide">
        ${shareCard(
          `By model, last ${days.length} days`,
          'Model',
          sumBy(rows, ({ group }) => modelName(group['model'])),
        )}
        ${shareCard(
          `By person, last ${days.length} days`,
          'Person',
          sumBy(rows, ({ group }) => group['user'] || 'not known'),
        )}
      </div>
      ${offersCard(payer)}`,
  )
}

function usedUpText({ level, limitUsd, window, resetsAt, user }: BudgetEvent): Html {
  const whose = level === 'user' ? `of ${user} ` : ''
  return html`What remains of the budget ${whose}of ${money(limitUsd * 1e9)} ${per(window)} does not cover the highest
  possible price of another answer. It resets on ${time(resetsAt)}.`
}

function modelName(id = ''): string {
  return MODELS[id] ?? id
}

function budgetCard(budget: BudgetSummary): Html {
  const { window, level, spentNanoUsd, limitNanoUsd, remainingNanoUsd, forecastNanoUsd, resetsAt } = budget
  return html`<section class="card">
    <h2>${windowName(window)}${level === 'user' && ', you alone'}</h2>
    <p class="big">${money(spentNanoUsd)} <span>of ${money(limitNanoUsd)}</span></p>
    ${meter(spentNanoUsd, limitNanoUsd)}
    <dl>
      <div>
        <dt>Remaining</dt>
        <dd>${money(remainingNanoUsd)}</dd>
      </div>
      ${
        forecastNanoUsd !== null &&
        html`<div>
          <dt>At this pace</dt>
          <dd>${money(forecastNanoUsd)}</dd>
        </div>`
      }
      ${
        resetsAt !== null &&
        html`<div>
          <dt>Resets</dt>
          <dd>${time(resetsAt)}</dd>
        </div>`
      }
    </dl>
  </section>`
}

const METER_WIDTH = 300

function meter(spent: number, limit: number): Html {
  const share = limit === 0 ? 1 : Math.min(1, spent / limit)
  return bar(share, share >= 0.95 ? 'full' : share >= 0.8 ? 'high' : '')
}

function bar(share: number, state = ''): Html {
  return html`<svg
    class="meter ${state}"
    viewBox="0 0 ${METER_WIDTH} 8"
    preserveAspectRatio="none"
    role="img"
    aria-label="${Math.round(share * 100)}%"
  >
    <rect class="rest" width="${METER_WIDTH}" height="8" />
    <rect width="${(share * METER_WIDTH).toFixed(1)}" height="8" />
  </svg>`
}

function teamsCard(teams: UsageView['teams']): Html {
  return html`<section class="card">
    <h2>Teams, this month</h2>
    <table>
      <thead>
        <tr>
          <th scope="col">Team</th>
          <th scope="col">Used</th>
          <th scope="col" class="number">Spent</th>
          <th scope="col" class="number">Budget</th>
        </tr>
      </thead>
      <tbody>
        ${teams.map(({ name, summary: { budgets, month } }) => {
          const budget = budgets.find(({ window }) => window === '1M')
          return html`<tr>
            <th scope="row">${name}</th>
            <td class="bar">${budget !== undefined && meter(budget.spentNanoUsd, budget.limitNanoUsd)}</td>
            <td class="number">${money(month.billedNanoUsd)}</td>
            <td class="number">${budget !== undefined && money(budget.limitNanoUsd)}</td>
          </tr>`
        })}
      </tbody>
    </table>
  </section>`
}

function shareCard(title: string, label: string, sums: ReturnType<typeof sumBy>): Html {
  const total = sums.reduce((sum, [, amount]) => sum + amount, 0)
  return html`<section class="card">
    <h2>${title}</h2>
    <table>
      <thead>
        <tr>
          <th scope="col">${label}</th>
          <th scope="col" class="number">Requests</th>
          <th scope="col" class="number">Spent</th>
        </tr>
      </thead>
      <tbody>
        ${sums.map(
          ([name, amount, requests]) =>
            html`<tr>
              <th scope="row">${name}${bar(amount / (total || 1))}</th>
              <td class="number">${count(requests)}</td>
              <td class="number">${money(amount)}</td>
            </tr>`,
        )}
      </tbody>
    </table>
  </section>`
}

const CHART = { width: 960, height: 220, left: 52, right: 12, bottom: 26, top: 8 }

function dailyCard(days: readonly string[], rows: readonly UsageReportRow[]): Html {
  const models = Object.keys(MODELS)
  const columns = days.map((day) => {
    const ofDay = rows.filter(({ group }) => group['day'] === day)
    return {
      day,
      total: billed(ofDay),
      amounts: models.map((id) => billed(ofDay.filter(({ group }) => group['model'] === id))),
    }
  })
  const top = roundUp(Math.max(...columns.map(({ total }) => total), 1e6))
  const { height, left, bottom } = CHART
  const width = CHART.width - CHART.right
  const plot = height - bottom - CHART.top
  const step = (width - left) / days.length
  const y = (amount: number): number => CHART.top + plot * (1 - amount / top)
  return html`<section class="card">
    <div class="title">
      <h2 id="daily">Spent per day, last ${days.length} days</h2>
      <p class="legend">
        ${models.map((id, index) => html`<span><i class="series-${index}"></i>${MODELS[id]}</span>`)}
      </p>
    </div>
    <div class="scroll from-end" tabindex="0" role="region" aria-labelledby="daily">
      <svg class="chart" viewBox="0 0 ${CHART.width} ${height}" role="img" aria-labelledby="daily">
        ${[0, top / 2, top].map(
          (amount) =>
            html`<line x1="${left}" x2="${width}" y1="${y(amount)}" y2="${y(amount)}" />
              <text class="number" x="${left - 8}" y="${y(amount) + 4}">${moneyText(amount)}</text>`,
        )}
        ${columns.map(({ day, total, amounts }, index) => {
          const x = left + index * step
          let below = 0
          return html`<g>
            <title>${dayName(day)}: ${moneyText(total)}</title>
            <rect class="hover" x="${x}" y="${CHART.top}" width="${step}" height="${plot}" />
            ${amounts.map((amount, series) => {
              below += amount
              return html`<rect
                class="series-${series}"
                x="${x + step * 0.16}"
                y="${y(below).toFixed(2)}"
                width="${step * 0.68}"
                height="${((plot * amount) / top).toFixed(2)}"
              />`
            })}
            ${
              (days.length - 1 - index) % 7 === 0 &&
              html`<text x="${x + step / 2}" y="${height - 6}">${dayName(day)}</text>`
            }
          </g>`
        })}
      </svg>
    </div>
    <details>
      <summary>As a table</summary>
      <table>
        <thead>
          <tr>
            <th scope="col">Day</th>
            ${models.map((id) => html`<th scope="col" class="number">${MODELS[id]}</th>`)}
            <th scope="col" class="number">Total</th>
          </tr>
        </thead>
        <tbody>
          ${columns.toReversed().map(
            ({ day, total, amounts }) =>
              html`<tr>
                <th scope="row">${dayName(day)}</th>
                ${amounts.map((amount) => html`<td class="number">${money(amount)}</td>`)}
                <td class="number">${money(total)}</td>
              </tr>`,
          )}
        </tbody>
      </table>
    </details>
  </section>`
}

/** The next number for the end of an axis. */
function roundUp(amount: number): number {
  const unit = 10 ** Math.floor(Math.log10(amount))
  return unit * ([1, 2, 3, 4, 6, 8].find((factor) => factor * unit >= amount) ?? 10)
}

function offersCard(payer: Payer): Html {
  return html`<section class="card">
    <h2>Plans</h2>
    <div class="offers">
      ${Object.entries(OFFERS).map(
        ([id, { name, text }]) =>
          html`<div>
            <h3>${name}</h3>
            <p>${text}</p>
            ${id === payer.plan ? html`<p class="small">Your plan</p>` : payer.parentId === null && html`<form method="post" action="/plan"><button class="quiet" name="plan" value="${id}">Change to ${name}</button></form>`}
          </div>`,
      )}
    </div>
  </section>`
}
