export function requestIdOf(uuid: string): string {
  return `req_${hexDigitsOf(uuid)}`
}

/** Slices are several times faster than `replaceAll`. */
export function hexDigitsOf(uuid: string): string {
  return uuid.slice(0, 8) + uuid.slice(9, 13) + uuid.slice(14, 18) + uuid.slice(19, 23) + uuid.slice(24)
}
