import type { MaybePromise } from './async.ts'

export async function mapInSlices<T, Result>(
  values: readonly T[],
  size: number,
  map: (value: T) => MaybePromise<Result>,
): Promise<readonly Result[]> {
  const results: Result[] = []
  for (let from = 0; from < values.length; from += size) {
    results.push(...(await Promise.all(values.slice(from, from + size).map(map))))
  }
  return results
}
