/** The customers of the demo, and what they have used in the last 30 days: real requests, with a clock of the gateway. */
import { HANDBOOK } from './chat.ts'
import { clock, gateway } from './gateway.ts'

const DAY_MS = 86_400_000

export const QUESTIONS = [
  'What does a rowing boat cost?',
  'When does the lock open?',
  'Are dogs welcome on motor boats?',
  'How high is the deposit for a motor boat?',
  'Must children wear a life jacket?',
  'Until when can a booking be canceled?',
]

/** Users of each customer, with their requests on a typical day and their model. */
const HABITS = [
  { customer: 'lena', user: 'lena@example.com', requests: 2, model: 'extractive-small' },
  { customer: 'studio', user: 'paul@studio.example', requests: 3, model: 'extractive' },
  { customer: 'studio', user: 'mia@studio.example', requests: 2, model: 'extractive-small' },
  { customer: 'acme-support', user: 'ada@acme.example', requests: 3, model: 'extractive' },
  { customer: 'acme-support', user: 'tom@acme.example', requests: 4, model: 'extractive-small' },
  { customer: 'acme-research', user: 'noor@acme.example', requests: 3, model: 'extractive' },
] as const

/** Must be called before the server listens. */
export async function addDemoData(days = 30): Promise<void> {
  clock.behindMs = days * DAY_MS
  await gateway.customers.create({ id: 'lena', name: 'Lena Ohm', plan: 'free' })
  await gateway.customers.create({ id: 'studio', name: 'Studio Reyes', plan: 'pro' })
  await gateway.customers.create({ id: 'acme', name: 'Acme Inc.', plan: 'team' })
  for (const [id, name, limitUsd] of [
    ['acme-support', 'Support', 4],
    ['acme-research', 'Research', 3],
  ] as const) {
    await gateway.customers.create({ id, name, parentId: 'acme', plan: 'team', budgets: [{ limitUsd, window: '1M' }] })
  }
  await gateway.customers.create({ id: 'lockside', name: 'Lockside (internal)', plan: 'pro' })
  const today = Math.floor(Date.now() / DAY_MS)
  for (let day = today - days; day < today; day += 1) {
    clock.behindMs = (today - day) * DAY_MS
    await Promise.all(HABITS.map((habit) => spendDay(day, habit)))
  }
  clock.behindMs = 0
}

async function spendDay(day: number, { customer, user, requests, model }: (typeof HABITS)[number]): Promise<void> {
  const { fetch } = gateway.with({ customer, user, session: `day-${day}` })
  for (let index = 0; index < requestsOn(day, user, requests); index += 1) {
    const response = await fetch('http://gateway/v1/chat/completions', {
      method: 'POST',
      headers: { 'content-type': 'application/json', 'cache-control': 'no-store' },
      body: JSON.stringify({
        model: `vendor/${model}`,
        max_tokens: 100,
        messages: [
          { role: 'system', content: HANDBOOK },
          { role: 'user', content: QUESTIONS[(day + index) % QUESTIONS.length] },
        ],
      }),
    })
    await response.text()
  }
}

/** Fewer on weekends, and a little more or less each day. */
function requestsOn(day: number, user: string, typical: number): number {
  const weekday = (day + 4) % 7
  const share = weekday === 0 || weekday === 6 ? 0.25 : 0.7 + ((day * 7919 + user.length * 104_729) % 61) / 100
  return Math.round(typical * share)
}
