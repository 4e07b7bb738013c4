/**
 * Returns the known name nearest to a misspelled one, compared without case; undefined when none is near.
 *
 * @param far Maximum distance. Default: a third of the name, at least 2.
 */
export function nearestName(
  given: string,
  known: readonly string[],
  far: number = Math.max(2, Math.floor(given.length / 3)),
): string | undefined {
  const name = given.toLowerCase()
  const distances = known.map((one) => distanceOf(one.toLowerCase(), name))
  const least = Math.min(...distances)
  return least > far ? undefined : known[distances.indexOf(least)]
}

/** The beginning of a name is near to the whole name. */
function distanceOf(known: string, given: string): number {
  return given.length > 2 && known.startsWith(given) ? 0 : distance(known, given)
}

/** The Levenshtein distance. */
export function distance(left: string, right: string): number {
  let previous = Array.from({ length: right.length + 1 }, (_, index) => index)
  for (let row = 1; row <= left.length; row++) {
    const current = [row]
    for (let column = 1; column <= right.length; column++) {
      const replaced = (previous[column - 1] ?? 0) + (left[row - 1] === right[column - 1] ? 0 : 1)
      current.push(Math.min(replaced, (previous[column] ?? 0) + 1, (current[column - 1] ?? 0) + 1))
    }
    previous = current
  }
  return previous.at(-1) ?? 0
}
