/**
 * tsx bench/profile.ts SCENARIO [TARGET] [REQUESTS]: prints the CPU time of one scenario by folder, file and function, or
 * with BENCH_PROFILE=allocations the bytes that it allocates. SCENARIO is part of a scenario's name. TARGET is one of its
 * targets (default: the last). Run `npx tsup` first: the profile is of `dist`, mapped back to the sources. It starts after
 * the warm-up and is written to `bench/.build`, where the developer tools of a browser can open it.
 */
import { existsSync, readFileSync } from 'node:fs'
import { SourceMap } from 'node:module'
import { dirname, join, relative } from 'node:path'
import { fileURLToPath } from 'node:url'
import { send } from './load.ts'
import { printTable } from './report.ts'
import { scenarios } from './scenarios.ts'
import { compileServers, startTarget, startUpstream, type TargetName } from './targets.ts'

const TOP = 40
const [kind, unit] = process.env['BENCH_PROFILE'] === 'allocations' ? ['sampling', 'B'] : ['profile', 'µs']
const maps = new Map<string, SourceMap>()
const root = fileURLToPath(new URL('..', import.meta.url))
const [, , scenarioPart = 'small', targetName, requestCount] = process.argv
const scenario = scenarios.find(({ name }) => name.includes(scenarioPart))
if (scenario === undefined) {
  throw new Error(
    `No scenario name contains "${scenarioPart}". Use part of: ${scenarios.map(({ name }) => name).join('; ')}.`,
  )
}
const targetNames: readonly TargetName[] = ['relay', ...scenario.targets]
const name = targetNames.find((candidate) => candidate === (targetName ?? targetNames.at(-1)))
if (name === undefined) throw new Error(`Unknown target "${targetName}". Use one of ${targetNames.join(', ')}.`)
const requests = requestCount === undefined ? 2 * scenario.requests : Number(requestCount)
const path = join(
  root,
  'bench/.build',
  `${scenarioPart.replaceAll(/\W+/g, '-')}.${name.replaceAll(' ', '-')}.cpuprofile`,
)

await compileServers()
const upstream = await startUpstream()
const target = await startTarget(name, upstream.url)
await send(target, scenario, 0, scenario.warmUp)
const before = await target.ask('cpu')
await target.ask(`${kind}:start`)
await send(target, scenario, scenario.warmUp, scenario.warmUp + requests)
await target.ask(`${kind}:stop`, path)
const cpu = (await target.ask('cpu')) - before
target.stop()
upstream.stop()
report(JSON.parse(readFileSync(path, 'utf8')) as Profile)

interface Frame {
  readonly functionName: string
  readonly url: string
  readonly lineNumber: number
  readonly columnNumber: number
}

interface Profile {
  readonly nodes: readonly { readonly id: number; readonly callFrame: Frame; readonly children?: readonly number[] }[]
  readonly samples: readonly number[]
  readonly timeDeltas: readonly number[]
}

interface Location {
  readonly file: string
  readonly functionName: string
}

/** Charged time is self time plus the time of Node, undici, JSON.parse and hashes that a source file calls. */
function report(profile: Profile): void {
  const selfTimes = new Map<number, number>()
  profile.samples.forEach((id, index) => add(selfTimes, id, profile.timeDeltas[index] ?? 0))
  const locations = new Map(profile.nodes.map(({ id, callFrame }) => [id, locationOf(callFrame)]))
  const owners = ownersOf(profile, locations)
  const [files, functions, charged, chargedFunctions, folders] = [0, 1, 2, 3, 4].map(() => new Map<string, number>())
  let busy = 0
  for (const [id, time] of selfTimes) {
    const location = locations.get(id)
    if (location === undefined || isIdle(location)) continue
    busy += time
    add(files, location.file, time)
    add(functions, `${location.file}  ${location.functionName}`, time)
    const owner = owners.get(id) ?? location
    add(charged, owner.file, time)
    add(folders, folderOf(owner.file), time)
    add(chargedFunctions, `${owner.file}  ${owner.functionName}`, time)
  }
  const perRequest = `${(busy / requests).toFixed(1)} ${unit} per request`
  console.log(
    `${scenario?.name}: ${name}, ${requests} requests, ${perRequest} of the main thread; ${(cpu / requests).toFixed(1)} µs CPU with the profiler`,
  )
  printTop('Charged time by folder', folders, busy)
  printTop('Self time by file', files, busy)
  printTop('Self time by function', functions, busy)
  printTop('Charged time by file: self time, and that of Node and packages called from it', charged, busy)
  printTop('Charged time by function', chargedFunctions, busy)
}

/** Returns true for idle time and for the profiler itself, which `dispatch` starts and stops. */
function isIdle({ file, functionName }: Location): boolean {
  return functionName === '(idle)' || (file === '(native)' && functionName === 'dispatch')
}

/** Returns the nearest location in `src/` on the stack of each node, including the node itself. */
function ownersOf({ nodes }: Profile, locations: ReadonlyMap<number, Location>): ReadonlyMap<number, Location> {
  const owners = new Map<number, Location>()
  // Parents precede their children.
  for (const { id, children = [] } of nodes) {
    const location = locations.get(id)
    if (location?.file.startsWith('src/')) owners.set(id, location)
    const owner = owners.get(id)
    if (owner !== undefined) for (const child of children) owners.set(child, owner)
  }
  return owners
}

function printTop(title: string, times: ReadonlyMap<string, number> | undefined, busy: number): void {
  const sorted = [...(times ?? [])].sort(([, a], [, b]) => b - a).slice(0, TOP)
  console.log(`\n${title}`)
  printTable(
    sorted.map(([label, time]) => [
      `${(time / requests).toFixed(2)} ${unit}`.padStart(12),
      `${((100 * time) / busy).toFixed(1)}%`.padStart(7),
      label,
    ]),
  )
}

function add<Key>(sums: Map<Key, number> | undefined, key: Key, amount: number): void {
  sums?.set(key, (sums.get(key) ?? 0) + amount)
}

function locationOf({ functionName, url, lineNumber, columnNumber }: Frame): Location {
  const displayName = functionName === '' ? `(anonymous, line ${lineNumber + 1})` : functionName
  if (url === '') return { file: functionName.startsWith('(') ? functionName : '(native)', functionName: displayName }
  if (!url.startsWith('file:')) return { file: url, functionName: displayName }
  const file = fileURLToPath(url)
  const entry = mapOf(file)?.findEntry(lineNumber, columnNumber)
  if (entry === undefined || !('originalSource' in entry)) return { file: packageOf(file), functionName: displayName }
  const source = relative(root, join(dirname(file), entry.originalSource))
  return {
    file: source,
    functionName: functionName === '' ? `(anonymous, line ${entry.originalLine + 1})` : functionName,
  }
}

/** Returns the first two segments of a path, such as `src/http`. */
function folderOf(file: string): string {
  return file.includes('/') ? dirname(file).split('/').slice(0, 2).join('/') : file
}

/** Returns the path of a file inside its package, such as `undici/lib/core/request.js`. */
function packageOf(file: string): string {
  const [, inPackage] = file.split(/node_modules\/(?!.*node_modules\/)/)
  return inPackage ?? relative(root, file)
}

function mapOf(file: string): SourceMap | undefined {
  const cached = maps.get(file)
  if (cached !== undefined || !existsSync(`${file}.map`)) return cached
  const map = new SourceMap(JSON.parse(readFileSync(`${file}.map`, 'utf8')))
  maps.set(file, map)
  return map
}
