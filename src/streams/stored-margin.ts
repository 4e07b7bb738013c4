/** Stored responses may contain the margin of their request, which a gateway with `headers.margin: false` does not show. */
import { type EventSink, textOf } from './event-buffer.ts'

const METRICS = /"svc_metrics":\{[^{}]*\}/g
const MARGIN_MEMBER =
  /"(?:theoretical_cost|actual_cost|savings_usd|profit_margin|savings_percent|original_cost|your_cost)":[^,}]*(,|(?=\}))/g

/**
 * Removes the margin from a stored response, JSON or events, without parsing it. A process with another `headers.margin`
 * may have stored the response. A string that contains the same text does not match, because its quotes are escaped.
 */
export function hideStoredMargin(text: string): string {
  return text.replace(METRICS, (metrics) => metrics.replace(MARGIN_MEMBER, '').replace(',}', '}'))
}

export function hideMarginInEvents(sink: EventSink): EventSink {
  return { ...sink, write: (chunk) => sink.write(hideStoredMargin(textOf(chunk))) }
}
