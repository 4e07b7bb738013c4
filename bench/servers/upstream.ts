/**
 * A fake upstream on node:http. Responds with JSON, or with a stream of 200 events: as fast as possible, or for `paced-model`
 * one event every 5 ms.
 */
import { createServer, type ServerResponse } from 'node:http'
import { queries } from './agent.ts'
import { listen } from './listen.ts'

const EVENTS = 200
const PACE_MS = 5
/** The fields `model` and `stream` are within this many bytes from the start of each request body. */
const HEAD_BYTES = 400

const usage = (output: number): object => ({
  usage: { prompt_tokens: 20, completion_tokens: output, total_tokens: 20 + output },
})
const about = (object: string): object => ({
  id: 'chatcmpl-bench',
  object,
  created: 1_700_000_000,
  model: 'bench-model',
})
const answer = JSON.stringify({
  ...about('chat.completion'),
  choices: [{ index: 0, message: { role: 'assistant', content: 'A short answer.' }, finish_reason: 'stop' }],
  ...usage(5),
})
const event = (fields: object): string =>
  `data: ${JSON.stringify({ ...about('chat.completion.chunk'), ...fields })}\n\n`
const chunk = (delta: object, finish: string | null): string =>
  event({ choices: [{ index: 0, delta, finish_reason: finish }] })
const first = chunk({ role: 'assistant', content: '' }, null)
const token = chunk({ content: ' token' }, null)
const last = `${chunk({}, 'stop')}${event({ choices: [], ...usage(EVENTS) })}data: [DONE]\n\n`

let requests = 0
let bytes = 0
queries.set('requests', () => requests)
queries.set('bytes', () => bytes)

const server = createServer((request, response) => {
  let size = 0
  let head = ''
  request.on('data', (piece: Buffer) => {
    if (size < HEAD_BYTES) head += piece.subarray(0, HEAD_BYTES).toString('latin1')
    size += piece.byteLength
  })
  request.on('end', () => {
    requests += 1
    bytes += size
    if (!head.includes('"stream":true')) {
      response.writeHead(200, { 'content-type': 'application/json', 'content-length': Buffer.byteLength(answer) })
      response.end(answer)
      return
    }
    response.writeHead(200, { 'content-type': 'text/event-stream' })
    response.write(first)
    if (head.includes('paced-model"')) pace(response)
    else burst(response, EVENTS)
  })
})
listen(server)

/** Writes a few events per turn of the event loop, as a network delivers them. */
function burst(response: ServerResponse, left: number): void {
  const count = Math.min(4, left)
  for (let written = 0; written < count; written++) response.write(token)
  if (left > count) setImmediate(burst, response, left - count)
  else response.end(last)
}

function pace(response: ServerResponse): void {
  let left = EVENTS
  const timer = setInterval(() => {
    response.write(token)
    left -= 1
    if (left > 0) return
    clearInterval(timer)
    response.end(last)
  }, PACE_MS)
  response.on('close', () => clearInterval(timer))
}
