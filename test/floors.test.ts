import { readdirSync, readFileSync } from 'node:fs'
import { dirname, join, relative, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import ts from 'typescript'
import { describe, expect, it } from 'vitest'

const root = fileURLToPath(new URL('..', import.meta.url))
const source = join(root, 'src')

const ground = ['formats', 'tokens', 'billing', 'governance', 'http', 'streams']
const belowPlugins = ['core', 'kernel', 'upstream', 'providers', 'stores', ...ground]

/** Folders that each folder may import besides itself. The top-level files of src may import everything. */
const floors: Readonly<Record<string, readonly string[]>> = {
  core: [],
  // Chosen by the package's import conditions (`#hash`); no other module imports it by its path.
  platform: [],
  ...Object.fromEntries([...ground, 'stores', 'embedder'].map((folder) => [folder, ['core']])),
  // The command line, which runs on Node.js.
  cli: ['core', 'stores', 'plugins/reconcile'],
  // Published tests of the ports.
  testing: ['core', 'tokens', 'providers', 'plugins/cache'],
  // Calls to an upstream: attempts, failures and the translation of its response.
  upstream: ['core', ...ground],
  providers: ['core', 'upstream', ...ground],
  // The way of every request. Knows no feature, and is given its store and its providers through ports.
  kernel: ['core', 'upstream', ...ground],
  // No plugin imports another plugin.
  ...Object.fromEntries(pluginFolders().map((folder) => [folder, belowPlugins])),
}

/** Folders that receive the clock, randomness and I/O as parameters. */
const pureFolders = ['core', 'formats', 'plugins/savings', 'billing', 'plugins/cache']
const impureWords = ['Date.now', 'fetch(', 'process.', 'Math.random', 'setTimeout', 'console.']

/** The two top-level files of src that wire the parts together. The others are public entries. */
const wiring = ['gateway.ts', 'options.ts']

describe('the layers', () => {
  it('every folder has a layer', () => {
    const folders = new Set(files(source).map(folderOf))

    expect([...folders].filter((folder) => folder !== '' && floors[folder] === undefined)).toEqual([])
  })

  it('a module imports only from lower layers, including types', () => {
    const wrong = files(source).flatMap((file) => {
      const folder = folderOf(file)
      const allowed = new Set([folder, ...(floors[folder] ?? [])])
      return folder === ''
        ? []
        : ownImports(file)
            .filter((target) => !allowed.has(folderOf(target)))
            .map(arrowFrom(file))
    })

    expect(wrong).toEqual([])
  })

  it('modules have no import cycles, including types', () => {
    expect(circles(new Map(files(source).map((file) => [file, ownImports(file)])))).toEqual([])
  })

  it('the search finds an import cycle', () => {
    const graph = new Map([
      ['/a', ['/b', '/d']],
      ['/b', ['/c']],
      ['/c', ['/a']],
      ['/d', []],
    ])

    expect(circles(graph)).toEqual([['/a', '/b', '/c', '/a']])
  })

  it.each(pureFolders)('%s uses no clock, randomness, network or process', (folder) => {
    const found = files(join(source, folder)).flatMap((file) => {
      const found = impureWords.filter((word) => readFileSync(file, 'utf8').includes(word))
      // Removing the comments takes long.
      const code = found.length === 0 ? '' : withoutComments(file)
      return found.filter((word) => code.includes(word)).map((word) => `${relative(root, file)}: ${word}`)
    })

    expect(found).toEqual([])
  })

  it('the core imports no modules and no packages', () => {
    const found = files(join(source, 'core')).flatMap((file) =>
      imports(file)
        .filter((name) => !name.startsWith('./'))
        .map(arrowFrom(file)),
    )

    expect(found).toEqual([])
  })

  it('only the transports, the hash, the local embedder, the Node adapters and the command line import Node modules', () => {
    const found = files(source).filter((file) => imports(file).some((name) => /^node:|^undici$/.test(name)))
    const allowed =
      /^src\/(http\/(node-|transport-undici)|platform\/hash-node|embedder\/|cli\/|(cli|node|express|fastify)\.ts$)/

    expect(found.map((file) => relative(root, file)).filter((file) => !allowed.test(file))).toEqual([])
  })
})

describe('the public entries', () => {
  const entries = files(source).filter((file) => folderOf(file) === '' && !wiring.includes(relative(source, file)))

  it.each(entries.map((file) => relative(root, file)))('%s contains no logic', (name) => {
    expect(branchesOf(parse(join(root, name)))).toEqual([])
  })

  it.each(entries.map((file) => relative(root, file)))('%s lists its exports by name', (name) => {
    const stars = parse(join(root, name)).statements.filter(
      (statement) => ts.isExportDeclaration(statement) && statement.exportClause === undefined,
    )

    expect(stars).toEqual([])
  })

  it('the examples import public entries only', () => {
    const wrong = files(join(root, 'examples')).flatMap((file) =>
      ownImports(file)
        .filter((target) => target.startsWith(source) && folderOf(target) !== '')
        .map(arrowFrom(file)),
    )

    expect(wrong).toEqual([])
  })
})

describe('the tests', () => {
  it('use fast-check through support/properties.ts, which prints how to repeat a failure', () => {
    const found = testSources(join(root, 'test')).filter((file) =>
      /^import .* from 'fast-check'/m.test(readFileSync(file, 'utf8')),
    )

    expect(found.map((file) => relative(root, file))).toEqual(['test/support/properties.ts'])
  })
})

/** Skips the packages that tests of clients install. */
function testSources(folder: string): readonly string[] {
  return readdirSync(folder, { withFileTypes: true }).flatMap((entry) => {
    const path = join(folder, entry.name)
    if (entry.isDirectory()) return entry.name === 'node_modules' || entry.name === '.venv' ? [] : testSources(path)
    return entry.name.endsWith('.ts') ? [path] : []
  })
}

function files(folder: string): readonly string[] {
  return readdirSync(folder, { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.ts'))
    .map((name) => join(folder, name))
    .toSorted()
}

/** Returns the folder of a file below src, with its plugin, or the empty string for a top-level file. */
function folderOf(file: string): string {
  const [folder, plugin, ...rest] = relative(source, file).split(/[\\/]/)
  if (folder === undefined || plugin === undefined) return ''
  return folder === 'plugins' && rest.length > 0 ? `plugins/${plugin}` : folder
}

function pluginFolders(): readonly string[] {
  return readdirSync(join(source, 'plugins')).map((name) => `plugins/${name}`)
}

function parse(file: string): ts.SourceFile {
  return ts.createSourceFile(file, readFileSync(file, 'utf8'), ts.ScriptTarget.Latest, true)
}

/** Returns all imports and re-exports of a file: values, types and lazy imports. */
function imports(file: string): readonly string[] {
  return ts.preProcessFile(readFileSync(file, 'utf8'), true, true).importedFiles.map(({ fileName }) => fileName)
}

function ownImports(file: string): readonly string[] {
  return imports(file)
    .filter((name) => name.startsWith('.'))
    .map((name) => resolve(dirname(file), name))
}

function arrowFrom(file: string): (target: string) => string {
  return (target) => `${relative(root, file)} -> ${target.startsWith('/') ? relative(root, target) : target}`
}

function withoutComments(file: string): string {
  const options = { removeComments: true, target: ts.ScriptTarget.ESNext, verbatimModuleSyntax: true }
  return ts.transpileModule(readFileSync(file, 'utf8'), { compilerOptions: options }).outputText
}

/** Returns each import cycle once, starting at the module where the search closed the cycle. */
function circles(graph: ReadonlyMap<string, readonly string[]>): readonly (readonly string[])[] {
  const found: (readonly string[])[] = []
  const finished = new Set<string>()
  const visit = (file: string, path: readonly string[]): void => {
    const start = path.indexOf(file)
    if (start !== -1)
      found.push([...path.slice(start), file].map((name) => (name.startsWith(root) ? relative(root, name) : name)))
    if (start !== -1 || finished.has(file)) return
    for (const target of graph.get(file) ?? []) visit(target, [...path, file])
    finished.add(file)
  }
  for (const file of graph.keys()) visit(file, [])
  return found
}

function branchesOf(node: ts.Node): readonly string[] {
  const isBranch =
    ts.isIfStatement(node) ||
    ts.isIterationStatement(node, false) ||
    ts.isSwitchStatement(node) ||
    ts.isTryStatement(node) ||
    ts.isConditionalExpression(node) ||
    ts.isClassLike(node)
  const inner: string[] = []
  ts.forEachChild(node, (child) => void inner.push(...branchesOf(child)))
  return isBranch ? [node.getText().slice(0, 80), ...inner] : inner
}
