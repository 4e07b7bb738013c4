import { isPromise, type Pause } from '../../core/async.ts'
import { type Message, type Part, type Prompt, textOfPart } from '../../core/prompt.ts'

/**
 * The facts of a response: identifiers, numbers of two digits or more, and runs of four words. A fact that a response
 * repeats counts once.
 */
export interface EvidenceLoss {
  /** Facts of the response that the received prompt contains. */
  readonly facts: number
  /** Facts that only the omitted part of the prompt contains. */
  readonly lost: number
}

export interface SentResponse {
  readonly received: Prompt
  readonly sent: Prompt
  /** The response to the received prompt. */
  readonly response: readonly Part[]
}

/** Further text of a response is ignored, so that the work is bounded. */
const MAX_RESPONSE_CHARS = 65_536
const CHARS_PER_STEP = 32_768

/** Counts the facts of the response that the sent prompt lacks. Yields to the event loop. */
export async function measureLoss({ received, sent, response }: SentResponse, pause: Pause): Promise<EvidenceLoss> {
  const facts = new Facts()
  let length = 0
  for (const part of response) {
    const text = plainTextOf(part).slice(0, MAX_RESPONSE_CHARS - length)
    length += text.length
    await forEachToken(text, facts, pause)
  }
  const kept = facts.search()
  const keptMessages = new Set(sent.messages)
  await scanMessages(sent.messages, kept, pause)
  for (const { native } of sent.tools) await forEachToken(unescape(JSON.stringify(native.value)), kept, pause)
  const omitted = facts.search()
  await scanMessages(
    received.messages.filter((message) => !keptMessages.has(message)),
    omitted,
    pause,
  )
  return countLoss(kept.found, omitted.found)
}

function countLoss(kept: Uint8Array, omitted: Uint8Array): EvidenceLoss {
  let facts = 0
  let lost = 0
  for (const [index, isKept] of kept.entries()) {
    if (isKept === 1 || omitted[index] === 1) facts += 1
    if (isKept === 0 && omitted[index] === 1) lost += 1
  }
  return { facts, lost }
}

async function scanMessages(messages: readonly Message[], search: FactSearch, pause: Pause): Promise<void> {
  for (const part of messages.flatMap(({ parts }) => parts)) await forEachToken(plainTextOf(part), search, pause)
}

/** The reasoning of the response is not evidence, because the vendor may not return it. */
function plainTextOf(part: Part): string {
  if (part.type === 'thinking') return ''
  return part.type === 'tool-call' ? unescape(textOfPart(part)) : textOfPart(part)
}

/** Arguments are JSON, whose escapes would join with the words next to them. */
function unescape(json: string): string {
  return json.replace(/\\(?:[nrtbf"\\/]|u[0-9a-fA-F]{4})/g, ' ')
}

interface TokenReceiver {
  /** An identifier or a number. */
  onName(name: string): void
  onWord(word: string): void
  /** Words of two texts form no run. */
  onEnd(): void
}

const TOKEN = /\d{1,3}(?:,\d{3})+(?:\.\d+)?|[\p{L}\p{M}\p{N}_$@](?:[\p{L}\p{M}\p{N}_$@./:\\-]*[\p{L}\p{M}\p{N}_$])?/gu
const WORD = /[\p{L}\p{M}\p{N}]+/gu
const NUMBER = /^\d[\d.,:/-]*$/
const IDENTIFIER =
  /[_$@/\\]|::|\p{L}\p{N}|\p{N}\p{L}|\p{Ll}\p{Lu}|[\p{L}\p{N}]{2}\.[\p{L}\p{N}]{2}|\p{L}-\p{N}|\p{N}-\p{L}/u
/** Scripts without spaces between words. */
const UNSPACED = /[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Thai}\p{Script=Lao}\p{Script=Khmer}]/u

async function forEachToken(text: string, receiver: TokenReceiver, pause: Pause): Promise<void> {
  let next = CHARS_PER_STEP
  for (const { 0: token, index } of text.matchAll(TOKEN)) {
    readToken(token, receiver)
    if (index < next) continue
    next = index + CHARS_PER_STEP
    const paused = pause()
    if (isPromise(paused)) await paused
  }
  receiver.onEnd()
}

const MAX_NAME_LENGTH = 200

function readToken(token: string, receiver: TokenReceiver): void {
  if (NUMBER.test(token)) {
    if (token.length > 1) receiver.onName(token.replaceAll(',', ''))
  } else if (IDENTIFIER.test(token) && token.length <= MAX_NAME_LENGTH) receiver.onName(token)
  for (const [word] of token.matchAll(WORD)) {
    if (!UNSPACED.test(word)) receiver.onWord(word.toLowerCase())
    else for (const character of word) receiver.onWord(character)
  }
}

const RUN_LENGTH = 4
/** Four word ids form an integer that is exact. */
const MAX_WORDS = 2 ** 13 - 1

/** Collects the facts of a response. */
class Facts implements TokenReceiver {
  readonly #names = new Map<string, number>()
  readonly #wordIds = new Map<string, number>()
  readonly #runs = new Map<number, number>()
  readonly #window = new RunWindow()
  #count = 0

  onName(name: string): void {
    if (!this.#names.has(name)) this.#names.set(name, this.#count++)
  }

  onWord(word: string): void {
    let id = this.#wordIds.get(word)
    if (id === undefined && this.#wordIds.size < MAX_WORDS) this.#wordIds.set(word, (id = this.#wordIds.size + 1))
    const run = this.#window.add(id)
    if (run !== undefined && !this.#runs.has(run)) this.#runs.set(run, this.#count++)
  }

  onEnd(): void {
    this.#window.clear()
  }

  search(): FactSearch {
    return new FactSearch(this.#names, this.#wordIds, this.#runs, this.#count)
  }
}

/** Finds the facts of a response in other texts. */
class FactSearch implements TokenReceiver {
  /** 1 for each fact that was found. */
  readonly found: Uint8Array
  readonly #names: ReadonlyMap<string, number>
  readonly #wordIds: ReadonlyMap<string, number>
  readonly #runs: ReadonlyMap<number, number>
  readonly #window = new RunWindow()

  constructor(
    names: ReadonlyMap<string, number>,
    wordIds: ReadonlyMap<string, number>,
    runs: ReadonlyMap<number, number>,
    count: number,
  ) {
    this.found = new Uint8Array(count)
    this.#names = names
    this.#wordIds = wordIds
    this.#runs = runs
  }

  onName(name: string): void {
    this.#mark(this.#names.get(name))
  }

  onWord(word: string): void {
    const run = this.#window.add(this.#wordIds.get(word))
    if (run !== undefined) this.#mark(this.#runs.get(run))
  }

  onEnd(): void {
    this.#window.clear()
  }

  #mark(index: number | undefined): void {
    if (index !== undefined) this.found[index] = 1
  }
}

/** The last words of a text, as one number. */
class RunWindow {
  #run = 0
  #length = 0

  /** Returns the run that ends with this word, or undefined if the word is unknown or the run is too short. */
  add(id: number | undefined): number | undefined {
    if (id === undefined) {
      this.clear()
      return undefined
    }
    const base = MAX_WORDS + 1
    this.#run = (this.#run % base ** (RUN_LENGTH - 1)) * base + id
    this.#length += 1
    return this.#length < RUN_LENGTH ? undefined : this.#run
  }

  clear(): void {
    this.#run = 0
    this.#length = 0
  }
}
