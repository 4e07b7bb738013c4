/**
 * The file app/ai/[...path]/route.ts of a Next.js application that allows cross-origin requests from one site. The
 * environment variable GATEWAY_KEY contains the secret of the key.
 */
import { createGateway } from 'sluice'
import { extractive } from 'sluice/testing'
import { toNext, type NextHandler } from 'sluice/next'

const SITE = 'https://app.example.com'

const gateway = createGateway({
  providers: [extractive()],
  basePath: '/ai',
  governance: { virtualKeys: [{ name: 'example', value: process.env['GATEWAY_KEY'] }] },
})

const routes = toNext(gateway)

function forSite(handle: NextHandler): NextHandler {
  return async (request) => {
    const response = await handle(request)
    response.headers.set('Access-Control-Allow-Origin', SITE)
    response.headers.set('Access-Control-Expose-Headers', '*')
    return response
  }
}

export const GET: NextHandler = forSite(routes.GET)
export const POST: NextHandler = forSite(routes.POST)
export const DELETE: NextHandler = forSite(routes.DELETE)
export const OPTIONS: NextHandler = forSite(async (request) => {
  const headers = {
    'Access-Control-Allow-Methods': 'GET, POST, DELETE',
    'Access-Control-Allow-Headers': request.headers.get('Access-Control-Request-Headers') ?? '',
    'Access-Control-Max-Age': '3600',
  }
  return new Response(null, { status: 204, headers })
})
