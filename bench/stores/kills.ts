/**
 * npm run bench:kills: 4 processes reserve and settle on one store while they are killed with SIGKILL and replaced, 100
 * times per engine (BENCH_KILLS). Fails if a confirmed settlement is missing or any settlement is counted twice.
 */
import { newName, settleUnderKills } from '../../test/support/fleet/scenarios.ts'
import type { StorePlace } from '../../test/support/fleet/open-store.ts'
import { postgresServer, redisCluster, redisServer } from '../../test/support/servers.ts'
import { temporaryDirectory } from '../../test/support/sqlite.ts'

const KILLS = Number(process.env['BENCH_KILLS'] ?? 100)

const directory = temporaryDirectory()
const engines = [
  { engine: 'sqlite', server: { start: async () => directory.path, stop: async () => {} } },
  { engine: 'redis', server: redisServer() },
  { engine: 'cluster', server: redisCluster() },
  { engine: 'postgres', server: postgresServer() },
] as const

let hasFailed = false
for (const { engine, server } of engines) {
  if (server === undefined) continue
  const place: StorePlace = { engine, location: await server.start(), name: newName() }
  const startedAt = performance.now()
  const { reported, logged, tallied, levels } = await settleUnderKills(place, KILLS, { processes: 4, atOnce: 8 })
  const known = new Set(logged)
  const missing = reported.filter((reservationId) => !known.has(reservationId)).length
  const duplicates = logged.length - known.size
  const mismatches = levels.filter(({ spent, held }) => spent !== logged.length || held !== 0).length
  hasFailed ||= missing + duplicates + mismatches > 0 || tallied !== logged.length
  console.log({
    engine,
    kills: KILLS,
    'settlements confirmed': reported.length,
    'in the audit trail': logged.length,
    'in the tallies': tallied,
    'confirmed but missing': missing,
    'counted twice': duplicates,
    'counters that differ': mismatches,
    seconds: Math.round((performance.now() - startedAt) / 1000),
  })
  await server.stop()
}
directory.remove()
process.exit(hasFailed ? 1 : 0)
