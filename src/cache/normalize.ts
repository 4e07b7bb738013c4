const CODE_FENCE = /```|~~~/
/** An indented line in a text with signs of program code or structured data, where white space has a meaning. */
const INDENTED_LINE = /\n[ \t]+\S/
const CODE_SIGN = /[={}();:<>[\]#]/
/** Text between quotation marks or backticks keeps its blanks. */
const QUOTED = /("[^"]*"|`[^`]*`|“[^“”]*”|«[^«»]*»)/u
const QUOTES = /["`“«]/
/** Blanks that are not a single space already. */
const BLANKS = /\s{2,}|[^\S ]/gu
/** In longer texts with quotation marks or program lines only line ends are normalized, which bounds the work. */
const MAX_NORMALIZED_LENGTH = 100_000

/** Returns true for a text whose lines and indentation may be program text. */
export function hasProgramLines(text: string): boolean {
  return CODE_FENCE.test(text) || (INDENTED_LINE.test(text) && CODE_SIGN.test(text))
}

/**
 * Returns the text after Unicode NFC and white-space normalization. Two texts with the same result are the same
 * question. In program text only line ends and the blanks before them change, because indentation has a meaning there.
 */
export function normalizeText(text: string): string {
  const composed = text.normalize('NFC')
  const quotes = QUOTES.test(composed)
  const keepsLines = hasProgramLines(composed) || (quotes && composed.length > MAX_NORMALIZED_LENGTH)
  if (keepsLines) return normalizeLines(composed)
  if (!quotes) return composed.replace(BLANKS, ' ').trim()
  const pieces = composed.split(QUOTED)
  return pieces
    .map((piece, index) => (index % 2 === 1 ? piece : piece.replace(BLANKS, ' ')))
    .join('')
    .trim()
}

function normalizeLines(composed: string): string {
  if (composed.length > MAX_NORMALIZED_LENGTH) return composed.replaceAll('\r\n', '\n').trimEnd()
  const lines = composed.split(/\r\n?|\n/).map((line) => line.trimEnd())
  const isWritten = (line: string): boolean => line !== ''
  return lines.slice(Math.max(0, lines.findIndex(isWritten)), lines.findLastIndex(isWritten) + 1).join('\n')
}
