/** Loads a value by its first use and keeps it. A failed load is tried again by the next use. */
export function lazy<value>(load: () => Promise<value>): () => Promise<value> {
  let loading: Promise<value> | undefined
  return () => {
    if (loading !== undefined) return loading
    const attempt = load()
    loading = attempt
    attempt.catch(() => {
      if (loading === attempt) loading = undefined
    })
    return attempt
  }
}
