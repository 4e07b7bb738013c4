/**
 * Loads a value when it is first needed and keeps it. A failure (a module that could not be read, say) rejects the
 * calls that wait for it, and the next call loads again.
 */
export function lazy<value>(load: () => Promise<value>): () => Promise<value> {
  let loading: Promise<value> | undefined
  const attempt = (): Promise<value> => {
    const started = Promise.resolve().then(load)
    started.catch(() => {
      if (loading === started) loading = undefined
    })
    return started
  }
  return () => (loading ??= attempt())
}
