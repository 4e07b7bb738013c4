type Method = (this: unknown, ...values: unknown[]) => unknown

const mapIterator = Object.getPrototypeOf(new Map().entries()) as object

/** Methods by the prototype that has them. A callback counts once per element. */
const COUNTED: readonly (readonly [object: object, names: readonly string[]])[] = [
  [Array.prototype, ['every', 'filter', 'find', 'flatMap', 'includes', 'map', 'reduce', 'slice', 'some']],
  [Map.prototype, ['get', 'has', 'set']],
  [mapIterator, ['next']],
]

/** Returns the number of array and map elements that built-in methods visit during a synchronous call. */
export function countSteps(run: () => unknown): number {
  let steps = 0
  const restored = COUNTED.flatMap(([object, names]) =>
    names.map((name) => {
      const original = Reflect.get(object, name) as Method
      const counting: Method = function (...values) {
        const [callback, ...others] = values
        if (typeof callback !== 'function') {
          const result = Reflect.apply(original, this, values) as unknown
          const isCopy = name === 'slice' && Array.isArray(result)
          const isSearch = name === 'includes' && Array.isArray(this)
          steps += isCopy ? result.length : isSearch ? this.length : 1
          return result
        }
        const counted: Method = function (...items) {
          steps += 1
          return Reflect.apply(callback, this, items) as unknown
        }
        return Reflect.apply(original, this, [counted, ...others]) as unknown
      }
      Reflect.set(object, name, counting)
      return () => Reflect.set(object, name, original)
    }),
  )
  try {
    run()
  } finally {
    for (const restore of restored) restore()
  }
  return steps
}
