import { readFileSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import { canonicalize } from '../../src/plugins/cache/canonical.ts'
import { normalizeText } from '../../src/plugins/cache/cacheability.ts'
import { findDifference } from '../../src/plugins/cache/guard.ts'
import { loadEnglishLexicon } from '../../src/plugins/cache/typos.ts'
import { createWordingSearch } from '../../src/plugins/cache/wording-search.ts'
import { lookupOf } from '../../test/plugins/cache/fixture.ts'
import { REVERSALS } from '../../test/plugins/cache/reversals.ts'
import { seeded, variationsOf } from './variations.ts'

/** Two questions, and whether they have the same meaning. */
export interface Pair {
  readonly left: string
  readonly right: string
  readonly same: boolean
  readonly kind: string
}

export const THRESHOLDS = [0.85, 0.9, 0.95] as const

/** Number of pairs that hit, for one kind of pair, embedder and threshold. */
export interface HitRate {
  readonly kind: string
  readonly same: boolean
  readonly pairs: number
  readonly embedder: 'offline' | 'constant'
  readonly threshold: number
  readonly withoutGuard: number
  readonly withGuard: number
}

interface Judged extends Pair {
  readonly similarity: number
  readonly passes: (threshold: number, similarity: number) => boolean
}

/** Returns the pairs of the data folder, the project's own reversals, and variations of every question. */
export function readPairs(folder: string): readonly Pair[] {
  const given = readFiles(join(folder, 'question-pairs')).map((row): Pair => ({
    left: String(row['a']),
    right: String(row['b']),
    same: row['label'] === 1,
    kind: row['label'] === 1 ? `paraphrase: ${String(row['kind'])}` : `hard negative: ${String(row['kind'])}`,
  }))
  const questions = ['qmsum', 'mtragun'].flatMap((name) =>
    readFiles(join(folder, name)).flatMap((row) => (typeof row['question'] === 'string' ? [row['question']] : [])),
  )
  const random = seeded(7)
  const texts = new Set([...questions, ...given.map((pair) => pair.left)])
  const generated = [...texts].flatMap((left) =>
    variationsOf(left, random).map(({ kind, text }): Pair => ({
      left,
      right: text,
      same: true,
      kind: `generated: ${kind}`,
    })),
  )
  const own = REVERSALS.map(([left, right]): Pair => ({
    left,
    right,
    same: false,
    kind: 'hard negative: own reversals',
  }))
  return [...given, ...own, ...generated]
}

function readFiles(folder: string): readonly Record<string, unknown>[] {
  return readdirSync(folder)
    .filter((name) => name.endsWith('.jsonl') && !name.startsWith('conv'))
    .flatMap((name) => readFileSync(join(folder, name), 'utf8').trim().split('\n'))
    .map((line) => JSON.parse(line) as Record<string, unknown>)
}

/** Returns the number of pairs that hit, with and without the guard, at each threshold. */
export async function hitRates(pairs: readonly Pair[]): Promise<readonly HitRate[]> {
  const lexicon = await loadEnglishLexicon()
  const judge = async (pair: Pair): Promise<Judged> => {
    const forms = [canonicalize(normalizeText(pair.left)), canonicalize(normalizeText(pair.right))] as const
    const search = createWordingSearch()
    await search.add({ ...lookupOf('left', pair.left), form: forms[0] }, 1)
    const [found] = await search.find({ ...lookupOf('right', pair.right), form: forms[1] }, 1)
    const passes = [1, 2].map((typos) => findDifference(...forms, { lexicon, maxTypos: typos }) === undefined)
    return {
      ...pair,
      similarity: found?.similarity ?? 0,
      passes: (threshold, similarity) => similarity >= threshold && passes[similarity >= 0.95 ? 1 : 0] === true,
    }
  }
  const judged = await Promise.all(pairs.map(judge))
  const kinds = groupBy(judged, (pair) => pair.kind)
  return [...kinds].flatMap(([kind, group]) =>
    (['offline', 'constant'] as const).flatMap((embedder) =>
      THRESHOLDS.map((threshold) => rateOf(kind, group, embedder, threshold)),
    ),
  )
}

/** Groups items by name. */
export function groupBy<T>(items: readonly T[], nameOf: (item: T) => string): ReadonlyMap<string, readonly T[]> {
  const groups = new Map<string, T[]>()
  for (const item of items) {
    const group = groups.get(nameOf(item))
    if (group === undefined) groups.set(nameOf(item), [item])
    else group.push(item)
  }
  return groups
}

function rateOf(kind: string, group: readonly Judged[], embedder: 'offline' | 'constant', threshold: number): HitRate {
  const similarity = (pair: Judged): number => (embedder === 'constant' ? 1 : pair.similarity)
  return {
    kind,
    same: group[0]?.same === true,
    pairs: group.length,
    embedder,
    threshold,
    withoutGuard: group.filter((pair) => similarity(pair) >= threshold).length,
    withGuard: group.filter((pair) => pair.passes(threshold, similarity(pair))).length,
  }
}
