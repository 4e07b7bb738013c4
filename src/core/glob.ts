/** True if `name` matches the pattern, in which `*` matches any characters. Faster than a regular expression with several `.*`. */
export function glob(pattern: string, name: string): boolean {
  const [start = '', ...parts] = pattern.split('*')
  const end = parts.pop()
  if (end === undefined) return name === pattern
  if (!name.startsWith(start)) return false
  let position = start.length
  for (const part of parts) {
    const found = name.indexOf(part, position)
    if (found === -1) return false
    position = found + part.length
  }
  return name.length - end.length >= position && name.endsWith(end)
}
