/**
 * Words of questions whose answers expire soon, in widely spoken languages. A false match shortens the life of an entry
 * to a minute; it never causes a wrong answer.
 */
const WESTERN = [
  'today|tonight|tomorrow|yesterday|now|nowadays|current|currently|latest|newest|recent|recently|upcoming|weather|forecast|news',
  'at the moment|so far|what time|time is it|(?:this|next|last) (?:morning|week|weekend|month|quarter|year)',
  'heute|gestern|morgen|jetzt|aktuell(?:e[nrs]?)?|derzeit|neueste[nrs]?|wetter|nachrichten|uhrzeit',
  "aujourd['’]hui|hier|demain|maintenant|actuel|actuelle|actuellement|dernières?|météo",
  'hoy|ayer|mañana|ahora|actual|actualmente|últim[oa]s?|hoje|ontem|amanhã|agora|atual|atualmente',
  'oggi|ieri|domani|adesso|ora|attuale|vandaag|gisteren|nu|dzisiaj|teraz|bugün|şimdi|idag|nyheter',
].join('|')
const OTHERS =
  'сегодня|вчера|завтра|сейчас|последн|текущ|今天|今日|昨天|明天|现在|現在|最新|目前|今の|오늘|지금|현재|최신|اليوم|الآن|आज|अभी'
const TIME_SENSITIVE = new RegExp(`(?<!\\p{L})(?:${WESTERN})(?!\\p{L})|${OTHERS}`, 'iu')

/** Characters at the head and at the end of a long text that are searched. */
const SEARCHED_LENGTH = 2000

/** Returns true for a question whose answer changes with the day: `what is the latest version`. */
export function isTimeSensitive(text: string): boolean {
  const isLong = text.length > SEARCHED_LENGTH * 2
  return TIME_SENSITIVE.test(isLong ? `${text.slice(0, SEARCHED_LENGTH)} ${text.slice(-SEARCHED_LENGTH)}` : text)
}
