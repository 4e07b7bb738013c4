/** A fake model over real HTTP, as cheap as node:http allows: answers at once, or streams so many events. */
import { createServer } from 'node:http'
import { serveParent } from './child.ts'

const EVENTS = 200
const answer = JSON.stringify({
  id: 'chatcmpl-bench',
  object: 'chat.completion',
  created: 1_700_000_000,
  model: 'bench-model',
  choices: [{ index: 0, message: { role: 'assistant', content: 'A short answer.' }, finish_reason: 'stop' }],
  usage: { prompt_tokens: 20, completion_tokens: 5, total_tokens: 25 },
})
const chunk = (delta: object, finish: string | null): string =>
  `data: ${JSON.stringify({
    id: 'chatcmpl-bench',
    object: 'chat.completion.chunk',
    created: 1_700_000_000,
    model: 'bench-model',
    choices: [{ index: 0, delta, finish_reason: finish }],
  })}\n\n`
const usage = `data: ${JSON.stringify({ id: 'chatcmpl-bench', object: 'chat.completion.chunk', created: 1_700_000_000, model: 'bench-model', choices: [], usage: { prompt_tokens: 20, completion_tokens: 200, total_tokens: 220 } })}\n\n`
const event = chunk({ content: ' token' }, null)

const server = createServer((request, response) => {
  let size = 0
  let head = ''
  request.on('data', (piece: Buffer) => {
    if (size < 400) head += piece.subarray(0, 400).toString('latin1')
    size += piece.byteLength
  })
  request.on('end', () => {
    if (!head.includes('"stream":true')) {
      response.writeHead(200, { 'content-type': 'application/json', 'content-length': Buffer.byteLength(answer) })
      response.end(answer)
      return
    }
    response.writeHead(200, { 'content-type': 'text/event-stream' })
    response.write(chunk({ role: 'assistant', content: '' }, null))
    let left = EVENTS
    const more = (): void => {
      // A few events a turn, as a network brings them; never the whole answer at once.
      for (let burst = 0; burst < 4 && left > 0; burst++, left--) response.write(event)
      if (left > 0) setImmediate(more)
      else response.end(`${chunk({}, 'stop')}${usage}data: [DONE]\n\n`)
    }
    more()
  })
})
serveParent(server)
