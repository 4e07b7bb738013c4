/**
 * npm run bench:kills: 4 processes reserve and settle on one store while processes are killed with SIGKILL, 100 times
 * per engine. Fails when a confirmed settlement is missing, or one is counted twice. BENCH_KILLS sets the number.
 */
import { newName, settleUnderKills } from '../../test/support/fleet/laws.ts'
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

let isWrong = false
for (const { engine, server } of engines) {
  if (server === undefined) continue
  const place: StorePlace = { engine, location: await server.start(), name: newName() }
  const startedAt = performance.now()
  const { reported, logged, tallied, levels } = await settleUnderKills(place, KILLS, { processes: 4, atOnce: 8 })
  const known = new Set(logged)
  const missing = reported.filter((reservationId) => !known.has(reservationId)).length
  const twice = logged.length - known.size
  const apart = levels.filter(({ spent, held }) => spent !== logged.length || held !== 0).length
  isWrong ||= missing + twice + apart > 0 || tallied !== logged.length
  console.log({
    engine,
    kills: KILLS,
    'settlements confirmed': reported.length,
    'in the audit': logged.length,
    'in the tallies': tallied,
    'confirmed, then missing': missing,
    'counted twice': twice,
    'counters that differ': apart,
    seconds: Math.round((performance.now() - startedAt) / 1000),
  })
  await server.stop()
}
directory.remove()
process.exit(isWrong ? 1 : 0)
