/** A process that works off batches until it is killed: node worker.ts <store port> <upstream> */
import { createGateway } from '../../../src/index.ts'
import { farmOptions } from './options.ts'
import { socketStore } from './socket-store.ts'

const [, , port, upstream] = process.argv
const gateway = createGateway(farmOptions(await socketStore(Number(port)), upstream ?? '', { concurrency: 4 }))
// A request begins the work; from then on the process looks for more by itself.
await gateway.fetch(new Request('http://worker.invalid/health'))
process.on('disconnect', () => process.exit(0))
