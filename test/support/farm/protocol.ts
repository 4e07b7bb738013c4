import type { Socket } from 'node:net'
import type { Store } from '../../../src/index.ts'

export interface StoreCall {
  readonly id: number
  readonly method: keyof Store
  readonly args: readonly unknown[]
}

export interface StoreResponse {
  readonly id: number
  readonly result?: unknown
  readonly error?: string
}

/** Calls `onLine` with each complete line from a socket. */
export function eachLine(socket: Socket, onLine: (line: string) => void): void {
  let rest = ''
  socket.setEncoding('utf8')
  socket.on('data', (text: string) => {
    const lines = (rest + text).split('\n')
    rest = lines.pop() ?? ''
    for (const line of lines) onLine(line)
  })
}
