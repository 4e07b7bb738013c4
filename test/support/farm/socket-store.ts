import { connect } from 'node:net'
import type { Store } from '../../../src/index.ts'
import { eachLine, type StoreResponse } from './protocol.ts'

const METHODS = [
  'get',
  'set',
  'swap',
  'delete',
  'list',
  'reserve',
  'settle',
  'levels',
  'tallies',
  'append',
  'entries',
  'ping',
] as const

interface Waiting {
  readonly resolve: (result: unknown) => void
  readonly reject: (error: Error) => void
}

/** Connects to the store of `store-server.ts`. */
export async function socketStore(port: number): Promise<Store> {
  const socket = connect({ port, host: '127.0.0.1', noDelay: true })
  const waiting = new Map<number, Waiting>()
  let ids = 0
  await new Promise<void>((resolve, reject) => {
    socket.once('connect', resolve)
    socket.once('error', reject)
  })
  eachLine(socket, (line) => {
    const { id, result, error } = JSON.parse(line) as StoreResponse
    const call = waiting.get(id)
    waiting.delete(id)
    if (error === undefined) call?.resolve(result)
    else call?.reject(new Error(error))
  })
  socket.on('error', () => {})
  socket.on('close', () => {
    for (const call of waiting.values()) call.reject(new Error('the connection to the store closed'))
  })
  const call =
    (method: string) =>
    (...args: readonly unknown[]): Promise<unknown> =>
      new Promise((resolve, reject) => {
        ids += 1
        waiting.set(ids, { resolve, reject })
        socket.write(`${JSON.stringify({ id: ids, method, args })}\n`)
      })
  const methods = Object.fromEntries(METHODS.map((method) => [method, call(method)]))
  return { ...methods, close: async () => void socket.destroy() } as object as Store
}
