import type { BuiltInPlugin } from '../../kernel/services.ts'
import type { RequestLog } from './request-log.ts'

/** Writes a log record of each request. */
export function requestLogPlugin(log: RequestLog): BuiltInPlugin {
  return { onEnd: log.write }
}
