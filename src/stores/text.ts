/**
 * Writes any JavaScript string as text that UTF-8 databases accept, and reads it back.
 *
 * NUL and lone surrogates are not valid in PostgreSQL text, and are cut or replaced by SQLite and Redis clients. Each
 * becomes U+0001 and four hexadecimal digits. Other text is unchanged, and a prefix of a text stays a prefix.
 */
const ESCAPE = '\u0001'
const UNSAFE = /[\0\u0001]|\p{Surrogate}/gu
const ESCAPED = /\u0001([0-9a-f]{4})/g

export function encodeText(text: string): string {
  return text.replace(UNSAFE, (unit) => ESCAPE + unit.charCodeAt(0).toString(16).padStart(4, '0'))
}

export function decodeText(text: string): string {
  if (!text.includes(ESCAPE)) return text
  return text.replace(ESCAPED, (_match, digits: string) => String.fromCharCode(Number.parseInt(digits, 16)))
}
