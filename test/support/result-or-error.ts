/** Returns the result of an action, or the error that it throws or rejects with. */
export async function resultOrError(action: () => unknown): Promise<unknown> {
  try {
    return await action()
  } catch (error) {
    return error
  }
}

/** Returns the result of an action as a promise, also if it returns or throws synchronously. */
export async function settled<value>(action: () => value | Promise<value>): Promise<value> {
  return action()
}
