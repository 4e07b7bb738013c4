/**
 * Serves a memory store over a socket, as a database does, so that tests can kill the processes that use it. Calls and
 * answers are JSON objects, one per line.
 */
import { createServer, type Socket } from 'node:net'
import { memoryStore } from '../../../src/index.ts'
import { eachLine, type StoreResponse, type StoreCall } from './protocol.ts'

const store = memoryStore()
const server = createServer({ noDelay: true }, (socket) => {
  socket.on('error', () => {})
  eachLine(socket, (line) => void response(socket, JSON.parse(line) as StoreCall))
})

async function response(socket: Socket, call: StoreCall): Promise<void> {
  const response = await callStore(call)
  if (!socket.destroyed) socket.write(`${JSON.stringify(response)}\n`)
}

/** Some methods return synchronously. */
async function callStore({ id, method, args }: StoreCall): Promise<StoreResponse> {
  const call = store[method] as (...args: unknown[]) => unknown
  try {
    return { id, result: await call(...args.map((value) => value ?? undefined)) }
  } catch (error) {
    return { id, error: String(error) }
  }
}

server.listen(0, '127.0.0.1', () => {
  const address = server.address()
  if (typeof address === 'object' && address !== null) process.send?.({ port: address.port })
})
process.on('disconnect', () => process.exit(0))
