import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { bertModel, type BertShape } from './bert-model.ts'
import { OnnxWriter, type Tensor } from './onnx-writer.ts'

/** The files of a model that a test writes, in a temporary folder. */
export interface ModelFiles {
  readonly model: string
  readonly tokenizer: string
  remove(): Promise<void>
}

export const TINY_DIMENSIONS = 32
const SHAPE: BertShape = { layers: 1, heads: 4, width: TINY_DIMENSIONS }
const MAX_POSITIONS = 512
const LETTERS = 'abcdefghijklmnopqrstuvwxyz'.split('')
const WORDS = 'what is the capital of france how do i boil an egg ?'.split(' ')
const TOKENS = ['[PAD]', '[UNK]', '[CLS]', '[SEP]', ...WORDS.filter((word) => word.length > 1), ...LETTERS, '?']
const VOCABULARY = [...TOKENS, ...LETTERS.map((letter) => `##${letter}`)]

/** Writes a transformer with random weights. It knows spelling, but no meaning. */
export function writeTinyModel(): Promise<ModelFiles> {
  return writeFiles(bertModel({ ...SHAPE, weight: randomWeights() }))
}

/** Writes a model that returns the mean of the vectors of the tokens, with the inputs that Model2Vec exports. */
export function writeStaticModel(): Promise<ModelFiles> {
  const graph = new OnnxWriter()
  const ids = graph.input('input_ids', 'int64', ['tokens'])
  graph.input('offsets', 'int64', ['batch'])
  const vectors = graph.add('Gather', [graph.tensor(randomTensor(1, [VOCABULARY.length, TINY_DIMENSIONS])), ids])
  const mean = graph.add('ReduceMean', [vectors], { axes: [0], keepdims: 1 })
  graph.output('embeddings', mean, 'float', ['batch', TINY_DIMENSIONS])
  return writeFiles(graph.write())
}

/** Writes a model that does not read texts. */
export function writeImageModel(): Promise<ModelFiles> {
  const graph = new OnnxWriter()
  const pixels = graph.input('pixel_values', 'float', ['batch', TINY_DIMENSIONS])
  graph.output('embeddings', pixels, 'float', ['batch', TINY_DIMENSIONS])
  return writeFiles(graph.write())
}

export async function writeFiles(model: Uint8Array | string, tokenizer: string = TOKENIZER): Promise<ModelFiles> {
  const folder = await mkdtemp(join(tmpdir(), 'sluice-model-'))
  const files = { model: join(folder, 'model.onnx'), tokenizer: join(folder, 'tokenizer.json') }
  await writeFile(files.model, model)
  await writeFile(files.tokenizer, tokenizer)
  return { ...files, remove: () => rm(folder, { recursive: true }) }
}

const TOKENIZER: string = JSON.stringify({
  added_tokens: [],
  normalizer: {
    type: 'BertNormalizer',
    clean_text: true,
    handle_chinese_chars: true,
    strip_accents: null,
    lowercase: true,
  },
  pre_tokenizer: { type: 'BertPreTokenizer' },
  post_processor: {
    type: 'TemplateProcessing',
    single: [special('[CLS]'), { Sequence: { id: 'A', type_id: 0 } }, special('[SEP]')],
    pair: [],
    special_tokens: Object.fromEntries(
      ['[CLS]', '[SEP]'].map((name) => [name, { id: name, ids: [VOCABULARY.indexOf(name)], tokens: [name] }]),
    ),
  },
  decoder: { type: 'WordPiece', prefix: '##', cleanup: true },
  model: {
    type: 'WordPiece',
    unk_token: '[UNK]',
    continuing_subword_prefix: '##',
    max_input_chars_per_word: 100,
    vocab: Object.fromEntries(VOCABULARY.map((token, id) => [token, id])),
  },
})

function special(id: string): object {
  return { SpecialToken: { id, type_id: 0 } }
}

function randomWeights(): (name: string) => Tensor {
  const { width } = SHAPE
  let seed = 0
  return (name) => {
    seed++
    if (name.endsWith('LayerNorm.weight')) return { shape: [width], data: new Float32Array(width).fill(1) }
    if (name.endsWith('.bias')) return { shape: [sizeOf(name)], data: new Float32Array(sizeOf(name)) }
    const { shape, data } = randomTensor(seed, shapeOf(name))
    // Other vectors are the same in all texts.
    return name.includes('word_embeddings') ? { shape, data: data.map((value) => 10 * value) } : { shape, data }
  }
}

function sizeOf(name: string): number {
  return name.includes('intermediate') ? SHAPE.width * 2 : SHAPE.width
}

function shapeOf(name: string): readonly [number, number] {
  const { width } = SHAPE
  if (name.includes('word_embeddings')) return [VOCABULARY.length, width]
  if (name.includes('position_embeddings')) return [MAX_POSITIONS, width]
  if (name.includes('token_type_embeddings')) return [2, width]
  if (name.includes('intermediate')) return [width * 2, width]
  return /layer\.\d+\.output/.test(name) ? [width, width * 2] : [width, width]
}

function randomTensor(
  seed: number,
  shape: readonly [number, number],
): { shape: readonly number[]; data: Float32Array } {
  let state = seed * 7919 + 17
  const data = Float32Array.from({ length: shape[0] * shape[1] }, () => {
    state = (state * 48_271) % 2_147_483_647
    return state / 2_147_483_647 - 0.5
  })
  return { shape, data }
}
