/** HTML in template literals, and how amounts and times are shown. */

/** Text that is HTML already. */
export class Html {
  readonly text: string
  constructor(text: string) {
    this.text = text
  }
}

export type HtmlValue = string | number | false | undefined | Html | readonly HtmlValue[]

/** Escapes each value that is not HTML itself. Values stand between tags, or between the quotes of an attribute. */
export function html(parts: TemplateStringsArray, ...values: readonly HtmlValue[]): Html {
  return new Html(parts.map((part, index) => part + textOf(values[index])).join(''))
}

function textOf(value: HtmlValue): string {
  if (value === undefined || value === false) return ''
  if (value instanceof Html) return value.text
  if (typeof value === 'object') return value.map(textOf).join('')
  return String(value).replace(/[&<>"']/g, (character) => `&#${character.charCodeAt(0)};`)
}

/** An amount as people read it. The element has all its digits. */
export function money(nanoUsd: number): Html {
  return html`<data value="${decimal(nanoUsd)}">${moneyText(nanoUsd)}</data>`
}

export function moneyText(nanoUsd: number): string {
  const maximumFractionDigits = nanoUsd < 1e8 ? 4 : 2
  return (nanoUsd / 1e9).toLocaleString('en-US', { style: 'currency', currency: 'USD', maximumFractionDigits })
}

/** An amount with all its digits, at least two. */
export function exactMoney(nanoUsd: number): Html {
  return html`<data value="${decimal(nanoUsd)}">$${decimal(nanoUsd).replace(/(\.\d\d\d*?)0+$/, '$1')}</data>`
}

function decimal(nanoUsd: number): string {
  const digits = String(nanoUsd).padStart(10, '0')
  return `${digits.slice(0, -9)}.${digits.slice(-9)}`
}

export function count(value: number): string {
  return value.toLocaleString('en-US')
}

/** The time in UTC, because limits and invoices follow its calendar. */
export function time(at: string | number): Html {
  const date = new Date(at)
  const text = date.toLocaleString('en-US', { dateStyle: 'medium', timeStyle: 'short', timeZone: 'UTC' })
  return html`<time datetime="${date.toISOString()}">${text} UTC</time>`
}

/** A day such as `2026-11-28`, for the axis of a chart. */
export function dayName(day: string): string {
  return new Date(day).toLocaleString('en-US', { month: 'short', day: 'numeric', timeZone: 'UTC' })
}

/** The name of a month such as `2026-11`. */
export function monthName(month: string): string {
  const date = new Date(`${month}-01T00:00:00Z`)
  return date.toLocaleString('en-US', { month: 'long', year: 'numeric', timeZone: 'UTC' })
}
