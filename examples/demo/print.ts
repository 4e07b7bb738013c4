/** Width of a bar in columns. */
const BAR = 28

const isColored = process.stdout.isTTY && process.env['NO_COLOR'] === undefined

const paint = (code: number) => (text: string) => (isColored ? `\u001B[${code}m${text}\u001B[0m` : text)
export const bold = paint(1)
export const dim = paint(2)
export const green = paint(32)
export const yellow = paint(33)

/** Prints a heading and the file that implements the part. */
export function heading(title: string, code: string): void {
  console.log(`\n${bold(title)}  ${dim(code)}`)
}

export function line(text: string): void {
  console.log(`   ${text}`)
}

/** Returns a bar that is filled to `share` (0 to 1). */
export function bar(share: number): string {
  const filled = share === 0 ? 0 : Math.max(1, Math.round(share * BAR))
  return `${green('█'.repeat(filled))}${dim('·'.repeat(BAR - filled))}`
}

/** Returns an amount in dollars in the form of the gateway's headers: `$0.000123`. */
export function dollars(amount: number): string {
  return `$${amount.toFixed(6)}`
}
