import { textOfMessage } from '../../src/core/messages.ts'
import { loadCases, loadConversations, readCaseLines, type Case } from './data.ts'
import { meter } from './lab.ts'
import { createHaystack, percent, shareOf } from './metrics.ts'
import { promptOf } from './prompts.ts'
import { selectionAt } from './recall.ts'
import { requestsOf, type RunningChat } from './running-chats.ts'

export interface CurveFigures {
  /** Mean size of the received prompts in tokens. */
  readonly received: number
  readonly count: number
  /** The sent share of the received prompt, and the kept share of the evidence in percent. */
  readonly points: readonly (readonly [share: number, kept: number])[]
}

/** Measures what the selection of tiers 2 and 5 keeps at shares of the received prompt. */
export async function measureCurve(
  cases: Iterable<Pick<Case, 'messages' | 'evidence' | 'needed'>>,
  shares: readonly number[],
): Promise<CurveFigures> {
  const kept = shares.map((share) => ({ share, values: new Array<number | undefined>() }))
  const sizes: number[] = []
  for (const { messages, evidence, needed } of cases) {
    const prompt = promptOf(messages)
    const size = await meter.countPrompt(prompt)
    sizes.push(size)
    for (const { share, values } of kept) {
      const sent = await selectionAt(Math.round(size * share))(prompt)
      const all = createHaystack(sent.messages.map(textOfMessage))
      values.push(
        shareOf(evidence, (text) => all.keeps(text)) ??
          shareOf(needed, (lines) => lines.some((line) => all.keeps(line))),
      )
    }
  }
  return {
    received: sizes.reduce((sum, size) => sum + size, 0) / Math.max(1, sizes.length),
    count: sizes.length,
    points: kept.map(({ share, values }) => [share, percent(values)] as const),
  }
}

/** Yields every `step`-th question of the chats, each as the first question after its chat. */
export function* chatCases(chats: readonly RunningChat[], step: number): Generator<Omit<Case, 'id'>> {
  let number = 0
  for (const chat of chats) {
    for (const question of chat.questions) {
      if (number++ % step !== 0) continue
      for (const { messages, evidence = [] } of requestsOf({ ...chat, questions: [question] }, 0)) {
        yield { messages, evidence, needed: [] }
      }
    }
  }
}

/** Yields every `step`-th case of one half of the conversations. */
export function* loadHalf(root: string, kind: string, half: 0 | 1, step: number): Generator<Case> {
  const conversations = loadConversations(root, kind).map(({ id }) => id)
  const halves = readCaseLines(root, kind).map(({ conv }) => conversations.indexOf(conv) % 2)
  let number = 0
  for (const [at, one] of [...loadCases(root, kind)].entries()) {
    if (halves[at] === half && number++ % step === 0) yield one
  }
}
