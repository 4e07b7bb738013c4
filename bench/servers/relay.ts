/**
 * The baseline of every ratio: node:http, then `pool.request` of undici, with the response piped. argv: upstream URL.
 */
import { createServer } from 'node:http'
import { Pool } from 'undici'
import { listen } from './listen.ts'

const pool = new Pool(process.argv[2] ?? '', { connections: 128, pipelining: 1 })

const server = createServer((request, response) => {
  const pieces: Buffer[] = []
  request.on('data', (piece: Buffer) => pieces.push(piece))
  request.on('end', async () => {
    const upstream = await pool.request({
      path: '/v1/chat/completions',
      method: 'POST',
      headers: { 'content-type': 'application/json', authorization: 'Bearer upstream' },
      body: Buffer.concat(pieces),
    })
    response.writeHead(upstream.statusCode, { 'content-type': upstream.headers['content-type'] })
    upstream.body.pipe(response)
  })
})
listen(server)
