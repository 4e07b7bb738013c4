import { textOfMessage } from '../../src/core/messages.ts'
import { type Message, type Prompt } from '../../src/core/prompt.ts'
import { cutToQuery } from '../../src/plugins/savings/cut.ts'
import { createSegmentAnalyzer } from '../../src/plugins/savings/excerpt.ts'
import type { WaterfallResult, TierJob } from '../../src/plugins/savings/tier.ts'
import { yieldToEventLoop } from '../../src/tokens/event-loop.ts'
import { loadCases, type Case } from './data.ts'
import { jobOf, meter } from './lab.ts'
import { createHaystack, percent, shareOf } from './metrics.ts'
import { promptOf } from './prompts.ts'

/** Returns the prompt that would be sent. */
export type Method = (prompt: Prompt) => Promise<Prompt>

export interface Figures {
  readonly requests: number
  /** Share of the evidence that is kept, in percent. NaN if the data has none. */
  readonly evidence: number
  readonly needed: number
  readonly tokensBefore: number
  readonly tokensAfter: number
  /** Share of requests within the cap, with unchanged system prompt, tools and last user message, and valid tool pairs. */
  readonly valid: number
}

export interface RecallOptions {
  readonly root: string
  readonly kind: string
  readonly step: number
  readonly cap?: number
}

export async function measureRecall(options: RecallOptions, method: Method): Promise<Figures> {
  return measureCases(loadCases(options.root, options.kind, options.step), options, method)
}

/** Measures a method on the given cases. */
export async function measureCases(
  cases: Iterable<Case>,
  options: Pick<RecallOptions, 'cap'>,
  method: Method,
): Promise<Figures> {
  const rows: { evidence?: number; needed?: number; before: number; after: number; valid: number }[] = []
  for (const one of cases) {
    const prompt = promptOf(one.messages)
    const sent = await method(prompt)
    const texts = sent.messages.map(textOfMessage)
    // The last message counts, because the messages format joins the documents of a first question with the question.
    const all = createHaystack(texts)
    const evidence = shareOf(one.evidence, (text) => all.keeps(text))
    const needed = shareOf(one.needed, (lines) => lines.some((line) => all.keeps(line)))
    const before = await meter.countPrompt(prompt)
    const after = await meter.countPrompt(sent)
    const valid = Number(after <= (options.cap ?? before) && isValid(prompt, sent))
    rows.push({
      ...(evidence !== undefined && { evidence }),
      ...(needed !== undefined && { needed }),
      before,
      after,
      valid,
    })
  }
  const mean = (values: readonly number[]): number =>
    values.reduce((sum, value) => sum + value, 0) / Math.max(1, values.length)
  return {
    requests: rows.length,
    evidence: percent(rows.map((row) => row.evidence)),
    needed: percent(rows.map((row) => row.needed)),
    tokensBefore: mean(rows.map((row) => row.before)),
    tokensAfter: mean(rows.map((row) => row.after)),
    valid: 100 * mean(rows.map((row) => row.valid)),
  }
}

function isValid(before: Prompt, after: Prompt): boolean {
  const lastUser = (prompt: Prompt): Message | undefined =>
    prompt.messages.findLast((message) => message.role === 'user')
  const system = (prompt: Prompt): string =>
    JSON.stringify(prompt.messages.filter((message) => message.role === 'system'))
  const same = JSON.stringify(lastUser(before)) === JSON.stringify(lastUser(after)) && system(before) === system(after)
  return same && after.tools === before.tools && (pairsAreValid(after.messages) || !pairsAreValid(before.messages))
}

function pairsAreValid(messages: readonly Message[]): boolean {
  let open = new Set<string>()
  for (const message of messages) {
    const results = message.parts.flatMap((part) => (part.type === 'tool-result' ? [part.callId] : []))
    if (results.some((id) => !open.delete(id))) return false
    if (message.role === 'tool') continue
    if (open.size > 0) return false
    open = new Set(message.parts.flatMap((part) => (part.type === 'tool-call' ? [part.id] : [])))
  }
  return true
}

/** Returns a method that runs the whole waterfall. */
export function through(
  waterfall: () => (job: TierJob) => Promise<WaterfallResult>,
  more: () => Partial<TierJob>,
): Method {
  return async (prompt) => (await waterfall()(jobOf(prompt, more()))).rewrite?.prompt ?? prompt
}

const tools = {
  meter,
  analyze: createSegmentAnalyzer(meter, yieldToEventLoop),
  pause: yieldToEventLoop,
}

/** Returns a method that runs the selection of tiers 5 and 2 with a cap. */
export function selectionAt(cap: number): Method {
  return async (prompt) => {
    if ((await meter.countPrompt(prompt)) <= cap) return prompt
    return (await cutToQuery(jobOf(prompt), { cap }, tools))?.prompt ?? prompt
  }
}
