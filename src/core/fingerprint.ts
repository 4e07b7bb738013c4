/**
 * 53 bits that tell texts apart well enough to remember a count under; never for anything that must not be forged.
 */
export function fingerprintOf(text: string): number {
  let low = 0xdeadbeef ^ text.length
  let high = 0x41c6ce57 ^ text.length
  for (let at = 0; at < text.length; at++) {
    const code = text.charCodeAt(at)
    low = Math.imul(low ^ code, 0x85ebca77)
    high = Math.imul(high ^ code, 0xc2b2ae3d)
  }
  low = Math.imul(low ^ (low >>> 16), 0x735a2d97) ^ Math.imul(high ^ (high >>> 15), 0xcaf649a9)
  high = Math.imul(high ^ (high >>> 16), 0x735a2d97) ^ Math.imul(low ^ (low >>> 15), 0xcaf649a9)
  return 2097152 * (high >>> 0) + (low >>> 11)
}
