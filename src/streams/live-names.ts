/** The keys under which a process publishes a stream for the others. */
export const headKey = (name: string): string => `live:${name}`
export const partKey = (name: string, token: string, part: number): string => `live:${name}:${token}:${part}`
export const wantedKey = (name: string): string => `live-wanted:${name}`

/** Prefixes of all keys of the streams whose names begin with `beginning`. */
export function livePrefixes(beginning: string): readonly string[] {
  return [headKey(beginning), wantedKey(beginning)]
}
