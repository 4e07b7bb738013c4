/** Returns an amount as a person would say it: 340, or 12,000. */
export function roundTokens(tokens: number): string {
  const unit = tokens < 1000 ? 10 : 1000
  return String(Math.max(unit, Math.round(tokens / unit) * unit)).replace(/\B(?=(?:\d{3})+$)/g, ',')
}
