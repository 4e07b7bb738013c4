/**
 * Returns whose counter or tally a name belongs to. In cluster mode all data of one owner is in one slot.
 *
 * Governance names counters `<kind>:<owner>:<window>:<start>`, where an owner is `key:<id>` or `shared:<id>`, and
 * tallies `usage:<key id>:<window>:<start>` and `usage-by-model:…`. Another name is an owner of its own.
 */
export function ownerOf(name: string): string {
  const [, counterOwner] = COUNTER.exec(name) ?? []
  if (counterOwner !== undefined) return counterOwner
  const [, keyId] = TALLY.exec(name) ?? []
  return keyId === undefined ? name : `key:${keyId}`
}

const COUNTER = /^(?:requests|tokens|budget):((?:key|shared):.*):[^:]+:\d+$/s
const TALLY = /^usage(?:-by-model)?:(.*):[^:]+:\d+$/s

/** Items of each owner by their place in the list, owners in ascending order: a key's own before shared ones. */
export function byOwner<item>(
  items: readonly item[],
  nameOf: (item: item) => string,
): ReadonlyMap<string, readonly number[]> {
  const groups = new Map<string, number[]>()
  for (const [index, item] of items.entries()) {
    const owner = ownerOf(nameOf(item))
    const group = groups.get(owner) ?? []
    groups.set(owner, group)
    group.push(index)
  }
  return new Map([...groups].toSorted(([a], [b]) => (a < b ? -1 : 1)))
}

/** The owner of a reservation without claims. */
export function ticketOwner(ticket: string): string {
  return `ticket:${ticket}`
}
