/**
 * 53 bits that tell texts apart well enough to remember a count under; never for anything that must not be forged. What
 * several tenants share takes a `seed` that no caller knows, so that none can prepare two texts of one fingerprint.
 */
export function fingerprintOf(text: string, seed: number = 0): number {
  let low = 0xdeadbeef ^ text.length ^ seed
  let high = 0x41c6ce57 ^ text.length ^ Math.imul(seed, 0x9e3779b1)
  for (let at = 0; at < text.length; at++) {
    const code = text.charCodeAt(at)
    low = Math.imul(low ^ code, 0x85ebca77)
    high = Math.imul(high ^ code, 0xc2b2ae3d)
  }
  low = Math.imul(low ^ (low >>> 16), 0x735a2d97) ^ Math.imul(high ^ (high >>> 15), 0xcaf649a9)
  high = Math.imul(high ^ (high >>> 16), 0x735a2d97) ^ Math.imul(low ^ (low >>> 15), 0xcaf649a9)
  return 2097152 * (high >>> 0) + (low >>> 11)
}
