const CODE_FENCE = /```|~~~/
/** An indented line in a text with signs of programs or of structured data: there, white space says something. */
const INDENTED_LINE = /\n[ \t]+\S/
const CODE_SIGN = /[={}();:<>[\]#]/
/** What stands between quotation marks or backticks keeps its blanks. */
const QUOTED_OR_BLANK = /("[^"]*"|`[^`]*`|“[^“”]*”|«[^«»]*»)|\s+/gu

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
  if (!hasProgramLines(composed)) return composed.replace(QUOTED_OR_BLANK, (_, quoted?: string) => quoted ?? ' ').trim()
  const lines = composed.split(/\r\n?|\n/).map((line) => line.trimEnd())
  const isWritten = (line: string): boolean => line !== ''
  return lines.slice(Math.max(0, lines.findIndex(isWritten)), lines.findLastIndex(isWritten) + 1).join('\n')
}
