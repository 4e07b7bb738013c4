import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { promptVersion } from '../../../examples/plugins/prompt-version.ts'
import { redactEmails } from '../../../examples/plugins/redact-emails.ts'
import { stopAtKeyword } from '../../../examples/plugins/stop-at-keyword.ts'
import { usageQueue } from '../../../examples/plugins/usage-queue.ts'
import { createGateway, GatewayError, type Plugin } from '../../../src/index.ts'
import { testPlugin, type PluginSetup } from '../../../src/testing.ts'

/** Retries wait for the shortest time. */
const runtime = { random: () => 0 }
const api = { afterEach, beforeEach, describe, expect, it }

testPlugin(
  'redactEmails()',
  async (provider) => ({
    gateway: createGateway({ providers: [provider], runtime, plugins: [redactEmails()] }),
    question: 'Write to ada@example.com, then to bob@example.org and ada@example.com.',
  }),
  api,
)

testPlugin(
  'stopAtKeyword()',
  async (provider) => ({
    gateway: createGateway({ providers: [provider], runtime, plugins: [stopAtKeyword(['secret', 'token'])] }),
    response: 'The password is SECRET and more.',
    expected: 'The password is ',
    rejected: 'Tell me the Secret.',
  }),
  api,
)

testPlugin(
  'promptVersion()',
  async (provider) => ({
    gateway: createGateway({ providers: [provider], runtime, plugins: [promptVersion({ v2: 'Answer in one word.' })] }),
  }),
  api,
)

testPlugin(
  'usageQueue()',
  async (provider) => ({
    gateway: createGateway({ providers: [provider], runtime, plugins: [usageQueue({ send: async () => {} }).plugin] }),
  }),
  api,
)

type Test = () => void | Promise<void>

/** Runs the contract for a plugin and returns the titles of the tests that fail. */
async function failedTitles(plugin: Plugin, texts: Omit<PluginSetup, 'gateway'> = {}): Promise<readonly string[]> {
  const tests: (readonly [string, Test])[] = []
  const before: Test[] = []
  const after: Test[] = []
  testPlugin(
    plugin.name,
    async (provider) => ({ gateway: createGateway({ providers: [provider], runtime, plugins: [plugin] }), ...texts }),
    {
      describe: (_title, body) => body(),
      it: (title, body) => tests.push([title, body]),
      beforeEach: (body) => before.push(body),
      afterEach: (body) => after.push(body),
      expect,
    },
  )
  const failed: string[] = []
  for (const [title, test] of tests) {
    for (const prepare of before) await prepare()
    try {
      await test()
    } catch {
      failed.push(title)
    }
    for (const clean of after) await clean()
  }
  return failed
}

const SPLIT = 'as JSON and as a stream, however it is split'

describe('the plugin contract', () => {
  it('passes for a plugin without hooks', async () => {
    expect(await failedTitles({ name: 'none' })).toEqual([])
  })

  it('fails for a plugin that replaces a word only within one part of a stream', async () => {
    const plugin: Plugin = {
      name: 'no-borders',
      transformResponse: () => ({
        write: (part) => (part.type === 'text-delta' ? { ...part, text: part.text.replace('sluice', 'lock') } : part),
      }),
    }
    const failed = await failedTitles(plugin, { expected: 'What is a lock? Answer in one sentence.' })

    expect(failed.filter((title) => title.endsWith(SPLIT))).toHaveLength(3)
  })

  it('fails for a plugin that loses the text that it holds back', async () => {
    const plugin: Plugin = {
      name: 'loses',
      transformResponse: () => ({ write: (part) => (part.type === 'text-delta' ? [] : part) }),
    }

    expect((await failedTitles(plugin)).filter((title) => title.endsWith(SPLIT))).toHaveLength(3)
  })

  it('fails for a plugin whose state is shared by all requests', async () => {
    let last = ''
    const plugin: Plugin = {
      name: 'shared',
      onRequest: ({ prompt }) => void (last = JSON.stringify(prompt?.messages.at(-1)?.parts ?? '')),
      transformResponse: () => ({ end: () => [{ type: 'text-delta', text: last }] }),
    }

    expect((await failedTitles(plugin)).filter((title) => title.startsWith('shares nothing'))).toHaveLength(3)
  })

  it('fails for a plugin that throws for a request without text messages', async () => {
    const plugin: Plugin = {
      name: 'assumes',
      onRequest: ({ prompt }) => {
        if (prompt?.messages.some(({ parts }) => parts[0]?.type !== 'text')) throw new Error('no text')
      },
    }

    expect(await failedTitles(plugin)).toEqual(['does not fail for a conversation with a tool call'])
  })

  it('fails for a guardrail that rejects only after the call of the upstream', async () => {
    const plugin: Plugin = {
      name: 'late',
      transformResponse: ({ prompt }) => {
        if (JSON.stringify(prompt).includes('forbidden')) throw new GatewayError('invalid-request', 'No.')
      },
    }
    const failed = await failedTitles(plugin, { rejected: 'forbidden' })

    expect(failed).toEqual(
      ['chat completions', 'messages', 'responses'].map((name) => `rejects ${name} without a call of the upstream`),
    )
  })
})
