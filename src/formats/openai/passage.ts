import type { Frame, Step } from '../../core/answer.ts'
import { asArray, asObject, isJsonObject, type JsonObject } from '../../core/json.ts'

/** Lets the chunks of an upstream of this dialect through and holds back those that must wait for the end. */
export interface Passage {
  /** The frames that can leave now. */
  pass(step: Step, frame: Frame): readonly Frame[]
  /** The chunk that ends the answer; undefined as long as none has come. */
  held(): Frame | undefined
  /** Chunks that came after it. */
  late(): readonly Frame[]
  /** The upstream's usage chunk. */
  usage(): Frame | undefined
}

/** What may follow the held chunk, besides the usage: some vendors add a few. */
const MOST_LATE = 64

/** `choices` is how many answers the caller asked for: each ends with a chunk of its own, and the last one waits. */
export function passage(choices: number): Passage {
  let held: Frame | undefined
  let usage: Frame | undefined
  let finished = 0
  let late: Frame[] = []

  const release = (): readonly Frame[] => {
    const frames = held === undefined ? [] : [held, ...late]
    held = undefined
    late = []
    return frames
  }
  const hold = (frame: Frame): readonly Frame[] => {
    const freed = release()
    finished++
    held = frame
    return freed
  }
  const follow = (frame: Frame): readonly Frame[] => {
    if (held === undefined || finished < choices) return [...release(), frame]
    if (late.length < MOST_LATE) late.push(frame)
    return []
  }

  return {
    pass: (step, frame) => {
      switch (kindOf(step, frame, choices)) {
        case 'last':
          return []
        case 'usage':
          usage = frame
          return []
        case 'finish':
          return hold(frame)
        case 'content':
          return follow(frame)
      }
    },
    held: () => held,
    late: () => late,
    usage: () => usage,
  }
}

/** Only chunks whose events give reason to are parsed again. */
function kindOf(step: Step, frame: Frame, choices: number): 'last' | 'usage' | 'finish' | 'content' {
  const has = (type: string) => step.events.some((event) => event.type === type)
  if (has('done')) return 'last'
  if (has('answer-end')) return 'finish'
  if ((has('usage') || step.events.length === 0) && isUsageChunk(frame)) return 'usage'
  return choices > 1 && choicesOf(frame).some(endsHere) ? 'finish' : 'content'
}

/** Also one whose counts are not numbers. */
function isUsageChunk(frame: Frame): boolean {
  return frame.data.includes('"usage"') && choicesOf(frame).length === 0 && isJsonObject(parsed(frame)['usage'])
}

function choicesOf(frame: Frame): readonly JsonObject[] {
  return asArray(parsed(frame)['choices'])
    .map(asObject)
    .filter((choice) => choice !== undefined)
}

function endsHere(choice: JsonObject): boolean {
  return typeof choice['finish_reason'] === 'string'
}

function parsed(frame: Frame): JsonObject {
  const value: unknown = JSON.parse(frame.data)
  return isJsonObject(value) ? value : {}
}

/** The chunk without the usage that some vendors tell where the answer ends, because we asked and not the caller. */
export function withoutUsage(frame: Frame): Frame {
  if (!frame.data.includes('"usage"')) return frame
  const { usage, ...others } = parsed(frame)
  return isJsonObject(usage) ? { ...frame, data: JSON.stringify(others) } : frame
}

/** Adds a field to a chunk without serializing the rest of it again. */
export function withField(frame: Frame, name: string, value: JsonObject): Frame {
  const data = frame.data.trimEnd()
  const hasOwn = data.includes(`"${name}"`)
  if (hasOwn) return { ...frame, data: JSON.stringify({ ...parsed(frame), [name]: value }) }
  return { ...frame, data: `${data.slice(0, -1)},"${name}":${JSON.stringify(value)}}` }
}
