import { writeFileSync } from 'node:fs'
import { parseArgs } from 'node:util'
import { CACHE_TABLES, measureCosts, measureMarkers } from './costs.ts'
import { measureFirstRequest } from './first-request.ts'
import { throughGateway } from './through-gateway.ts'
import { meter, newWaterfall, NO_STEERING, SMALL_REPLIES, smallModelOf } from './lab.ts'
import { longChatCases } from './long-chat.ts'
import { cutMiddle } from './middle.ts'
import type { Steering, TierJob } from '../../src/savings/tier.ts'
import { measureCases, measureRecall, selectionAt, through, type Figures, type Method } from './recall.ts'

const { values } = parseArgs({
  options: {
    data: { type: 'string', default: '../shared/data' },
    step: { type: 'string', default: '4' },
    'cost-step': { type: 'string', default: '1' },
    only: { type: 'string' },
    out: { type: 'string', default: 'bench/quality/result.json' },
  },
})
const root = values.data
const step = Number(values.step)
const costStep = Number(values['cost-step'])

interface Row {
  readonly figure: string
  readonly naive: string
  readonly measured: string
  readonly goal: string
  readonly tokens: string
}
const rows: Row[] = []
const round = (value: number): string => (Number.isNaN(value) ? '-' : value.toFixed(1))
const recallOf = (figures: Figures): number => (Number.isNaN(figures.evidence) ? figures.needed : figures.evidence)

function addRow(figure: string, row: Omit<Row, 'figure'>): void {
  rows.push({ figure, ...row })
  process.stderr.write(`${figure}: ${row.measured} (naive ${row.naive}, goal ${row.goal})\n`)
}

async function selection(kind: string, cap: number, goal: number): Promise<void> {
  const options = { root, kind, step, cap }
  const measured = await measureRecall(options, selectionAt(cap))
  const naive = await measureRecall(options, (prompt) => cutMiddle(prompt, cap, meter))
  const tokens = `${Math.round(measured.tokensBefore)} to ${Math.round(measured.tokensAfter)}, ${measured.requests} cases`
  addRow(`${kind} at ${cap}: needed text kept, %`, {
    naive: round(recallOf(naive)),
    measured: round(recallOf(measured)),
    goal: String(goal),
    tokens,
  })
  addRow(`${kind} at ${cap}: cap, system, last user message and tool pairs correct, %`, {
    naive: round(naive.valid),
    measured: round(measured.valid),
    goal: '100',
    tokens,
  })
}

async function tier(name: string, kind: string, method: Method, goal: string): Promise<void> {
  const measured = await measureRecall({ root, kind, step }, method)
  const cap = Math.round(measured.tokensAfter)
  const naive = await measureRecall({ root, kind, step }, (prompt) => cutMiddle(prompt, cap, meter))
  const tokens = `${Math.round(measured.tokensBefore)} to ${cap}, ${measured.requests} cases`
  addRow(`${name} (${kind}): needed text kept, %`, {
    naive: round(recallOf(naive)),
    measured: round(recallOf(measured)),
    goal,
    tokens,
  })
}

/** Measures whole conversations in automatic mode, with each price table and 30 or 600 seconds between turns. */
async function automaticCosts(kind: string, goal: string): Promise<void> {
  for (const table of CACHE_TABLES) {
    for (const secondsBetween of [30, 600]) {
      const measured = await measureCosts({ root, kind, table, secondsBetween, step: costStep })
      const where = `${kind}, ${table.name}, turns ${secondsBetween} s apart`
      const cases = `${measured.conversations} conversations, ${measured.requests} requests, ${measured.smallCalls} small calls`
      addRow(`cost of whole conversations, ${where}: % of list`, {
        naive: `${round(measured.plainShare)} (everything)`,
        measured: round(measured.share),
        goal,
        tokens: cases,
      })
      addRow(`conversations more expensive than sending everything, ${where}`, {
        naive: '0',
        measured: `${measured.moreExpensive} (at most ${round(measured.maxExcess)}%)`,
        goal: '0',
        tokens: cases,
      })
    }
  }
}

/** Measures the same conversations, sent unchanged, with a vendor that caches only marked prefixes. */
async function markerCosts(kind: string): Promise<void> {
  const [table] = CACHE_TABLES
  if (table === undefined) return
  for (const secondsBetween of [30, 600]) {
    const measured = await measureMarkers({ root, kind, table, secondsBetween, step: costStep })
    addRow(`cost with markers for the prompt cache, ${kind}, turns ${secondsBetween} s apart: % of list`, {
      naive: '100.0 (no markers)',
      measured: `${round(measured.share)}, more expensive ${measured.moreExpensive} (at most ${round(measured.maxExcess)}%)`,
      goal: 'at most one write more',
      tokens: `${measured.conversations} conversations, ${measured.requests} requests`,
    })
  }
}

/** Measures the same conversations with a single tier, at the first prices. */
async function tierCosts(kind: string, goal: string): Promise<void> {
  const [table] = CACHE_TABLES
  if (table === undefined) return
  const base = { root, kind, table, secondsBetween: 30, step: 8, requests: 120 }
  const extreme = { level: 'extreme', ...NO_STEERING } as const
  const ways = [
    ['slider, new choice on every turn', { steering: extreme, waterfall: { slider: 'query' } }],
    ['slider, auto', { steering: extreme, waterfall: { slider: 'auto' } }],
    ['slider, stable', { steering: extreme, waterfall: { slider: 'stable' } }],
    ['family lock', { waterfall: { tiers: (own) => own.filter((one) => one.tier === 4) } }],
  ] as const satisfies readonly (readonly [string, Partial<Parameters<typeof measureCosts>[0]>])[]
  for (const [name, more] of ways) {
    const measured = await measureCosts({ ...base, ...more })
    addRow(`cost of whole conversations, ${kind}, ${name}: % of list`, {
      naive: `${round(measured.plainShare)} (everything)`,
      measured: round(measured.share),
      goal,
      tokens: `${measured.requests} requests, ${measured.smallCalls} small calls`,
    })
  }
}

/** The groups of figures, in the order in which they are measured. */
const sections: Readonly<Record<string, () => Promise<void>>> = {
  selection: async () => {
    await selection('specstory', 16_384, 84)
    await selection('specstory', 32_768, 93)
    await selection('specstory', 65_536, 98)
    await selection('qmsum', 4096, 62)
    await selection('qmsum', 8192, 84)
  },
  tiers: async () => {
    const fresh = (): ReturnType<typeof newWaterfall> => newWaterfall()
    await tier(
      'tier 2, no small model',
      'mtragun',
      through(fresh, () => ({ steering: { vanishing: true, recursive: false } })),
      '97',
    )
    for (const kind of Object.keys(SMALL_REPLIES)) {
      const asked = (): Partial<TierJob> => ({
        steering: { ...NO_STEERING, vanishing: true },
        small: smallModelOf(kind).small,
      })
      await tier(`tier 2, small model ${kind}`, 'mtragun', through(fresh, asked), 'at most 1 less')
    }
    const lazy = (steering: Partial<Steering>) => (): Partial<TierJob> => ({
      steering: { ...NO_STEERING, ...steering },
      small: smallModelOf('lazy').small,
    })
    await tier('tier 3, lazy controller', 'mtragun', through(fresh, lazy({ recursive: true })), '92 at 21k')
    const onlyFamily = (): ReturnType<typeof newWaterfall> =>
      newWaterfall({ tiers: (own) => own.filter((one) => one.tier === 4) })
    await tier('tier 4, lazy summarizer', 'mtragun', through(onlyFamily, lazy({})), '92 at 13k')
    await tier('tier 4, lazy summarizer', 'qmsum', through(onlyFamily, lazy({})), '92 at 13k')
  },
  gateway: async () => {
    for (const clientFormat of ['chat', 'messages'] as const) {
      const extreme = await throughGateway(clientFormat, { 'x-savings-level': 'extreme' })
      await tier(`gateway, ${clientFormat} format, extreme`, 'specstory', extreme, '78')
      const vanishing = await throughGateway(clientFormat, { 'x-vanishing-context': 'true' })
      await tier(`gateway, ${clientFormat} format, tier 2`, 'mtragun', vanishing, '97')
      const recursive = await throughGateway(clientFormat, { 'x-svc-rlm': 'true' })
      await tier(`gateway, ${clientFormat} format, tier 3`, 'mtragun', recursive, '92 at 21k')
    }
  },
  'long-chats': async () => {
    for (const [kind, goal] of [
      ['answers', 'none set'],
      ['everything', 'none set'],
    ] as const) {
      for (const cap of [4096, 8192, 16_384, 32_768]) {
        const measured = await measureCases(longChatCases(root, kind), { cap }, selectionAt(cap))
        const naive = await measureCases(longChatCases(root, kind), { cap }, (prompt) => cutMiddle(prompt, cap, meter))
        addRow(`long chat, questions for ${kind}, at ${cap}: needed text kept, %`, {
          naive: round(naive.evidence),
          measured: round(measured.evidence),
          goal,
          tokens: `${Math.round(measured.tokensBefore)} to ${Math.round(measured.tokensAfter)}, ${measured.requests} cases`,
        })
      }
    }
  },
  costs: async () => {
    await automaticCosts('specstory', '3')
    await automaticCosts('taubench', '5')
    await automaticCosts('chats', '5')
    for (const kind of ['specstory', 'sweagent', 'taubench', 'chats']) await markerCosts(kind)
    await tierCosts('specstory', '3')
  },
  'first-request': async () => {
    const { first, second, firstMs, processes } = await measureFirstRequest()
    addRow('first long request of a process (tier 5), multiples of parsing and serializing its body', {
      naive: '1',
      measured: `${round(first)} (${round(firstMs)} ms), the next one ${round(second)}`,
      goal: 'none set',
      tokens: `about 118000, ${processes} processes`,
    })
  },
}

const only = values.only?.split(',') ?? Object.keys(sections)
for (const name of only) {
  const measure = sections[name]
  if (measure === undefined)
    throw new Error(`Unknown section "${name}" in --only. Use any of ${Object.keys(sections).join(', ')}.`)
  await measure()
}

console.table(rows)
writeFileSync(values.out, `${JSON.stringify({ data: root, step, rows }, undefined, 2)}\n`)
