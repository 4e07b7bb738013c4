/** Writes docs/api.md, the list of all public exports: npm run docs:api */
import { readFileSync, writeFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import ts from 'typescript'

const root = fileURLToPath(new URL('..', import.meta.url))

/** The file of the listing. */
export const LISTING: string = `${root}docs/api.md`

/** One public export. */
export interface PublicExport {
  readonly name: string
  readonly kind: 'class' | 'constant' | 'function' | 'interface' | 'type'
  /** The first sentence of its doc comment. */
  readonly doc: string
}

let found: ReadonlyMap<string, readonly PublicExport[]> | undefined

/** Returns the public exports by entry point, such as `sluice/node`, in alphabetical order. */
export function publicExports(): ReadonlyMap<string, readonly PublicExport[]> {
  // The compiler takes seconds.
  return (found ??= findExports())
}

function findExports(): ReadonlyMap<string, readonly PublicExport[]> {
  const entries = entryFiles()
  const { config } = ts.readConfigFile(`${root}tsconfig.json`, (path) => ts.sys.readFile(path)) as {
    readonly config: object
  }
  const { options } = ts.parseJsonConfigFileContent(config, ts.sys, root)
  const program = ts.createProgram([...entries.values()], options)
  const checker = program.getTypeChecker()
  return new Map([...entries].map(([entry, file]) => [entry, exportsOf(program.getSourceFile(file), checker)]))
}

/** Returns the text of docs/api.md. */
export function writeListing(): string {
  const sections = [...publicExports()].map(([entry, exports]) => {
    const rows = exports.map(({ name, kind, doc }) => `| \`${name}\` | ${kind} | ${doc.replaceAll('|', '\\|')} |`)
    return [`## \`${entry}\``, '', '| Name | Kind | Meaning |', '| --- | --- | --- |', ...rows, ''].join('\n')
  })
  return [
    '# Public exports',
    '',
    'All names that the package exports. `npm run docs:api` generates this page from the source.',
    '',
    ...sections,
  ].join('\n')
}

/** Returns the source file of each entry point in package.json. */
function entryFiles(): ReadonlyMap<string, string> {
  const { exports } = JSON.parse(readFileSync(`${root}package.json`, 'utf8')) as { readonly exports: object }
  const names = Object.keys(exports).filter((name) => name !== './package.json')
  return new Map(
    names.map((name) => [
      name === '.' ? 'sluice' : `sluice${name.slice(1)}`,
      `${root}src/${name === '.' ? 'index' : name.slice(2)}.ts`,
    ]),
  )
}

function exportsOf(file: ts.SourceFile | undefined, checker: ts.TypeChecker): readonly PublicExport[] {
  const module = file === undefined ? undefined : checker.getSymbolAtLocation(file)
  if (module === undefined) return []
  return checker
    .getExportsOfModule(module)
    .map((symbol) => exportOf(symbol.name, aliased(symbol, checker), checker))
    .toSorted((a, b) => (a.name < b.name ? -1 : 1))
}

function aliased(symbol: ts.Symbol, checker: ts.TypeChecker): ts.Symbol {
  return (symbol.flags & ts.SymbolFlags.Alias) === 0 ? symbol : checker.getAliasedSymbol(symbol)
}

function exportOf(name: string, symbol: ts.Symbol, checker: ts.TypeChecker): PublicExport {
  const text = ts.displayPartsToString(symbol.getDocumentationComment(checker)).replace(/\s+/g, ' ').trim()
  const [sentence = ''] = text.split(/(?<=[.:])\s(?=[A-Z`])/)
  return { name, kind: kindOf(symbol), doc: sentence.replace(/:$/, '.') }
}

function kindOf({ flags }: ts.Symbol): PublicExport['kind'] {
  if ((flags & ts.SymbolFlags.Class) !== 0) return 'class'
  if ((flags & ts.SymbolFlags.Function) !== 0) return 'function'
  if ((flags & ts.SymbolFlags.Interface) !== 0) return 'interface'
  return (flags & ts.SymbolFlags.TypeAlias) === 0 ? 'constant' : 'type'
}

if (process.argv[1] === fileURLToPath(import.meta.url)) writeFileSync(LISTING, writeListing())
