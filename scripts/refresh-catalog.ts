/**
 * Writes the models and prices of `src/providers/vendor-models.ts` anew from a price file of LiteLLM or models.dev:
 *
 *     npm run refresh:catalog -- api.json 2026-08-18 https://models.dev
 */
import { readFileSync, writeFileSync } from 'node:fs'
import { argv, exit, stdout } from 'node:process'
import { fileURLToPath } from 'node:url'
import type { KnownModel } from '../src/providers/known-model.ts'
import { priceList } from '../src/providers/price-list.ts'

const VENDORS = ['gemini', 'groq', 'mistral', 'deepseek', 'xai', 'together', 'fireworks', 'cerebras']
const target = fileURLToPath(new URL('../src/providers/vendor-models.ts', import.meta.url))
const START = '// ─── Written by scripts/refresh-catalog.ts ───'

/** One model as a row: id, context window, maximum output, prices per million tokens. */
function rowOf({ id, contextWindow, maxOutputTokens, price }: KnownModel): string {
  const { input, output, cacheRead, long } = price
  const longRow = long && [
    long.above,
    long.input,
    long.output,
    ...(long.cacheRead === undefined ? [] : [long.cacheRead]),
  ]
  const rates = [input, output, ...(cacheRead === undefined && longRow === undefined ? [] : [cacheRead ?? input])]
  return JSON.stringify([id, contextWindow, maxOutputTokens, ...rates, ...(longRow === undefined ? [] : [longRow])])
}

/** The text of the table, one row per model. */
export function writeTable(file: unknown, pricedAt: string, source: string): string {
  const prices = priceList(file, { pricedAt })
  const tables = VENDORS.map((vendor) => {
    const rows = prices.over([], vendor).map((model) => `    ${rowOf(model)},\n`)
    return `  ${vendor}: [\n${rows.join('')}  ],\n`
  })
  return [
    `${START}\n`,
    `/** The source of the prices below: ${source}. */`,
    `const PRICED_AT = '${pricedAt}'\n`,
    `const ROWS: Readonly<Record<string, readonly Row[]>> = {\n${tables.join('')}}\n`,
  ].join('\n')
}

const [path, pricedAt, source] = argv.slice(2)
if (argv[1] === fileURLToPath(import.meta.url)) {
  if (path === undefined || pricedAt === undefined || source === undefined) {
    stdout.write('Usage: npm run refresh:catalog -- FILE YYYY-MM-DD SOURCE\n')
    exit(1)
  }
  const [kept = ''] = readFileSync(target, 'utf8').split(START)
  writeFileSync(target, kept + writeTable(JSON.parse(readFileSync(path, 'utf8')), pricedAt, source))
}
