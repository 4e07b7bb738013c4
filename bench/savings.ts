/**
 * Measures the time that optimizing a prompt of about 118,000 tokens adds to a request, as a ratio to parsing and
 * serializing its body once in the same run: for a new conversation, and for the same conversation one turn later.
 */
import { monitorEventLoopDelay } from 'node:perf_hooks'
import { chatClient } from '../src/formats/chat/client.ts'
import { createWaterfall } from '../src/plugins/savings/waterfall.ts'
import type { TierJob } from '../src/plugins/savings/tier.ts'
import { yieldToEventLoop } from '../src/tokens/event-loop.ts'
import { PromptMeter, createTokenizer } from '../src/tokens/meter.ts'
import { median } from './load.ts'
import { generatedChat, wordsOf, type ChatTurn } from './quality/generated-chat.ts'
import { MODEL } from './quality/lab.ts'

const ROUNDS = 7
const tokenizer = createTokenizer()
async function timed(
  waterfall: ReturnType<typeof createWaterfall>,
  messages: readonly ChatTurn[],
  level: 'extreme' | undefined,
): Promise<Timing> {
  const body = { model: 'mock/large', messages }
  const prompt = chatClient.readPrompt(JSON.parse(JSON.stringify(body)) as never)
  const meter = new PromptMeter(tokenizer)
  const job: TierJob = {
    prompt,
    modelName: 'mock/large',
    model: MODEL,
    tokens: meter.estimatePrompt(prompt),
    steering: { vanishing: level === undefined, recursive: false, ...(level !== undefined && { level }) },
    owner: 'bench',
    small: undefined,
    signal: new AbortController().signal,
    now: 1_700_000_000_000,
  }
  const loop = monitorEventLoopDelay({ resolution: 1 })
  loop.enable()
  await yieldToEventLoop()
  const startedAt = performance.now()
  // As in the gateway, which decides before it counts.
  await waterfall.passUnchanged(job, Number.MAX_SAFE_INTEGER)
  const { rewrite, reportSent } = await waterfall(job)
  const ms = performance.now() - startedAt
  await reportSent?.()
  await yieldToEventLoop()
  loop.disable()
  if (rewrite === undefined) throw new Error('The waterfall did not shorten the prompt.')
  return { ms, blocked: loop.max / 1e6, tokens: job.tokens }
}

interface Timing {
  readonly ms: number
  readonly blocked: number
  readonly tokens: number
}

const rows: Record<string, Record<string, number>> = {}
for (const [name, level] of [
  ['tier 5, extreme', 'extreme'],
  ['tier 2', undefined],
] as const) {
  const newTimings: Timing[] = []
  const nextTimings: Timing[] = []
  const bodies: number[] = []
  let kept = 0
  for (let round = -1; round < ROUNDS; round++) {
    const texts = new Map<string, string>()
    const store = {
      get: async (key: string) => texts.get(key),
      set: async (key: string, value: string) => void texts.set(key, value),
    }
    const meter = new PromptMeter(tokenizer)
    const waterfall = createWaterfall({
      meter,
      store,
      now: () => 1_700_000_000_000,
      after: () => () => {},
      yieldToEventLoop,
    })
    const first = generatedChat(round + 2, 135)
    const next: ChatTurn[] = [
      ...first,
      { role: 'assistant', content: wordsOf(round, 300) },
      { role: 'user', content: 'And the ledger?' },
    ]
    const serialized = performance.now()
    JSON.stringify(JSON.parse(JSON.stringify({ model: 'mock/large', messages: first })))
    const bodyMs = (performance.now() - serialized) / 1.5
    const newTiming = await timed(waterfall, first, level)
    const nextTiming = await timed(waterfall, next, level)
    if (round < 0) continue
    newTimings.push(newTiming)
    nextTimings.push(nextTiming)
    bodies.push(bodyMs)
    kept = [...texts].reduce((sum, [key, value]) => sum + 2 * (key.length + value.length), 0)
  }
  const medianOf = (timings: readonly Timing[], field: keyof Timing): number =>
    median(timings.map((timing) => timing[field]))
  const round = (value: number): number => Math.round(value * 10) / 10
  rows[name] = {
    tokens: medianOf(newTimings, 'tokens'),
    'new ms': round(medianOf(newTimings, 'ms')),
    'next turn ms': round(medianOf(nextTimings, 'ms')),
    'new ÷ JSON once': round(medianOf(newTimings, 'ms') / median(bodies)),
    'next turn ÷ JSON once': round(medianOf(nextTimings, 'ms') / median(bodies)),
    'loop blocked ms, new': round(medianOf(newTimings, 'blocked')),
    'loop blocked ms, next turn': round(medianOf(nextTimings, 'blocked')),
    'bytes per conversation': kept,
  }
}
console.log('\nOptimizing a prompt: medians of the added time (token ranks are loaded beforehand)')
console.table(rows)
