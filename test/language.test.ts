import { readdirSync, readFileSync } from 'node:fs'
import { join, relative } from 'node:path'
import { fileURLToPath } from 'node:url'
import ts from 'typescript'
import { describe, expect, it } from 'vitest'

const root = fileURLToPath(new URL('..', import.meta.url))
/** The dozen words that came back most often. */
const BANNED =
  /\b(?:whoever|nobody|anew|shall|save that|told|stands|whatever|\w*behaviour\w*|\w*colour\w*|\w*summaris\w*|\w*normalis\w*)\b/i
/** Files whose words are data: English that callers write, prompts of small models, and names in tests of stores. */
const DATA: ReadonlySet<string> = new Set([
  'src/plugins/cache/english.ts',
  'src/plugins/savings/conversation.ts',
  'src/plugins/savings/keywords.ts',
  'src/plugins/savings/summary.ts',
  'src/testing/cache-contracts.ts',
  'bench/quality/answer-questions.ts',
])

function filesIn(folder: string, endings: readonly string[]): readonly string[] {
  return readdirSync(join(root, folder), { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() && endings.some((ending) => entry.name.endsWith(ending)))
    .map((entry) => relative(root, join(entry.parentPath, entry.name)).replaceAll('\\', '/'))
    .filter((path) => !path.includes('/.build/') && !path.includes('node_modules'))
}

const prose = [
  ...['src', 'bench', 'examples'].flatMap((folder) => filesIn(folder, ['.ts', '.md'])),
  ...filesIn('docs', ['.md']),
  'README.md',
].filter((path) => !DATA.has(path))

describe('the language', () => {
  it('has none of the banned words in comments, messages, docs, benches and examples', () => {
    const found = prose.flatMap((path) =>
      readFileSync(join(root, path), 'utf8')
        .split('\n')
        .flatMap((line, at) => (BANNED.test(line) ? [`${path}:${at + 1}: ${line.trim()}`] : [])),
    )
    expect(found).toEqual([])
  })

  it('finds a banned word', () => {
    expect(
      ['It stands there, told by nobody.', 'the behaviour', 'a summariser'].every((text) => BANNED.test(text)),
    ).toBe(true)
  })

  it('exported type names are unique', () => {
    const files = new Map<string, string[]>()
    for (const path of filesIn('src', ['.ts'])) {
      for (const name of typesExportedBy(path)) files.set(name, [...(files.get(name) ?? []), path])
    }
    expect([...files].filter(([, paths]) => paths.length > 1)).toEqual([])
  })
})

/** The names of the types that a file declares and exports; re-exports are not declarations. */
function typesExportedBy(path: string): readonly string[] {
  const { statements } = ts.createSourceFile(path, readFileSync(join(root, path), 'utf8'), ts.ScriptTarget.Latest)
  return statements.flatMap((statement) => {
    const isType =
      ts.isInterfaceDeclaration(statement) || ts.isTypeAliasDeclaration(statement) || ts.isClassDeclaration(statement)
    const isExported = isType && statement.modifiers?.some(({ kind }) => kind === ts.SyntaxKind.ExportKeyword) === true
    return isExported && statement.name !== undefined ? [statement.name.text] : []
  })
}
