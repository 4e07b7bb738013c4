const CODE_FENCE = /```|~~~/
/** An indented line in a text with signs of programs or of structured data: there, white space says something. */
const INDENTED_LINE = /\n[ \t]+\S/
const CODE_SIGN = /[={}();:<>[\]#]/
/** What stands between quotation marks or backticks keeps its blanks. */
const QUOTED = /("[^"]*"|`[^`]*`|“[^“”]*”|«[^«»]*»)/u
const QUOTES = /["`“«]/
/** Blanks that are not a single space already. */
const BLANKS = /\s{2,}|[^\S ]/gu
/** In a longer text with quotation marks or program lines only the line ends are folded, so that the work is bounded. */
const LONGEST_FOLDED = 100_000

/** True for a text whose lines and indentation may be program text. */
export function hasProgramLines(text: string): boolean {
  return CODE_FENCE.test(text) || (INDENTED_LINE.test(text) && CODE_SIGN.test(text))
}

/**
 * The text after Unicode NFC and white-space folding: two texts that fold to the same are the same question. In what
 * looks like program text only line ends and blanks before them are folded, because indentation has a meaning there.
 */
export function foldText(text: string): string {
  const composed = text.normalize('NFC')
  const quotes = QUOTES.test(composed)
  const keepsLines = hasProgramLines(composed) || (quotes && composed.length > LONGEST_FOLDED)
  if (keepsLines) return foldLines(composed)
  if (!quotes) return composed.replace(BLANKS, ' ').trim()
  const pieces = composed.split(QUOTED)
  return pieces
    .map((piece, index) => (index % 2 === 1 ? piece : piece.replace(BLANKS, ' ')))
    .join('')
    .trim()
}

function foldLines(composed: string): string {
  if (composed.length > LONGEST_FOLDED) return composed.replaceAll('\r\n', '\n').trimEnd()
  const lines = composed.split(/\r\n?|\n/).map((line) => line.trimEnd())
  const isWritten = (line: string): boolean => line !== ''
  return lines.slice(Math.max(0, lines.findIndex(isWritten)), lines.findLastIndex(isWritten) + 1).join('\n')
}
