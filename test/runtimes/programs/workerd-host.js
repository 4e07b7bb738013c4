import process from 'node:process'
import { Miniflare } from 'miniflare'

const miniflare = new Miniflare({
  host: '127.0.0.1',
  port: 0,
  modules: true,
  scriptPath: process.argv[3],
  compatibilityDate: '2026-07-01',
  compatibilityFlags: ['enable_request_signal'],
})
const url = await miniflare.ready
process.stdout.write(`${url.origin}\n`)
