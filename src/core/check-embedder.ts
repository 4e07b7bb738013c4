import { numberFrom, objectWith, type OptionCheck } from './check-options.ts'
import { isJsonObject } from './json.ts'

const checkEmbedderShape = objectWith('an embedder, such as openaiEmbedder({ … })', ['dimensions', 'embed'])

const checkEmbedderPrice = numberFrom(0, 10_000, 'dollars per million tokens, from 0 to 10000')

export const checkEmbedder: OptionCheck = (value, path) => {
  const problem = checkEmbedderShape(value, path)
  const price = isJsonObject(value) ? value['price'] : undefined
  return problem ?? (price === undefined ? undefined : checkEmbedderPrice(price, `${path}.price`))
}
