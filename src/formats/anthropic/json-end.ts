/**
 * Watches a JSON object that comes in pieces and says after each whether it is closed: from then on nothing but blanks
 * can follow. Linear, and never holds the text.
 */
export function jsonEnd(): (piece: string) => boolean {
  let depth = 0
  let inText = false
  let escaped = false
  let closed = false
  return (piece) => {
    for (const sign of piece) {
      if (inText) {
        if (escaped) escaped = false
        else if (sign === '\\') escaped = true
        else if (sign === '"') inText = false
      } else if (sign === '"') inText = true
      else if (sign === '{' || sign === '[') depth++
      else if (sign === '}' || sign === ']') closed = --depth <= 0
    }
    return closed
  }
}
