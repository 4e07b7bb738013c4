/** A worker on any platform that calls an exported `fetch`. A source file may name a key by its SHA-256. */
import { createGateway, extractive } from 'sluice'

const gateway = createGateway({
  providers: [extractive()],
  governance: {
    virtual_keys: [
      { name: 'example', value_sha256: 'ef3f816611c363e007952349195f6f79eddf0d39493e6a58922882a30f769782' },
    ],
  },
})

export default { fetch: gateway.fetch }
