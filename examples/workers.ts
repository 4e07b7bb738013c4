/**
 * A worker for any platform that calls an exported `fetch`. The source contains only the SHA-256 of the key's secret:
 * printf %s "$KEY" | shasum -a 256
 */
import { createGateway } from 'sluice'
import { extractive } from 'sluice/testing'

const gateway = createGateway({
  providers: [extractive()],
  governance: {
    virtualKeys: [{ name: 'example', valueSha256: 'ef3f816611c363e007952349195f6f79eddf0d39493e6a58922882a30f769782' }],
  },
})

export default { fetch: gateway.fetch }
