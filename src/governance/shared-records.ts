import { GatewayError } from '../core/errors.ts'
import { pageQuery } from './page-query.ts'
import type { RecordTable } from './record-table.ts'

/** What makes one kind of shared record differ from another. */
export interface SharedKind<record, shown> {
  readonly table: RecordTable<record>
  /** What messages call it: `budget`. */
  readonly label: string
  /** Reads the body of a creation. */
  readonly parse: (body: unknown, newId: string) => record
  /** Reads the body of an update, before any record is looked at. */
  readonly parseChange: (body: unknown) => (record: record) => record
  readonly show: (records: readonly record[]) => Promise<readonly shown[]>
  readonly uuid: () => string
}

/** The five ways to handle records. Bodies may be anything: they are checked here. */
export interface SharedRecords<shown> {
  create(body: unknown): Promise<shown>
  get(id: string): Promise<shown>
  page(query: { readonly limit?: number; readonly after?: string }): Promise<{
    readonly shown: readonly shown[]
    readonly has_more: boolean
  }>
  update(id: string, change: unknown): Promise<shown>
  remove(id: string): Promise<void>
}

export function createSharedRecords<record extends { readonly id: string }, shown>(
  kind: SharedKind<record, shown>,
): SharedRecords<shown> {
  const { table, label } = kind

  async function showOne(record: record): Promise<shown> {
    const [shown] = await kind.show([record])
    if (shown === undefined) throw new GatewayError('internal', `The ${label} could not be shown.`)
    return shown
  }

  return {
    create: async (body) => {
      const record = kind.parse(body, kind.uuid())
      if (await table.insert(record.id, record)) return showOne(record)
      throw new GatewayError(
        'conflict',
        `id: there is a ${label} with this id already. Choose another, or change it.`,
        {
          param: 'id',
        },
      )
    },
    get: async (id) => showOne(await table.read(id)),
    page: async (query) => {
      const { records, hasMore } = await table.page(pageQuery(query))
      return { shown: await kind.show(records), has_more: hasMore }
    },
    update: async (id, body) => showOne((await table.change(id, kind.parseChange(body))).after),
    remove: async (id) => void (await table.remove(id)),
  }
}
