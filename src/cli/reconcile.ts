import type { Reconciliation, Reconciling, VendorUsageRow } from '../plugins/reconcile/reconcile-api.ts'
import { type CliIo, readOptions, reasonOf } from './command.ts'

export const RECONCILE_USAGE = `sluice reconcile --gateway FILE --from DAY --to DAY [--vendor FILE] [--json]

Compares what was settled with the audit trail and the delivered events, and lists each difference. Exits with 1 if there is one.

  --gateway FILE  a module with the gateway as its default export, or as the export gateway
  --from DAY      the first day in UTC, YYYY-MM-DD
  --to DAY        the last day
  --vendor FILE   a vendor's usage export as JSON: [{ "day", "model", "costUsd", "promptTokens", "completionTokens" }]
  --json          prints the result of gateway.usage.reconcile()`

/** The part of a gateway that this command uses. */
interface ReconcilingGateway {
  readonly usage: Reconciling
  close(): Promise<void>
}

export async function reconcile(args: readonly string[], { print, load, read }: CliIo): Promise<number> {
  const options = readOptions(args, {
    gateway: 'string',
    from: 'string',
    to: 'string',
    vendor: 'string',
    json: 'boolean',
  })
  const { gateway: path, from, to, vendor: exported } = options?.texts ?? {}
  if (path === undefined || from === undefined || to === undefined) return 2
  try {
    const gateway = gatewayOf(await load(path))
    if (gateway === undefined) {
      print(`${path} exports no gateway. Export it as default, or as gateway.`)
      return 2
    }
    try {
      const vendor =
        exported === undefined ? undefined : (JSON.parse(await read(exported)) as readonly VendorUsageRow[])
      const result = await gateway.usage.reconcile({ from, to, ...(vendor !== undefined && { vendor }) })
      for (const line of options?.flags.json === true ? [JSON.stringify(result, null, 2)] : linesOf(result)) print(line)
      return result.isEqual ? 0 : 1
    } finally {
      await gateway.close()
    }
  } catch (error) {
    print(`The reconciliation failed: ${reasonOf(error)}`)
    return 1
  }
}

function gatewayOf(exports: object): ReconcilingGateway | undefined {
  for (const name of ['default', 'gateway']) {
    const value: unknown = Reflect.get(exports, name)
    if (isGateway(value)) return value
  }
  return undefined
}

function isGateway(value: unknown): value is ReconcilingGateway {
  return typeof value === 'object' && value !== null && 'usage' in value && 'close' in value
}

function linesOf({ from, to, days, differences, omitted, vendor }: Reconciliation): readonly string[] {
  const ledger = days.reduce((sum, { ledgerNanoUsd }) => sum + ledgerNanoUsd, 0)
  const count = differences.length + omitted
  return [
    `${from} to ${to}: ${dollars(ledger)} billed, ${count === 0 ? 'no differences' : `${count} difference${count === 1 ? '' : 's'}`}`,
    ...differences.map(({ kind, day = '', outbox = '', customer = '', id = '', nanoUsd, reason = '' }) =>
      [kind, day, outbox, customer, id, dollars(nanoUsd), reason].filter((cell) => cell !== '').join('  '),
    ),
    ...(omitted > 0 ? [`and ${omitted} more`] : []),
    ...vendor.map(
      ({ day, model, ledgerNanoUsd, vendorNanoUsd }) =>
        `${day}  ${model}  ledger ${dollars(ledgerNanoUsd)}  vendor ${dollars(vendorNanoUsd)}  difference ${dollars(vendorNanoUsd - ledgerNanoUsd)}`,
    ),
  ]
}

/** With all decimals of nano-dollars, because differences may be small. */
function dollars(nanoUsd: number): string {
  return `$${(nanoUsd / 1e9).toFixed(9)}`
}
