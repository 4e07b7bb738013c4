/**
 * A process of its own that holds a memory store and serves it over a socket: what a database is to a gateway, so that
 * processes that work with it can be killed while it lives. One JSON object a line, both ways.
 */
import { createServer, type Socket } from 'node:net'
import { memoryStore } from '../../../src/index.ts'
import { eachLine, type StoreAnswer, type StoreCall } from './protocol.ts'

const store = memoryStore()
const server = createServer({ noDelay: true }, (socket) => {
  socket.on('error', () => {})
  eachLine(socket, (line) => void answer(socket, JSON.parse(line) as StoreCall))
})

async function answer(socket: Socket, call: StoreCall): Promise<void> {
  const answer = await answerOf(call)
  if (!socket.destroyed) socket.write(`${JSON.stringify(answer)}\n`)
}

/** Some methods answer at once. */
async function answerOf({ id, method, given }: StoreCall): Promise<StoreAnswer> {
  const call = store[method] as (...given: unknown[]) => unknown
  try {
    return { id, result: await call(...given.map((value) => value ?? undefined)) }
  } catch (error) {
    return { id, error: String(error) }
  }
}

server.listen(0, '127.0.0.1', () => {
  const address = server.address()
  if (typeof address === 'object' && address !== null) process.send?.({ port: address.port })
})
process.on('disconnect', () => process.exit(0))
