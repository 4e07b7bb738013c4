import type { Runtime } from './ports.ts'

export interface BackgroundLoopOptions {
  readonly after: Runtime['after']
  /** Never rejects. Resolves with the milliseconds until the next run. */
  readonly run: () => Promise<number>
  /** Time from a wake-up to the run, in milliseconds. */
  readonly wakeMs: number
}

/** Runs optional work in the background: one run at a time, after a delay or soon after a wake-up. */
export class BackgroundLoop {
  readonly #options: BackgroundLoopOptions
  #running: Promise<void> | undefined
  #isWoken = false
  #isClosed = false
  /** True if the timer is that of a wake-up. It then runs soon. */
  #isDueSoon = false
  #cancelTimer: () => void = () => {}

  constructor(options: BackgroundLoopOptions) {
    this.#options = options
  }

  get isClosed(): boolean {
    return this.#isClosed
  }

  wake(): void {
    this.schedule(this.#options.wakeMs)
  }

  schedule(delayMs: number): void {
    if (this.#isClosed) return
    if (this.#running !== undefined) {
      this.#isWoken ||= delayMs <= this.#options.wakeMs
      return
    }
    if (this.#isDueSoon) return
    this.#isDueSoon = delayMs <= this.#options.wakeMs
    this.#cancelTimer()
    this.#cancelTimer = this.#options.after(delayMs, () => this.#start(), { isBackground: true })
  }

  #start(): void {
    this.#isDueSoon = false
    this.#isWoken = false
    this.#running = this.#options.run().then((delayMs) => {
      this.#running = undefined
      this.schedule(this.#isWoken ? this.#options.wakeMs : delayMs)
    })
  }

  /** Resolves when the current run has ended. */
  async close(): Promise<void> {
    this.#isClosed = true
    this.#cancelTimer()
    await this.#running
  }
}
