import { writeFileSync } from 'node:fs'
import { Session } from 'node:inspector/promises'
import { GCProfiler, getHeapStatistics } from 'node:v8'

/** Queries by name. Servers add their own. */
export const queries = new Map<string, (argument: string) => unknown>([
  ['cpu', cpuMicroseconds],
  ['heap', heapBytes],
  ['allocations:start', startAllocations],
  ['allocations:stop', stopAllocations],
  ['profile:start', startProfile],
  ['profile:stop', stopProfile],
  ['sampling:start', startSampling],
  ['sampling:stop', stopSampling],
])

interface Query {
  readonly id: number
  readonly name: string
  readonly argument: string
}

/** Answers queries of the benchmark about this process. The process ends with the benchmark. */
export function responseQueries(): void {
  process.on('message', async ({ id, name, argument }: Query) => {
    const value = await queries.get(name)?.(argument)
    process.send?.({ id, value })
  })
  process.on('disconnect', () => process.exit(0))
}

/** Returns the user and system time of all threads. */
function cpuMicroseconds(): number {
  const { user, system } = process.cpuUsage()
  return user + system
}

/** Returns the bytes in use after two full collections. The second one frees what finalizers of the first released. */
async function heapBytes(): Promise<number> {
  for (let pass = 0; pass < 2; pass++) {
    globalThis.gc?.()
    await new Promise((resolve) => setImmediate(resolve))
  }
  return process.memoryUsage().heapUsed
}

let collections: GCProfiler | undefined
let usedAtStart = 0

function startAllocations(): void {
  collections = new GCProfiler()
  collections.start()
  usedAtStart = getHeapStatistics().used_heap_size
}

/** Returns the exact number of bytes allocated since the start, summed over the intervals between collections. */
function stopAllocations(): number {
  const usedAtEnd = getHeapStatistics().used_heap_size
  const found = collections?.stop().statistics ?? []
  let left = usedAtStart
  let allocated = 0
  for (const { beforeGC, afterGC } of found) {
    allocated += beforeGC.heapStatistics.usedHeapSize - left
    left = afterGC.heapStatistics.usedHeapSize
  }
  return allocated + usedAtEnd - left
}

const session = new Session()

async function startProfile(): Promise<void> {
  session.connect()
  await session.post('Profiler.enable')
  await session.post('Profiler.setSamplingInterval', { interval: 200 })
  await session.post('Profiler.start')
}

/** Writes the profile to the given path. */
async function stopProfile(path: string): Promise<void> {
  const { profile } = await session.post('Profiler.stop')
  session.disconnect()
  writeFileSync(path, JSON.stringify(profile))
}

async function startSampling(): Promise<void> {
  session.connect()
  const flags = { includeObjectsCollectedByMajorGC: true, includeObjectsCollectedByMinorGC: true }
  await session.post('HeapProfiler.startSampling', { samplingInterval: 2048, ...flags })
}

interface AllocationNode {
  readonly callFrame: object
  readonly selfSize: number
  readonly children: readonly AllocationNode[]
}

/** Writes the allocations by call stack as a CPU profile in which times are bytes. */
async function stopSampling(path: string): Promise<void> {
  const { profile } = await session.post('HeapProfiler.stopSampling')
  session.disconnect()
  const nodes: object[] = []
  const samples: number[] = []
  const timeDeltas: number[] = []
  /** Returns the id of the node. */
  const visit = ({ callFrame, selfSize, children }: AllocationNode): number => {
    const id = nodes.length
    const node = { id, callFrame, children: [] as readonly number[] }
    nodes.push(node)
    samples.push(id)
    timeDeltas.push(selfSize)
    node.children = children.map(visit)
    return id
  }
  visit(profile.head)
  writeFileSync(path, JSON.stringify({ nodes, samples, timeDeltas }))
}
