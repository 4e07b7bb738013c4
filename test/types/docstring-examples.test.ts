import { readdirSync, readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import ts from 'typescript'
import { describe, expect, it } from 'vitest'
import { IS_FULL } from '../support/full.ts'

const root = fileURLToPath(new URL('../..', import.meta.url))
const entries = readdirSync(`${root}src`)
  .filter((name) => name.endsWith('.ts') && name !== 'gateway.ts' && name !== 'options.ts')
  .map((name) => `${root}src/${name}`)

/** What the examples use besides the exports of the package, declared for the examples that do not declare it. */
const CONTEXT: Readonly<Record<string, string>> = {
  gateway: `declare const gateway: import('sluice').Gateway`,
  provider: `declare const provider: import('sluice/provider').Provider`,
  response: `declare const response: Response`,
  app: `declare const app: import('express').Express & import('fastify').FastifyInstance`,
  pool: `declare const pool: import('pg').Pool`,
  Redis: `import { Redis } from 'ioredis'`,
  DatabaseSync: `declare const DatabaseSync: new (path: string) => import('sluice/sqlite').SqliteDatabase`,
  createServer: `import { createServer } from 'node:http'`,
  readFile: `import { readFile } from 'node:fs/promises'`,
  call: `declare const call: import('sluice/provider').ProviderCall`,
  socket: `declare const socket: { close(): void }`,
  quota: `declare const quota: import('sluice/store').Quota | undefined`,
  bytes: `declare const bytes: number`,
  providers: `declare const providers: readonly import('sluice').Provider[]`,
  fake: `declare const fake: { readonly url: string }`,
  mine: `declare const mine: (options: { readonly baseUrl: string }) => import('sluice').Provider`,
  myStore: `declare const myStore: (options: { readonly now: () => number }) => import('sluice/store').Store`,
  myIndex: `declare const myIndex: (options: { readonly now: () => number }) => import('sluice/store').VectorIndex`,
  myResponses: `declare const myResponses: () => import('sluice/store').ResponseStore`,
  myEmbedder: `declare const myEmbedder: () => import('sluice').Embedder`,
  echo: `declare const echo: () => import('sluice').Provider`,
  sendMail: `declare const sendMail: (mail: { readonly id: string; readonly text: string }) => Promise<void>`,
  queue: `declare const queue: { sendBatch(messages: readonly { readonly id: string; readonly body: string }[]): Promise<void> }`,
  db: `declare const db: { query(sql: string, values: readonly unknown[]): Promise<void> }`,
  store: `declare const store: import('sluice').Store`,
  stripeIds: `declare const stripeIds: ReadonlyMap<string | undefined, string>`,
  request: `declare const request: Request`,
  secret: `declare const secret: string`,
  apiKey: `declare const apiKey: string`,
  redactEmails: `declare const redactEmails: () => import('sluice').Plugin`,
  toAsyncIterable: `declare const toAsyncIterable: <T>(values: Iterable<T>) => AsyncIterable<T>`,
  ...Object.fromEntries(
    ['afterEach', 'beforeEach', 'describe', 'expect', 'it'].map((name) => [name, `import { ${name} } from 'vitest'`]),
  ),
}

interface Documented {
  readonly name: string
  readonly isFunction: boolean
  readonly description: string
  readonly examples: readonly string[]
}

const config = ts.getParsedCommandLineOfConfigFile(
  `${root}tsconfig.json`,
  {},
  {
    ...ts.sys,
    onUnRecoverableConfigFileDiagnostic: ({ messageText }) => {
      throw new Error(ts.flattenDiagnosticMessageText(messageText, '\n'))
    },
  },
)
const options: ts.CompilerOptions = { ...config?.options, noUnusedLocals: false, isolatedDeclarations: false }
// Compiling the sources takes 10 seconds.
const program = ts.createProgram(IS_FULL ? entries : [], options)
const checker = program.getTypeChecker()
const specifiers = new Map<string, string>()
const documented = IS_FULL ? entries.flatMap(documentedExports) : []
if (!IS_FULL) process.stdout.write('Skipped: the examples in doc comments and guides. Set FULL_TESTS=1.\n')

function documentedExports(entry: string): readonly Documented[] {
  const source = program.getSourceFile(entry)
  const module = source && checker.getSymbolAtLocation(source)
  if (module === undefined) return []
  const subpath = entry.slice(entry.lastIndexOf('/') + 1, -'.ts'.length)
  return checker.getExportsOfModule(module).flatMap((exported) => {
    if (specifiers.has(exported.name)) return []
    specifiers.set(exported.name, subpath === 'index' ? 'sluice' : `sluice/${subpath}`)
    const symbol = exported.flags & ts.SymbolFlags.Alias ? checker.getAliasedSymbol(exported) : exported
    const declaration = symbol.declarations?.[0]
    if (declaration === undefined) return []
    const members = ts.isInterfaceDeclaration(declaration) ? declaration.members : []
    const nodes: readonly ts.Node[] = [declaration, ...members]
    return [
      {
        name: exported.name,
        isFunction: ts.isFunctionDeclaration(declaration) || ts.isClassDeclaration(declaration),
        description: ts.displayPartsToString(symbol.getDocumentationComment(checker)),
        examples: nodes.flatMap(examplesOf),
      },
    ]
  })
}

function examplesOf(node: ts.Node): readonly string[] {
  return ts
    .getJSDocTags(node)
    .filter(({ tagName }) => tagName.text === 'example')
    .map(({ comment }) => ts.getTextOfJSDocComment(comment) ?? '')
}

/** Returns the example as a module that imports or declares all that it uses. */
function moduleOf(text: string): string {
  const code = text.replaceAll(/^import .* from '\.{1,2}\/.*'$/gm, '')
  const source = ts.createSourceFile('example.ts', code, ts.ScriptTarget.Latest, true)
  const declared = new Set<string>()
  const used = new Set<string>()
  const visit = (node: ts.Node): void => {
    if (ts.isVariableDeclaration(node) || ts.isBindingElement(node) || ts.isParameter(node)) {
      if (ts.isIdentifier(node.name)) declared.add(node.name.text)
    }
    if (ts.isImportSpecifier(node) || ts.isFunctionDeclaration(node)) {
      if (node.name !== undefined) declared.add(node.name.text)
    }
    if (ts.isIdentifier(node)) used.add(node.text)
    ts.forEachChild(node, visit)
  }
  visit(source)
  const needed = [...used].filter((name) => !declared.has(name))
  const lines = needed.flatMap((name) => {
    const context = CONTEXT[name]
    if (context !== undefined) return [context]
    const specifier = specifiers.get(name)
    return specifier === undefined ? [] : [`import { ${name} } from '${specifier}'`]
  })
  return `${lines.join('\n')}\n${code}\nexport {}\n`
}

function problemsOf(modules: ReadonlyMap<string, string>): readonly string[] {
  const host = ts.createCompilerHost(options, true)
  const { getSourceFile, fileExists, readFile } = host
  host.fileExists = (name) => modules.has(name) || fileExists(name)
  host.readFile = (name) => modules.get(name) ?? readFile(name)
  host.getSourceFile = (name, ...rest) => {
    const text = modules.get(name)
    const known = text === undefined ? program.getSourceFile(name) : undefined
    return text === undefined ? (known ?? getSourceFile(name, ...rest)) : ts.createSourceFile(name, text, rest[0], true)
  }
  const compiled = ts.createProgram([...modules.keys()], { ...options, verbatimModuleSyntax: false }, host)
  return [...modules.keys()].flatMap((name) =>
    ts.getPreEmitDiagnostics(compiled, compiled.getSourceFile(name)).map(({ messageText, file, start = 0 }) => {
      const line = file?.getLineAndCharacterOfPosition(start).line ?? 0
      return `${name.slice(root.length)}: ${file?.text.split('\n')[line]}: ${ts.flattenDiagnosticMessageText(messageText, ' ')}`
    }),
  )
}

/** Pages whose code is complete without the code of the reader's own project. */
const PAGES = ['docs/guides/write-a-provider.md', 'docs/guides/write-a-store.md', 'docs/guides/write-a-plugin.md']

describe.runIf(IS_FULL)('the guides for ports', () => {
  it.each(PAGES)('%s has code that compiles', (page) => {
    const blocks = [...readFileSync(`${root}${page}`, 'utf8').matchAll(/```ts\n([\s\S]*?)```/g)]
    const modules = blocks.map(
      ([, code = ''], index) => [`${root}docs/guides/block-${index}.ts`, moduleOf(code)] as const,
    )

    expect(modules.length).toBeGreaterThan(0)
    expect(problemsOf(new Map(modules))).toEqual([])
  })
})

describe.runIf(IS_FULL)('the doc comments of the public entries', () => {
  it('describe every export', () => {
    expect(documented.filter(({ description }) => description === '').map(({ name }) => name)).toEqual([])
  })

  it('have an example for every function and class', () => {
    const missing = documented.filter(({ isFunction, examples }) => isFunction && examples.length === 0)

    expect(missing.map(({ name }) => name)).toEqual([])
  })

  it('have examples that compile', () => {
    const modules = documented.flatMap(({ name, examples }) =>
      examples.map((code, index) => [`${root}test/types/example-${name}-${index}.ts`, moduleOf(code)] as const),
    )

    expect(modules.length).toBeGreaterThan(39)
    expect(problemsOf(new Map(modules))).toEqual([])
  })
})
