/** The value of a step, or what it threw or rejected with. */
export async function resultOrError(step: () => unknown): Promise<unknown> {
  try {
    return await step()
  } catch (error) {
    return error
  }
}

/** The step as a promise, also when it returns or throws at once. */
export async function settled<value>(step: () => value | Promise<value>): Promise<value> {
  return step()
}
