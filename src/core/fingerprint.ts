/**
 * Returns a 53-bit fingerprint of a string, for a token-count cache. Collisions can be constructed, so a cache that
 * several tenants share needs a secret `seed`.
 */
export function fingerprintOf(text: string, seed: number = 0): number {
  let low = 0xdeadbeef ^ text.length ^ seed
  let high = 0x41c6ce57 ^ text.length ^ Math.imul(seed, 0x9e3779b1)
  for (let index = 0; index < text.length; index++) {
    const code = text.charCodeAt(index)
    low = Math.imul(low ^ code, 0x85ebca77)
    high = Math.imul(high ^ code, 0xc2b2ae3d)
  }
  low = Math.imul(low ^ (low >>> 16), 0x735a2d97) ^ Math.imul(high ^ (high >>> 15), 0xcaf649a9)
  high = Math.imul(high ^ (high >>> 16), 0x735a2d97) ^ Math.imul(low ^ (low >>> 15), 0xcaf649a9)
  return 2097152 * (high >>> 0) + (low >>> 11)
}
