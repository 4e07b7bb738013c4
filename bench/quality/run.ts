import { writeFileSync } from 'node:fs'
import { parseArgs } from 'node:util'
import { measureCosts, measureMarkers } from './costs.ts'
import { CACHE_TABLES, type CacheTable } from './upstream-cache.ts'
import { chatCases, loadHalf, measureCurve, type CurveFigures } from './curves.ts'
import { DEFAULT_KEEP } from '../../src/plugins/savings/waterfall.ts'
import { readBeam } from './beam.ts'
import { readLocomo } from './locomo.ts'
import { openMiniLm, rankerOf, sliderAt, vanishingAt } from './meaning.ts'
import { replay } from './replay.ts'
import { mixedChats, requestsOf } from './running-chats.ts'
import { measureRunning, RUNNING_KINDS, type RunningKind } from './running.ts'
import { measureFirstRequest } from './first-request.ts'
import { throughGateway } from './through-gateway.ts'
import { meter, newWaterfall, NO_STEERING, SMALL_REPLIES, smallModelOf } from './lab.ts'
import { longChatCases } from './long-chat.ts'
import { cutMiddle } from './middle.ts'
import type { Steering, Tier, TierJob } from '../../src/plugins/savings/tier.ts'
import { measureCases, measureRecall, selectionAt, through, type Figures, type Method } from './recall.ts'

const { values } = parseArgs({
  options: {
    data: { type: 'string', default: '../shared/data' },
    step: { type: 'string', default: '4' },
    'cost-step': { type: 'string', default: '1' },
    only: { type: 'string' },
    /** One half of the sources, `0` or `1`, for the sections `curves` and `running`. @default both */
    half: { type: 'string' },
    /** Requests of each conversation in the section `running`, and of those before the questions in its chats. @default all */
    requests: { type: 'string' },
    lead: { type: 'string' },
    /** A folder with the conversations of LoCoMo. @default the chats of the section `running` contain none */
    locomo: { type: 'string' },
    /** A folder with chats of BEAM, for the section `meaning`. */
    beam: { type: 'string' },
    /** A folder with all-MiniLM-L6-v2. @default the section `meaning` ranks by words only */
    minilm: { type: 'string' },
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

const locomo = values.locomo === undefined ? [] : readLocomo(values.locomo)
const limitOf = (value: string | undefined): number => (value === undefined ? Number.POSITIVE_INFINITY : Number(value))
const limits = { step: costStep, requests: limitOf(values.requests), lead: limitOf(values.lead) }
const halves = ([0, 1] as const).filter((half) => values.half === undefined || String(half) === values.half)
/** Requests before the questions, after which the conversation is a running one. */
const LEAD_REQUESTS = 3

function addCurve(what: string, { received, count, points }: CurveFigures): void {
  addRow(`selection for the question, ${what}: share sent and needed text kept, %`, {
    naive: '-',
    measured: points.map(([share, kept]) => `${share}: ${round(kept)}`).join(', '),
    goal: 'none set',
    tokens: `${Math.round(received)}, ${count} cases`,
  })
}

/** Measures whole conversations in automatic mode: with the default floor, and without one in all conversations. */
async function runningFigures(kind: RunningKind, half: 0 | 1, table: CacheTable): Promise<void> {
  const modes = [
    ['default', { agents: false, keep: DEFAULT_KEEP }],
    ['agents: true, keep: 0', { agents: true, keep: 0 }],
  ] as const
  for (const [name, waterfall] of modes) {
    const one = await measureRunning({ root, kind, half, locomo, table, waterfall, ...limits })
    addRow(`running ${kind}, half ${half}, ${table.name}, ${name}: needed text kept, % / cost, % of list`, {
      naive: `100 / ${round(one.plainShare)} (everything)`,
      measured: `${round(one.kept)} / ${round(one.share)}, more expensive ${one.moreExpensive} (at most ${round(one.maxExcess)}%)`,
      goal: name === 'default' ? 'at least 97 / 0 more expensive' : '0 more expensive',
      tokens: `${one.conversations} conversations, ${one.rewritten} of ${one.requests} requests shortened, ${one.measured} measured`,
    })
  }
}

/** Shares of the evidence for which tier 4 is measured in running chats. */
const FAMILY_FLOORS = [0.8, 0.9]

/** Measures tier 4 alone with a floor, at prices at which it always pays: what its curve promises, and what is kept. */
async function familyFloors(half: 0 | 1): Promise<void> {
  const table = CACHE_TABLES.find(({ read }) => read === 1)
  if (table === undefined) return
  for (const keep of FAMILY_FLOORS) {
    const waterfall = { keep, tiers: (own: readonly Tier[]) => own.filter(({ tier }) => tier === 4) }
    const one = await measureRunning({ root, kind: 'chats', half, locomo, table, waterfall, ...limits })
    addRow(`running chats, half ${half}, tier 4 with keep ${keep}: needed text kept, % / cost, % of list`, {
      naive: `100 / ${round(one.plainShare)} (everything)`,
      measured: `${round(one.kept)} / ${round(one.share)}`,
      goal: `at least ${100 * keep}`,
      tokens: `${one.conversations} conversations, ${one.rewritten} of ${one.requests} requests shortened, ${one.measured} measured`,
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
  curves: async () => {
    const shares = [0.2, 0.35, 0.5, 0.6, 0.7, 0.8, 0.9]
    for (const half of halves) {
      for (const parts of [5, 2, 1]) {
        const chats = mixedChats(root, { half, parts, locomo, perChat: 10 })
        addCurve(`chats, half ${half}, ${parts} of them`, await measureCurve(chatCases(chats, step), shares))
      }
      for (const kind of ['specstory', 'qmsum', 'mtragun']) {
        addCurve(`${kind}, half ${half}`, await measureCurve(loadHalf(root, kind, half, step), shares))
      }
    }
  },
  running: async () => {
    for (const half of halves) {
      const [chat] = mixedChats(root, { half, parts: 1, locomo })
      for (const level of ['extreme', 'max', 'med'] as const) {
        const [table] = CACHE_TABLES
        if (chat === undefined || table === undefined) continue
        const options = { table, steering: { level, ...NO_STEERING }, first: true }
        const one = await replay(chat.id, requestsOf(chat, LEAD_REQUESTS), options)
        addRow(`long chat, half ${half}, level ${level}, in a running conversation: needed text kept, %`, {
          naive: `${round(one.first)} (as a first request)`,
          measured: round(one.kept),
          goal: 'at most 2 less',
          tokens: `${Math.round(one.received)} to ${Math.round(one.sent)}, ${one.measured} questions`,
        })
      }
      await familyFloors(half)
      for (const kind of RUNNING_KINDS) {
        for (const table of CACHE_TABLES) await runningFigures(kind, half, table)
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
  meaning: async () => {
    const { beam, minilm } = values
    if (beam === undefined) return
    const local = minilm === undefined ? undefined : await openMiniLm(minilm)
    const rankers = local === undefined ? [undefined] : [undefined, rankerOf(local.embedder)]
    for (const half of [1, 0] as const) {
      const cases = readBeam(beam).filter(({ chat }) => chat % 2 === half)
      for (const ranker of rankers) {
        for (const cap of [16_384, 32_768, 65_536]) {
          for (const [name, method] of [
            ['slider', sliderAt(cap, ranker)],
            ['tier 2', vanishingAt(cap, ranker)],
          ] as const) {
            const { evidence, tokensBefore, tokensAfter } = await measureCases(cases, {}, method)
            addRow(`BEAM, ${half === 1 ? 'odd' : 'even'} chats, ${name} at ${cap}: needed text kept, %`, {
              naive: '-',
              measured: `${round(evidence)} ${ranker === undefined ? 'by words' : 'with MiniLM'}`,
              goal: { 16_384: '95', 32_768: '97', 65_536: '99' }[cap] ?? '',
              tokens: `${Math.round(tokensBefore)} to ${Math.round(tokensAfter)}, ${cases.length} cases`,
            })
          }
        }
      }
    }
    await local?.close()
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
