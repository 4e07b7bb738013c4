import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'

/**
 * Calls the listener once, when the response has been handed over or its connection is closed. Node reports the latter
 * only to the response that is being sent: one that waits behind an earlier request of the same connection (pipelining)
 * is destroyed here.
 */
export function onceClosed(incoming: IncomingMessage, outgoing: ServerResponse, listener: () => void): void {
  outgoing.once('close', listener)
  if (outgoing.socket !== null || incoming.httpVersionMajor > 1) return
  const waiting = waitingOn(incoming.socket)
  const close = (): void => {
    outgoing.off('close', listener)
    outgoing.destroy()
    listener()
  }
  waiting.add(close)
  outgoing.once('close', () => waiting.delete(close))
}

/** One listener on the connection, however many requests wait. */
const waitingBySocket = new WeakMap<Socket, Set<() => void>>()

function waitingOn(socket: Socket): Set<() => void> {
  const known = waitingBySocket.get(socket)
  if (known !== undefined) return known
  const waiting = new Set<() => void>()
  waitingBySocket.set(socket, waiting)
  socket.once('close', () => {
    for (const close of waiting) close()
    waiting.clear()
  })
  return waiting
}
