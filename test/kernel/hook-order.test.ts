import { readFileSync } from 'node:fs'
import { describe, expect, it, vi } from 'vitest'
import { createGateway } from '../../src/gateway.ts'
import type * as services from '../../src/kernel/services.ts'
import { collectHooks, type BuiltInPlugin } from '../../src/kernel/services.ts'
import { openai } from '../../src/index.ts'

const { collected } = vi.hoisted(() => ({ collected: new Array<readonly BuiltInPlugin[]>() }))
vi.mock('../../src/kernel/services.ts', async (load) => {
  const actual = await load<typeof services>()
  const collect = (plugins: readonly BuiltInPlugin[]): services.Hooks => {
    collected.push(plugins)
    return actual.collectHooks(plugins)
  }
  return { ...actual, collectHooks: collect }
})

const source = readFileSync(new URL('../../src/gateway.ts', import.meta.url), 'utf8')
const list = /const plugins: readonly BuiltInPlugin\[\] = \[\n([\s\S]*?)\n {2}\]\n/.exec(source)?.[1] ?? ''

describe('the hooks of the built-in plugins', () => {
  it('run in the order that gateway.ts states', async () => {
    const gateway = createGateway({
      providers: [openai({ apiKey: 'sk-test' })],
      plugins: [{ name: 'own', onBudget: () => {}, outbox: { record: () => undefined, deliver: () => {} } }],
    })
    const names = list.split('\n').map(nameOf)
    const plugins = collected.at(-1) ?? []
    const found = new Map<string, string>()
    for (const [index, plugin] of plugins.entries()) {
      for (const hook of Object.keys(plugin)) {
        found.set(hook, [found.get(hook), names[index]].filter((name) => name !== undefined).join(', '))
      }
    }
    found.delete('endpoints')

    expect(names).toHaveLength(plugins.length)
    expect(Object.fromEntries(found)).toEqual(statedOrder())
    await gateway.close()
  })

  it('completeBody and onUnfinished belong to one plugin', () => {
    const plugin: BuiltInPlugin = { onUnfinished: async () => {} }

    expect(collectHooks([{}, plugin]).onUnfinished).toBe(plugin.onUnfinished)
    // The stated order is that of the plugins of a gateway.
    for (const hook of ['completeBody', 'onUnfinished']) expect(statedOrder()[hook]).toMatch(/^[\w-]+$/)
  })
})

/** `...(cache === undefined ? [] : [cache.plugin]),` and `requestLogPlugin(requestLog),` name `cache` and `request-log`. */
function nameOf(line: string): string {
  const [, name = line] = /(\w+?)(?:Plugins?\(|\.plugin\b)/.exec(line) ?? []
  return name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)
}

function statedOrder(): Readonly<Record<string, string>> {
  const rows = source.matchAll(/^ {2}\/\/ {3}(\w+) {2,}(.+)$/gm)
  return Object.fromEntries(Array.from(rows, ([, hook = '', names = '']) => [hook, names]))
}
