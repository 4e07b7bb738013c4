import { describe, expect, it } from 'vitest'
import { redactEmails } from '../../../examples/plugins/redact-emails.ts'
import type { ContentPart, PluginExchange, PluginPrompt } from '../../../src/index.ts'
import { TransformerChain } from '../../../src/plugins/custom/transform-response.ts'
import { fc } from '../../support/properties.ts'

/** Fields that the example does not read are missing. */
const exchange = {} as PluginExchange

const email = fc.constantFrom('ada@example.com ', 'bob@example.org ', 'carl+x@mail.example ')
const word = fc.constantFrom('to ', '[', '[e', '[email-', '[email-9] ', 'email-1]', ' ', 'é', '😀', '\n', '](')
const text = fc.array(fc.oneof(word, email), { maxLength: 20 }).map((pieces) => pieces.join(''))
const cuts = fc.array(fc.nat(), { maxLength: 30 })

function split(whole: string, positions: readonly number[]): readonly string[] {
  const ends = [...new Set(positions.map((position) => position % (whole.length + 1)))].toSorted((a, b) => a - b)
  return [0, ...ends].map((start, index) => whole.slice(start, ends[index] ?? whole.length))
}

function promptOf(content: string): PluginPrompt {
  const messages = [{ role: 'user', parts: [{ type: 'text', text: content }] }] as const
  return { model: 'm', messages, tools: [], settings: {}, stream: true }
}

async function redact(prompt: PluginPrompt): Promise<{ readonly sent: string; readonly chain: TransformerChain }> {
  const plugin = redactEmails()
  const changed = await plugin.transformPrompt?.(exchange, prompt)
  const transformer = plugin.transformResponse?.(exchange)
  const part = (changed ?? prompt).messages[0]?.parts[0]
  const sent = part?.type === 'text' ? part.text : ''
  const transformers = transformer === undefined ? [] : [{ plugin, transformer }]
  return { sent, chain: new TransformerChain(transformers, () => undefined) }
}

function textOf(parts: readonly ContentPart[]): string {
  return parts.map((part) => (part.type === 'text-delta' ? part.text : '')).join('')
}

describe('a redacted text', () => {
  it('is restored from any split of the response into chunks', async () => {
    await fc.assert(
      fc.asyncProperty(text, cuts, async (whole, positions) => {
        const { sent, chain } = await redact(promptOf(whole))
        expect(sent).not.toMatch(/@example|@mail/)
        let received = ''
        for (const piece of split(sent, positions)) {
          received += textOf(chain.write({ type: 'text-delta', text: piece }))
        }
        received += textOf(chain.end())

        expect(received).toBe(whole.includes('@') ? restoredOf(whole, sent) : whole)
      }),
    )
  })
})

/** Placeholders that the prompt itself contains are restored too, if they are the name of an address. */
function restoredOf(whole: string, sent: string): string {
  const addresses = [...new Set(whole.match(/[\w.+-]+@[\w-]+(?:\.[\w-]+)+/g))]
  return sent.replace(/\[email-(\d+)\]/g, (found, number: string) => addresses[Number(number) - 1] ?? found)
}

describe('a chain of transformers', () => {
  const part: fc.Arbitrary<ContentPart> = fc.oneof(
    fc.record({ type: fc.constant('text-delta' as const), text: fc.string({ maxLength: 5 }) }),
    fc.constant({ type: 'text-start' } as const),
    fc.constant({ type: 'thinking-delta', text: 'hm' } as const),
    fc.constant({ type: 'tool-call-start', index: 0, id: 'c', name: 'n' } as const),
    fc.constant({ type: 'tool-call-delta', index: 0, input: '{' } as const),
  )

  it('loses no part and keeps the order, however long its transformers hold parts back', () => {
    fc.assert(
      fc.property(fc.array(part, { maxLength: 20 }), fc.array(fc.nat(4), { maxLength: 3 }), (parts, delays) => {
        const transformers = delays.map((delay) => ({ plugin: { name: 'holds' }, transformer: holdBack(delay) }))
        const chain = new TransformerChain(transformers, () => undefined)

        const output = [...parts.flatMap((received) => chain.write(received)), ...chain.end()]

        const withoutStarts = (all: readonly ContentPart[]) => all.filter(({ type }) => !type.endsWith('-start'))
        expect(withoutStarts(output)).toEqual(withoutStarts(parts))
      }),
    )
  })

  it('emits nothing after a transformer has ended the response', () => {
    fc.assert(
      fc.property(fc.array(part, { minLength: 1, maxLength: 20 }), fc.nat(19), (parts, at) => {
        let count = 0
        const stop = { write: () => (count++ === at ? ({ finish: 'filtered' } as const) : undefined) }
        const chain = new TransformerChain([{ plugin: { name: 'stops' }, transformer: stop }], () => undefined)

        const output = parts.map((received) => chain.write(received))

        expect(chain.stop).toEqual(at < parts.length ? { finish: 'filtered' } : undefined)
        expect(output.slice(at).flat()).toEqual(at < parts.length ? [] : output.slice(at).flat())
      }),
    )
  })
})

function holdBack(count: number) {
  const held: ContentPart[] = []
  return {
    write: (received: ContentPart) => {
      held.push(received)
      return held.splice(0, Math.max(0, held.length - count))
    },
    end: () => held.splice(0),
  }
}
