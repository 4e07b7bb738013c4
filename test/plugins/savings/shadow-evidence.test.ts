import { afterEach, describe, expect, it } from 'vitest'
import type { JsonObject } from '../../../src/core/json.ts'
import type { LogRecord } from '../../../src/index.ts'
import type { Tier } from '../../../src/plugins/savings/tier.ts'
import { post } from '../../support/read-stream.ts'
import { FORMAT_PAIRS, RESPONSES_FORMAT_PAIRS, type Endpoint } from '../../support/send-request.ts'
import { startStage, type Stage } from '../../support/stage.ts'
import { buildEvents, type Reply, type UpstreamRequest } from '../../support/upstream.ts'
import { waitUntil } from '../../support/wait-until.ts'
import { meter } from './bench.ts'

const stages: Stage[] = []
afterEach(async () => {
  await Promise.all(stages.splice(0).map((stage) => stage.close()))
})

/** Keeps the last message. */
const lastOnly: Tier = {
  tier: 4,
  wants: () => true,
  rewrite: async ({ prompt: received }) => {
    const prompt = { ...received, messages: received.messages.slice(-1) }
    const tokens = await meter.countPrompt(prompt)
    return { rewrite: { prompt, tokens, tier: 4, strategy: 'Last only' }, spent: 0 as never }
  },
}

const PAST = 'The harbor gate opens at 4711 with the key in src/gates/harbor.ts, as agreed.'
const RESPONSE = 'Use 4711 and 9000 in src/gates/harbor.ts; the gate opens at dawn.'

function bodyOf({ path, model }: Endpoint, stream: boolean): JsonObject {
  const turns = [
    { role: 'user', content: `${PAST} ${'Noted. '.repeat(9000)}` },
    { role: 'assistant', content: 'Yes.' },
    { role: 'user', content: 'Which number opens the gate, 9000?' },
  ]
  const common = { model, stream }
  return path.endsWith('responses')
    ? { ...common, input: turns, max_output_tokens: 50 }
    : { ...common, messages: turns, max_tokens: 50 }
}

async function start(reply: (request: UpstreamRequest) => Reply): Promise<{ stage: Stage; records: LogRecord[] }> {
  const records: LogRecord[] = []
  const stage = await startStage({
    reply,
    savings: { shadowShare: 1, tiers: [lastOnly], agents: true },
    log: (record) => void records.push(record),
  })
  stages.push(stage)
  return { stage, records }
}

function trialsIn(records: readonly LogRecord[]): readonly LogRecord[] {
  return records.filter(({ event }) => event === 'shadow')
}

const CASES = [...FORMAT_PAIRS, ...RESPONSES_FORMAT_PAIRS].flatMap((endpoint) =>
  [false, true].map((stream) => ({ ...endpoint, stream })),
)

describe('a shadow trial', () => {
  it.each(CASES)('reports what of the answer its prompt would have lacked: $name, stream $stream', async (one) => {
    const { stage, records } = await start(({ stream }) => ({ text: stream ? [...RESPONSE] : RESPONSE }))
    await (await post(stage, one.path, { body: bodyOf(one, one.stream) })).text()
    await waitUntil(() => trialsIn(records).length > 0)

    // Lost are the number, the file and two runs of its words; 9000 is in the question.
    expect(trialsIn(records)).toMatchObject([
      { virtual_key_id: stage.keyId, strategy: 'Last only', tier: 4, evidence_facts: 5, evidence_lost: 4 },
    ])
    const { shadow } = stage.gateway.metrics.summary()
    const counts = { trials: 1, measuredTrials: 1, facts: 5, lostFacts: 4, keptShare: 0.2 }
    expect(shadow.droppedTrials).toBe(0)
    expect(shadow.tiers.find(({ tier }) => tier === 4)).toEqual({ tier: 4, ...counts })
    const text = await stage.gateway.metrics.prometheus()
    expect(text).toContain('sluice_shadow_facts_lost_total{tier="4"} 4\n')
    expect(text).toContain('sluice_shadow_facts_total{tier="4"} 5\n')
    expect(text).not.toContain(stage.keyId)
  })

  it('of a request whose stream breaks is reported without evidence', async () => {
    const { stage, records } = await start((request) => ({
      kind: 'events',
      items: buildEvents(request, { text: ['Use', ' 4711'] }).slice(0, 2),
    }))
    const [endpoint] = FORMAT_PAIRS
    if (endpoint === undefined) throw new Error('There are no endpoints.')
    await (await post(stage, endpoint.path, { body: bodyOf(endpoint, true) })).text()
    await waitUntil(() => trialsIn(records).length > 0)

    expect(trialsIn(records)[0]).not.toHaveProperty('evidence_facts')
    const { tiers } = stage.gateway.metrics.summary().shadow
    expect(tiers.find(({ tier }) => tier === 4)).toMatchObject({ trials: 1, measuredTrials: 0, keptShare: 1 })
  })
})
