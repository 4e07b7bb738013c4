import type { Server } from 'node:http'
import { answerQuestions } from './agent.ts'

/** Listens on a free port of the loopback and reports it, with further values, to the bench. */
export function listen(server: Server, values: Readonly<Record<string, string>> = {}): void {
  answerQuestions()
  // An idle connection that is closed in the moment of its next use would fail that request.
  server.keepAliveTimeout = 0
  server.listen(0, '127.0.0.1', () => {
    const address = server.address()
    if (typeof address === 'object' && address !== null) process.send?.({ ready: { port: address.port, ...values } })
  })
}
