/** Processes batches until it is killed: node worker.ts <store port> <upstream> */
import { createGateway } from '../../../src/index.ts'
import { farmOptions } from './options.ts'
import { socketStore } from './socket-store.ts'

const [, , port, upstream] = process.argv
const gateway = createGateway(farmOptions(await socketStore(Number(port)), upstream ?? '', { concurrency: 4 }))
// The first request starts the batch worker, which then polls for batches.
await gateway.fetch(new Request('http://worker.invalid/health'))
process.on('disconnect', () => process.exit(0))
