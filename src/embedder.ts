export { localEmbedder, type LocalEmbedder, type LocalEmbedderOptions } from './embedder/local-embedder.ts'
