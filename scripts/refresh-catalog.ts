/**
 * Replaces the models and prices of `src/providers/models/vendors.json` by those of a price file of LiteLLM or models.dev:
 *
 *     npm run refresh:catalog -- api.json 2026-08-18 https://models.dev && npm run format
 *
 * `npm run refresh:catalog -- --check` names each built-in price older than 60 days, without a network.
 */
import { readFileSync, writeFileSync } from 'node:fs'
import { argv, exit, stdout } from 'node:process'
import { fileURLToPath } from 'node:url'
import { ANTHROPIC_MODELS, OPENAI_MODELS } from '../src/providers/main-providers.ts'
import { knownModelsOf, priceList } from '../src/providers/vendors.ts'

const VENDORS = ['gemini', 'groq', 'mistral', 'deepseek', 'xai', 'together', 'fireworks', 'cerebras']
const target = fileURLToPath(new URL('../src/providers/models/vendors.json', import.meta.url))

/** Returns the content of the file. The reader adds `family` and `pricedAt`. */
export function catalogOf(file: unknown, pricedAt: string, source: string): object {
  const prices = priceList(file, { pricedAt })
  const models = VENDORS.map((vendor) => {
    const rows = prices.applyTo([], vendor)
    return [vendor, rows.map(({ family: _family, pricedAt: _pricedAt, ...row }) => row)] as const
  })
  return { source, pricedAt, models: Object.fromEntries(models) }
}

const MAX_AGE_DAYS = 60

/** Returns a line for each built-in price that is older than 60 days. */
export function stalePrices(now: number): readonly string[] {
  const vendors = VENDORS.map((vendor) => [vendor, knownModelsOf(vendor)] as const)
  const all = [['openai', OPENAI_MODELS] as const, ['anthropic', ANTHROPIC_MODELS] as const, ...vendors]
  const oldest = now - MAX_AGE_DAYS * 86_400_000
  return all.flatMap(([vendor, models]) =>
    models
      .filter((model) => !(Date.parse(model.pricedAt) >= oldest))
      .map((model) => `${vendor}/${model.id}: price of ${model.pricedAt}`),
  )
}

const [path, pricedAt, source] = argv.slice(2)
if (argv[1] === fileURLToPath(import.meta.url)) {
  if (path === '--check') {
    const stale = stalePrices(Date.now())
    stdout.write(`${[...stale, `${stale.length} prices are older than ${MAX_AGE_DAYS} days.`].join('\n')}\n`)
    exit(stale.length > 0 ? 1 : 0)
  }
  if (path === undefined || pricedAt === undefined || source === undefined) {
    stdout.write('Usage: npm run refresh:catalog -- FILE YYYY-MM-DD SOURCE\n')
    exit(1)
  }
  const catalog = catalogOf(JSON.parse(readFileSync(path, 'utf8')), pricedAt, source)
  writeFileSync(target, `${JSON.stringify(catalog)}\n`)
}
