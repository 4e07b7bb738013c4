export { localEmbedder, type LocalEmbedder, type LocalEmbedderOptions } from './embedder/local-embedder.ts'
export type { RuntimeName } from './embedder/onnx-runtime.ts'
export type { Pooling } from './embedder/text-model.ts'
