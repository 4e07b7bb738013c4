/**
 * What few requests need, loaded with the first of them. It is one module, because each module that is loaded by itself
 * splits the code that it shares with the rest of the gateway into further pieces.
 */
export { digestInTurns, longBlocksOf, longMediaOf } from '../core/digest.ts'
export { portablePrompt } from '../formats/portable.ts'
export * from './json-answer.ts'
