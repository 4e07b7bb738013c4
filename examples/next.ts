/**
 * The file app/ai/[...path]/route.ts of a Next.js application. Set the environment variable GATEWAY_KEY to the secret of
 * the key, such as the output of `openssl rand -hex 24`.
 */
import { createGateway } from 'sluice'
import { extractive } from 'sluice/testing'
import { toNext } from 'sluice/next'

const gateway = createGateway({
  providers: [extractive()],
  basePath: '/ai',
  governance: { virtualKeys: [{ name: 'example', value: process.env['GATEWAY_KEY'] }] },
})

export const { GET, POST, PUT, DELETE } = toNext(gateway)
