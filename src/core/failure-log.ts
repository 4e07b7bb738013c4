import type { LoggedCause } from './logged-cause.ts'

/** The fields of an `EventLogRecord` that are printed first or last. The others are printed as `name=value`. */
interface PrintedFailure {
  readonly timestamp: string
  readonly service: string
  readonly event: string
  readonly cause?: LoggedCause
}

const MAX_LINES = 10
const INTERVAL_MS = 60_000
const MAX_LINE_LENGTH = 1_000

/** Prints failures without secrets, one line each. A store outage must not fill the disk, so lines are limited. */
export function createStderrLog(write: (line: string) => void): (failure: PrintedFailure) => void {
  let startedAt = 0
  let lines = 0
  let suppressed = 0
  return (failure) => {
    const at = Date.parse(failure.timestamp)
    // A clock can be set back.
    if (at - startedAt >= INTERVAL_MS || at < startedAt) {
      if (suppressed > 0) write(`sluice: ${suppressed} further errors were not printed. Set the option log to see all.`)
      startedAt = at
      lines = suppressed = 0
    }
    if (lines === MAX_LINES) suppressed += 1
    else {
      lines += 1
      write(lineOf(failure))
    }
  }
}

function lineOf({ timestamp, event, service, cause, ...others }: PrintedFailure): string {
  const shown = Object.entries(others).flatMap(([name, value]) =>
    name === 'level' ? [] : [`${name}=${String(value)}`],
  )
  const { name = '', message = '', code, stack = '' } = cause ?? {}
  // A message can have lines that begin with `at`, too.
  const place = /^ {4}at .+:\d+:\d+\)?$/m.exec(stack)?.[0].trim() ?? ''
  const error = `${redact(name)}: ${redact(message)}${code === undefined ? '' : ` (${code})`} ${place}`
  const fields = shown.length === 0 ? ':' : ` [${shown.join(' ')}]`
  return `${timestamp} ${service}: ${event}${fields} ${error}`
    .replace(/[\p{Cc}\u2028\u2029]+/gu, ' ')
    .trim()
    .slice(0, MAX_LINE_LENGTH)
}

const SECRETS: readonly RegExp[] = [
  /\b(?:Bearer|Basic)\s+\S+/gi,
  // Credentials in an address. The end of a long message may be missing.
  /(?<=:\/\/)(?:\S+@|[^\s/:]*:\S+$)/g,
  /\b(?:password|passwd|pwd|passphrase|secret|token|(?:\w+[-_ ])?(?:api|access)[-_ ]?key|authorization|credentials?|cookie)["']?\s*[:=]\s*\S+/gi,
  /(?<=[?&][\w-]+=)[^\s&]+/g,
  /\b(?:sk|pk|gsk|xai|ghp|AIza|AKIA)[\w-]{8,}/g,
  // Long words of letters and digits, but not dates.
  /(?<![\w-])(?!\d{4}-\d\d-)(?=[\w+=~-]*\d)(?=[\w+=~-]*[A-Za-z])[\w+=~-]{16,}/g,
]
/** Error messages may quote a part of a request, such as those of `JSON.parse`. An apostrophe is not a quotation mark. */
const QUOTED = /"[^"]*(?:"|$)|(?<![\p{L}\p{N}])'[^']*(?:'|$)/gu

function redact(message: string): string {
  return SECRETS.reduce((text, pattern) => text.replace(pattern, '[removed]'), message).replace(QUOTED, '"[removed]"')
}

/** Fields of an event. An event has only the fields that apply to it. */
export interface LogEventFields {
  readonly request_id?: string
  /** Method and path of the request. */
  readonly route?: string
  readonly virtual_key_id?: string | null
  readonly provider?: string | null
  readonly model?: string | null
  readonly batch_id?: string
  /** Position of the item in the batch. */
  readonly item?: string
  readonly reservation_id?: string
  readonly file_id?: string
  readonly warning?: string
  readonly plugin?: string
  readonly hook?: string
  /** Failures of the plugin since its last record. */
  readonly failures?: number
  /** Id of a budget event. */
  readonly event_id?: string
  /** Records that were dropped since the gateway was created. */
  readonly dropped?: number
  /** Number of records of an outbox. */
  readonly records?: number
  readonly strategy?: string
  readonly tokens?: number
  readonly original_tokens?: number
  readonly optimized_tokens?: number
  /** The tier of a shadow trial. */
  readonly tier?: 2 | 3 | 4 | 5
  /** Identifiers, numbers and runs of four words of the response that the received prompt contains. */
  readonly evidence_facts?: number
  /** Those that the prompt of the trial lacks. */
  readonly evidence_lost?: number
  readonly prompt_tokens_cut?: number
  readonly completion_tokens_cut?: number
  readonly small_models_usd?: number
  readonly billed_nano_usd?: number
}
