import { describe, expect, it } from 'vitest'
import type { Message, Part, Prompt } from '../../../src/core/prompt.ts'
import { measureLoss, type EvidenceLoss } from '../../../src/plugins/savings/evidence.ts'
import { createRecallMeter } from '../../../src/plugins/savings/shadow-recall.ts'
import { cases, fc } from '../../support/properties.ts'
import { promptOf, prose, text } from './conversation.ts'

const user = (...parts: readonly Part[]): Message => ({ role: 'user', parts })
const call = (input: string): Part => ({ type: 'tool-call', id: 'call_1', name: 'read_file', input })

/** Measures a response to a prompt of which the first text was omitted and the second one was kept. */
function lossOf(omitted: string, kept: string, response: string | Part): Promise<EvidenceLoss> {
  const [first, last] = [user(text(omitted)), user(text(kept))]
  return measure({
    received: promptOf([first, last], 'chat'),
    sent: promptOf([last], 'chat'),
    response: [typeof response === 'string' ? text(response) : response],
  })
}

function measure(trial: { readonly received: Prompt; readonly sent: Prompt; readonly response: readonly Part[] }) {
  return measureLoss(trial, () => undefined)
}

describe('the evidence that a shortened prompt lacks', () => {
  it.each([
    ['a file name', 'It is in src/plan.ts since May.', 'Open src/plan.ts now.'],
    ['a name in camel case', 'The function getName fails.', 'Call getName again.'],
    ['a name in snake case', 'The variable max_size is set.', 'Raise max_size.'],
    ['a name with a digit', 'Pump P4711 leaks.', 'Repair P4711.'],
    ['a number', 'The port is 8443 there.', 'Use 8443.'],
    ['a number with separators', 'We paid 1,250,000 dollars.', 'It was 1250000.'],
    ['a version', 'Version 2.14.3 broke it.', 'Install 2.14.3.'],
    ['a run of four words', 'We chose the old blue harbor.', 'The OLD blue harbor!'],
    ['a run of four characters without spaces', '会议定在港口。', '会议定在哪里'],
  ])('counts %s that only the omitted part contains', async (_, omitted, response) => {
    expect((await lossOf(omitted, 'Something else.', response)).lost).toBe(1)
  })

  it.each([
    ['one that the kept part contains, too', 'The port is 8443.', 'As said, 8443.', 'Use 8443.'],
    ['one that no part contains', 'The port is 8443.', 'Hello.', 'Use 9000.'],
    ['single digits', 'Step 1 and step 2.', 'Hello.', '1 or 2?'],
    ['three words', 'The old blue harbor.', 'Hello.', 'A blue harbor, old.'],
    ['plain words', 'Harbor.', 'Hello.', 'The harbor.'],
  ])('does not count %s', async (_, omitted, kept, response) => {
    expect((await lossOf(omitted, kept, response)).lost).toBe(0)
  })

  it('counts a fact once, however often the answer repeats it', async () => {
    expect(await lossOf('The port is 8443.', 'Hello.', 'Use 8443. I repeat: 8443, only 8443.')).toEqual({
      facts: 1,
      lost: 1,
    })
  })

  it('reads the arguments of tool calls in the answer and in the prompt', async () => {
    const kept = user(text('Go on.'))
    const omitted: Message = { role: 'assistant', parts: [call('{"path":"a/long/path.ts","note":"x\\nport 8443"}')] }
    const received = promptOf([omitted, kept], 'chat')
    const sent = promptOf([kept], 'chat')

    expect(await measure({ received, sent, response: [call('{"path":"a/long/path.ts\\n8443"}')] })).toEqual({
      facts: 7,
      lost: 6,
    })
  })

  it('counts nothing for an unchanged prompt, and at most the facts of the answer for an empty one', async () => {
    const seeds = fc.tuple(fc.nat(1000), fc.nat(1000), fc.nat(1000))
    await fc.assert(
      fc.asyncProperty(seeds, async ([a, b, c]) => {
        const received = promptOf([user(text(prose(a, 80))), user(text(prose(b, 80)))], 'chat')
        const response = [text(`${prose(a, 20)} ${prose(c, 20)}`)]
        const unchanged = await measure({ received, sent: received, response })
        const empty = await measure({ received, sent: { ...received, messages: [] }, response })
        expect(unchanged.lost).toBe(0)
        expect(empty.facts).toBe(unchanged.facts)
        expect(empty.lost).toBeLessThanOrEqual(empty.facts)
        expect(empty.lost).toBeGreaterThan(0)
      }),
      { numRuns: cases(30) },
    )
  })

  it('yields to the event loop in long prompts', async () => {
    let pauses = 0
    const long = user(text(prose(3, 60_000)))
    const received = promptOf([long], 'chat')
    const pause = (): undefined => void (pauses += 1)
    await measureLoss({ received, sent: { ...received, messages: [] }, response: [text('harbour-1.ts')] }, pause)

    expect(pauses).toBeGreaterThan(5)
  })
})

describe('the measurement of shadow trials', () => {
  const trial = {
    received: promptOf([user(text('The port is 8443.'))], 'chat'),
    sent: promptOf([], 'chat'),
    response: [text('Use 8443.')],
  }

  it('drops trials when too many wait', async () => {
    const meter = createRecallMeter(() => Promise.resolve())
    const losses = await Promise.all(Array.from({ length: 20 }, () => meter.measure(trial)))

    expect(losses.filter((loss) => loss === undefined)).toHaveLength(4)
    expect(await meter.measure(trial)).toEqual({ facts: 1, lost: 1 })
  })

  it('drops a trial whose prompt is too long', async () => {
    const received = promptOf([user(text('x'.repeat(4_000_001)))], 'chat')

    expect(await createRecallMeter(() => Promise.resolve()).measure({ ...trial, received })).toBeUndefined()
  })
})
