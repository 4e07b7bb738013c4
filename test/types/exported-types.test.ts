import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import ts from 'typescript'
import { expect, it } from 'vitest'
import { IS_FULL } from '../support/full.ts'

const root = fileURLToPath(new URL('../..', import.meta.url))

it.runIf(IS_FULL)(
  'every type that a public export mentions is exported, from sluice or from a subpath',
  () => {
    expect(mentionedButNotExported()).toEqual([])
  },
  60_000,
)

/** Returns each type of src that an export refers to, directly or through other types, and that no entry exports. */
function mentionedButNotExported(): readonly string[] {
  const entries = entryFiles()
  const { config } = ts.readConfigFile(join(root, 'tsconfig.json'), (path) => ts.sys.readFile(path)) as {
    readonly config: object
  }
  const program = ts.createProgram([...entries], ts.parseJsonConfigFileContent(config, ts.sys, root).options)
  const checker = program.getTypeChecker()
  const resolved = (symbol: ts.Symbol): ts.Symbol =>
    (symbol.flags & ts.SymbolFlags.Alias) === 0 ? symbol : checker.getAliasedSymbol(symbol)
  const exported = new Set<ts.Symbol>()
  for (const entry of entries) {
    const file = program.getSourceFile(entry)
    const module = file && checker.getSymbolAtLocation(file)
    for (const symbol of module === undefined ? [] : checker.getExportsOfModule(module)) exported.add(resolved(symbol))
  }

  const missing = new Set<string>()
  const visited = new Set<ts.Symbol>()
  const visitDeclarations = (symbol: ts.Symbol): void => {
    if (visited.has(symbol)) return
    visited.add(symbol)
    for (const declaration of symbol.declarations ?? []) publicNodes(declaration).forEach(visitNode)
  }
  const visitNode = (node: ts.Node): void => {
    const name = ts.isTypeReferenceNode(node)
      ? node.typeName
      : ts.isExpressionWithTypeArguments(node)
        ? node.expression
        : undefined
    const found = name && checker.getSymbolAtLocation(name)
    const symbol = found && resolved(found)
    if (symbol !== undefined && isOwnType(symbol)) {
      if (!exported.has(symbol)) missing.add(symbol.name)
      visitDeclarations(symbol)
    }
    ts.forEachChild(node, visitNode)
  }
  exported.forEach(visitDeclarations)
  return [...missing].toSorted()
}

function entryFiles(): readonly string[] {
  const { exports } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as { readonly exports: object }
  return Object.keys(exports)
    .map((name) => join(root, 'src', `${name === '.' ? 'index' : name.slice(2)}.ts`))
    .filter((file) => existsSync(file))
}

function isOwnType({ flags, declarations = [] }: ts.Symbol): boolean {
  if ((flags & ts.SymbolFlags.TypeParameter) !== 0) return false
  return declarations.some((declaration) => declaration.getSourceFile().fileName.startsWith(join(root, 'src')))
}

/** Returns the parts of a declaration that its users see: no bodies and no private members. */
function publicNodes(declaration: ts.Node): readonly ts.Node[] {
  if (ts.isFunctionLike(declaration))
    return [...declaration.parameters, ...(declaration.type ? [declaration.type] : [])]
  if (ts.isVariableDeclaration(declaration) || ts.isPropertyDeclaration(declaration)) {
    return declaration.type === undefined ? [] : [declaration.type]
  }
  if (ts.isClassDeclaration(declaration)) {
    const members = declaration.members.filter(({ name }) => name === undefined || !ts.isPrivateIdentifier(name))
    return [...(declaration.heritageClauses ?? []), ...members.flatMap(publicNodes)]
  }
  return ts.isInterfaceDeclaration(declaration) || ts.isTypeAliasDeclaration(declaration) ? [declaration] : []
}
