/** The part of the ONNX Runtime packages that the embedder uses. Both packages have the same interface. */
export interface OnnxRuntime {
  readonly InferenceSession: {
    create(model: string | Uint8Array, options: OnnxSessionOptions): Promise<OnnxSession>
  }
  readonly Tensor: new (type: 'int64', data: BigInt64Array, shape: readonly number[]) => OnnxTensor
  readonly env?: { readonly wasm?: { numThreads?: number } }
}

interface OnnxSessionOptions {
  readonly intraOpNumThreads: number
  readonly interOpNumThreads: number
}

export interface OnnxTensor {
  readonly data: unknown
  readonly dims: readonly number[]
}

export interface OnnxSession {
  readonly inputNames: readonly string[]
  readonly outputNames: readonly string[]
  run(inputs: Readonly<Record<string, OnnxTensor>>): Promise<Readonly<Record<string, OnnxTensor>>>
}

/** The package that runs the model. */
export type RuntimeName = 'onnxruntime-node' | 'onnxruntime-web'

export const RUNTIME_NAMES: readonly RuntimeName[] = ['onnxruntime-node', 'onnxruntime-web']

export interface LoadedRuntime {
  readonly name: RuntimeName
  readonly runtime: OnnxRuntime
}

export type ImportModule = (name: string) => Promise<unknown>

/** Loads the first of the packages that is installed. */
export async function loadRuntime(names: readonly RuntimeName[], importModule: ImportModule): Promise<LoadedRuntime> {
  for (const name of names) {
    let loaded: unknown
    try {
      loaded = await importModule(name)
    } catch (error) {
      if (isMissing(error, name)) continue
      throw new Error(`The package ${name} could not be loaded: ${messageOf(error)}`, { cause: error })
    }
    const runtime = [loaded, defaultOf(loaded)].find(isRuntime)
    if (runtime !== undefined) return { name, runtime }
    throw new Error(`The package ${name} has no InferenceSession. Install its current version.`)
  }
  const [first] = names
  throw new Error(`The package ${names.join(' or ')} is not installed. Run npm install ${first}.`)
}

/** Returns false if the package is installed but lacks a module of its own. */
export function isMissing(error: unknown, name: string): boolean {
  const isNotFound =
    error instanceof Error &&
    'code' in error &&
    (error.code === 'ERR_MODULE_NOT_FOUND' || error.code === 'MODULE_NOT_FOUND')
  return isNotFound && new RegExp(`Cannot find (?:package|module) '${name}'`).test(error.message)
}

export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error)
}

/** CommonJS packages have their exports in `default`. */
function defaultOf(loaded: unknown): unknown {
  return typeof loaded === 'object' && loaded !== null && 'default' in loaded ? loaded.default : undefined
}

function isRuntime(value: unknown): value is OnnxRuntime {
  return typeof value === 'object' && value !== null && 'InferenceSession' in value && 'Tensor' in value
}
