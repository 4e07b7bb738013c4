/** Reads the fields of a request. The errors name the path of the field and what was expected. */
import { isJsonObject, type Json, type JsonObject } from '../core/json.ts'
import { isSafeModelName } from '../core/prompt.ts'
import { GatewayError } from '../core/errors.ts'
import { modelNameError } from './parse-body.ts'

const MAX_ECHO_LENGTH = 100

export function fieldError(param: string, value: Json | undefined, expected: string): GatewayError {
  return new GatewayError('invalid-request', `${param} is ${describeValue(value)}; expected ${expected}.`, { param })
}

function describeValue(value: Json | undefined): string {
  if (value === undefined) return 'missing'
  if (value === null) return 'null'
  if (Array.isArray(value)) return value.length === 0 ? 'an empty array' : 'an array'
  if (typeof value === 'object') return 'an object'
  if (typeof value !== 'string') return String(value)
  return value.length > MAX_ECHO_LENGTH ? `a string of ${value.length} characters` : JSON.stringify(value)
}

export function isAbsent(value: Json | undefined): value is null | undefined {
  return value === undefined || value === null
}

export function objectAt(value: Json | undefined, param: string, expected = 'an object'): JsonObject {
  if (isJsonObject(value)) return value
  throw fieldError(param, value, expected)
}

export function stringAt(value: Json | undefined, param: string, expected = 'a string'): string {
  if (typeof value === 'string') return value
  throw fieldError(param, value, expected)
}

export function arrayAt(value: Json | undefined, param: string, maxLength: number): readonly Json[] {
  if (!Array.isArray(value)) throw fieldError(param, value, `an array of at most ${maxLength} elements`)
  if (value.length <= maxLength) return value as readonly Json[]
  const message = `${param} has ${value.length} elements; expected at most ${maxLength}. Send fewer.`
  throw new GatewayError('invalid-request', message, { param })
}

export function booleanAt(value: Json | undefined, param: string): boolean | undefined {
  if (isAbsent(value)) return undefined
  if (typeof value === 'boolean') return value
  throw fieldError(param, value, 'true or false')
}

export interface NumberBounds {
  readonly min: number
  readonly max?: number
  readonly isInteger?: boolean
}

export function numberAt(value: Json | undefined, param: string, bounds: NumberBounds): number | undefined {
  if (isAbsent(value)) return undefined
  const { min, max = Number.MAX_VALUE, isInteger = false } = bounds
  const isInRange = typeof value === 'number' && value >= min && value <= max
  if (isInRange && (!isInteger || Number.isInteger(value))) return value
  throw fieldError(param, value, describeRange(bounds))
}

export function describeRange({ min, max, isInteger = false }: NumberBounds): string {
  return `${isInteger ? 'an integer' : 'a number'}${max === undefined ? ` of ${min} or more` : ` from ${min} to ${max}`}`
}

export function readModelName(value: Json | undefined): string {
  if (typeof value !== 'string' || value === '') throw fieldError('model', value, 'the name of a model')
  if (isSafeModelName(value)) return value
  throw modelNameError({ code: 'invalid_model' })
}

export function isUnset(value: Json | undefined): boolean {
  return isAbsent(value) || value === false || (Array.isArray(value) && value.length === 0)
}
