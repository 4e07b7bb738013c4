/** A value that is there already, or will be. */
export type MaybePromise<value> = value | Promise<value>

export function isPromise<value>(given: MaybePromise<value>): given is Promise<value> {
  return given instanceof Promise
}

/** Goes on with a value: at once when it is there, so that nothing waits that need not. */
export function chain<value, result>(
  given: MaybePromise<value>,
  goOn: (value: value) => MaybePromise<result>,
): MaybePromise<result> {
  return isPromise(given) ? given.then(goOn) : goOn(given)
}
