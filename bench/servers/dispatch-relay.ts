/**
 * A minimal relay on undici: a dispatch handler that writes to the response, without promises and Node streams. Its CPU
 * time is a lower bound for node:http with undici. argv: upstream URL.
 */
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import { Pool } from 'undici'
import { listen } from './listen.ts'

const pool = new Pool(process.argv[2] ?? '', { connections: 128, pipelining: 1 })
const headers = { 'content-type': 'application/json', authorization: 'Bearer upstream' }

const server = createServer((request, response) => {
  const pieces: Buffer[] = []
  request.on('data', (piece: Buffer) => pieces.push(piece))
  request.on('end', () => relay(request, response, pieces))
})
listen(server)

function relay(request: IncomingMessage, response: ServerResponse, pieces: readonly Buffer[]): void {
  const body = pieces.length === 1 && pieces[0] !== undefined ? pieces[0] : Buffer.concat(pieces)
  pool.dispatch(
    { path: '/v1/chat/completions', method: 'POST', headers, body },
    {
      onRequestStart(controller) {
        response.on('drain', () => controller.resume())
        request.on('aborted', () => controller.abort(new Error('The client disconnected.')))
      },
      onResponseStart(_controller, status, received) {
        response.writeHead(status, { 'content-type': received['content-type'] })
      },
      onResponseData(controller, bytes) {
        if (!response.write(bytes)) controller.pause()
      },
      onResponseEnd() {
        response.end()
      },
      onResponseError() {
        response.destroy()
      },
    },
  )
}
