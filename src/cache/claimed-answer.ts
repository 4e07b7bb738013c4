import type { Cancellation } from '../core/cancellation.ts'
import type { AnswerClaims } from '../core/cache-ports.ts'
import type { Runtime } from '../core/ports.ts'
import { refuseCancelled } from './timeout.ts'

/** Maximum wait for another process, and the lifetime of the claim of a killed process, in milliseconds. */
const CLAIM_MS = 30_000
/** Delay between two polls, in milliseconds. It increases, so that a long answer takes few calls. */
const FIRST_PAUSE_MS = 25
const MAX_PAUSE_MS = 500

/** The claim of one request on an answer that several processes may need at once. */
export interface AnswerClaim<answer> {
  /**
   * Takes the claim. Returns undefined when this process must compute the answer: it has the claim now, the other process
   * stored nothing or took too long, or the storage failed. Rejects only when the caller disconnects.
   */
  join(): Promise<answer | undefined>
  /** Ends the claim of this request. Must be called when the answer is stored or cannot be stored. Never rejects. */
  release(): Promise<void>
}

export interface AnswerClaimOptions<answer> {
  readonly claims: AnswerClaims
  readonly id: string
  readonly runtime: Pick<Runtime, 'now' | 'after'>
  readonly cancellation: Cancellation | undefined
  /** Reads the answer once the claim of another process has ended. Never rejects. */
  readonly read: () => Promise<answer | undefined>
}

export function createAnswerClaim<answer>(options: AnswerClaimOptions<answer>): AnswerClaim<answer> {
  const { claims, id, runtime, cancellation, read } = options
  let isHeld = false

  async function waitForOther(): Promise<answer | undefined> {
    const deadline = runtime.now() + CLAIM_MS
    for (let ms = FIRST_PAUSE_MS; runtime.now() < deadline; ms = Math.min(2 * ms, MAX_PAUSE_MS)) {
      await pause(ms, runtime, cancellation)
      refuseCancelled({ cancellation })
      if (!(await claims.isTaken(id))) return read()
    }
    return undefined
  }

  return {
    join: async () => {
      try {
        isHeld = await claims.take(id, CLAIM_MS)
        return isHeld ? undefined : await waitForOther()
      } catch {
        refuseCancelled({ cancellation })
        return undefined
      }
    },
    release: async () => {
      if (!isHeld) return
      isHeld = false
      try {
        await claims.release(id)
      } catch {
        // The claim expires.
      }
    },
  }
}

function pause(ms: number, { after }: Pick<Runtime, 'after'>, cancellation: Cancellation | undefined): Promise<void> {
  return new Promise((resolve) => {
    let unsubscribe: (() => void) | undefined
    const done = (): void => {
      cancel()
      unsubscribe?.()
      resolve()
    }
    const cancel = after(ms, done)
    unsubscribe = cancellation?.onCancel(done)
  })
}
