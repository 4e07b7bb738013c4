/**
 * Writes any JavaScript string as text that UTF-8 databases accept, and reads it back.
 *
 * NUL and lone surrogates are not valid in PostgreSQL text, and SQLite and Redis clients cut or replace them. Each
 * becomes the noncharacter U+FDD0 and four hexadecimal digits. Other text is unchanged, and a prefix stays a prefix.
 */
const ESCAPE = '\ufdd0'
const UNSAFE = /\ufdd0|\p{Surrogate}/gu
const ESCAPED = /\ufdd0([0-9a-f]{4})/g

export function encodeText(text: string): string {
  return text.replace(UNSAFE, escape).replaceAll('\0', escape)
}

export function decodeText(text: string): string {
  if (!text.includes(ESCAPE)) return text
  return text.replace(ESCAPED, (_match, digits: string) => String.fromCharCode(Number.parseInt(digits, 16)))
}

function escape(unit: string): string {
  return ESCAPE + unit.charCodeAt(0).toString(16).padStart(4, '0')
}
