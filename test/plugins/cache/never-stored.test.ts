import { afterEach, describe, expect, it } from 'vitest'
import { CHAT_MODEL, MESSAGE_MODEL, startStage, type Stage } from '../../support/stage.ts'
import { CUT, type ModelResponse, type Reply, type UpstreamRequest } from '../../support/upstream.ts'

let stage: Stage | undefined
afterEach(() => stage?.close())

const question = { role: 'user', content: 'What is a sluice?' }
const ENDPOINTS = [
  { format: 'chat', path: '/v1/chat/completions', body: { model: CHAT_MODEL, messages: [question] } },
  { format: 'messages', path: '/v1/messages', body: { model: MESSAGE_MODEL, messages: [question], max_tokens: 50 } },
  { format: 'responses', path: '/v1/responses', body: { model: CHAT_MODEL, input: [question] } },
] as const

const ending =
  (openai: string, anthropic: string) =>
  ({ dialect }: UpstreamRequest): ModelResponse => ({
    text: 'A gate.',
    finish: dialect === 'messages' ? anthropic : openai,
  })
const text = 'A gate.'

const NEVER_STORED: Readonly<Record<string, (request: UpstreamRequest) => Reply>> = {
  truncated: ending('length', 'max_tokens'),
  refused: ending('content_filter', 'refusal'),
  'refused in English': () => "I'm sorry, but I can't help with that.",
  empty: () => ({ text: ' ' }),
  'a call of a tool': () => ({ text, toolCalls: [{ id: 'call_1', name: 'read', input: '{}' }] }),
  broken: ({ stream }) => (stream ? { kind: 'events', items: [': hello\n\n', CUT] } : { kind: 'failure', status: 500 }),
}

const CASES = ENDPOINTS.flatMap((endpoint) =>
  Object.entries(NEVER_STORED).flatMap(([kind, reply]) =>
    [false, true].map((stream) => ({ ...endpoint, kind, reply, stream })),
  ),
)

async function ask({ path, body, stream }: (typeof CASES)[number], { url, secret }: Stage): Promise<string | null> {
  const response = await fetch(`${url}${path}`, {
    method: 'POST',
    headers: { authorization: `Bearer ${secret}`, 'content-type': 'application/json' },
    body: JSON.stringify({ ...body, stream }),
  })
  await response.text().catch(() => '')
  return response.headers.get('x-svc-cache')
}

describe('an answer that is never stored', () => {
  it.each(CASES)('is one that is $kind, in the $format format, stream $stream', async (one) => {
    stage = await startStage({ cache: { similar: true }, reply: one.reply })
    for (let round = 0; round < 2; round++) expect(await ask(one, stage)).not.toBe('HIT')
    expect(stage.upstream.requests.length).toBeGreaterThanOrEqual(2)
    // The same request is stored once its response is complete.
    stage.upstream.reply = () => text
    expect(await ask(one, stage)).not.toBe('HIT')
    expect(await ask(one, stage)).toBe('HIT')
  })
})
