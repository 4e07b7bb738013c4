/** The words by which errors of providers name the operator's projects, organizations and accounts in their cloud. */
import { nameSet } from './parse-body.ts'

/** Returns true if the words after `word`, such as `project` and `tenant_id`, name an account. */
export function isAccountWord(word: string, previousWord: string): boolean {
  return ACCOUNT_WORDS.has(fieldKey(word)) || (GROUP_WORDS.has(word) && previousWord === 'resource')
}

export function isAccountField(name: string): boolean {
  const key = fieldKey(name)
  return ACCOUNT_WORDS.has(key) || ACCOUNT_DETAILS.has(key)
}

/** Returns true for words between `project` and its name, as in `project with ID`. */
export function isNameIntroduction(word: string): boolean {
  return NAME_INTRODUCTIONS.has(word)
}

/**
 * Decides whether the word after `project` is a name. A lowercase word is one only after a label or before a verb, as in
 * `project: acme` and `project acme is`, because no list of the other words is complete.
 */
export function isAccountName(atom: string, isLabeled: boolean, nextWord: string | undefined): boolean {
  const word = atom.replace(/[.:]$/, '')
  if (!/^[\p{L}\p{M}]+$/u.test(word)) return !/^\d{1,4}$/.test(word) && !isAccountField(word)
  const key = word.toLowerCase()
  if (ORDINARY_WORDS.has(key) || NAME_INTRODUCTIONS.has(key) || VERBS.has(key)) return false
  return isLabeled || isCapitalized(word) || atom !== word || nextWord === undefined || VERBS.has(nextWord)
}

export function isCapitalized(word: string): boolean {
  return /^\p{Lu}/u.test(word)
}

/** Returns true for names such as `org-abc`, `account-acme` and `projects/acme`, but not for `org_id` and `user/assistant`. */
export function isAccountPath(word: string): boolean {
  const [, suffix] = ACCOUNT_PREFIX.exec(word) ?? []
  if (suffix !== undefined && !ORDINARY_SUFFIXES.has(suffix.toLowerCase())) return true
  const [first = '', second] = word.toLowerCase().split('/')
  return second !== undefined && PATH_WORDS.has(first) && !PATH_WORDS.has(second) && !ORDINARY_SUFFIXES.has(second)
}

/** Returns true for words and fields of limits, sizes and times, such as `max_tokens` and `resetAt`. */
export function isQuantity(name: string): boolean {
  const words = name.replaceAll(/([a-z])([A-Z])/g, '$1_$2').toLowerCase()
  return words.split(/[^a-z]+/).some((word) => QUANTITIES.has(word))
}

/** Returns true for words between a quantity and its number, as in `the limit is 5`. */
export function isQuantityFiller(word: string): boolean {
  return QUANTITY_FILLERS.has(word) || /^\d+$/.test(word)
}

/** Spellings such as `projectId`, `project_id` and `project-id` are one field. */
function fieldKey(name: string): string {
  return name.toLowerCase().replaceAll(/[_-]/g, '')
}

const ACCOUNT_PREFIX =
  /^(?:(?:org|proj|acct|wrkspc)[-_]|(?:project|account|tenant|organization|subscription|workspace)-)(.+)$/i

const ACCOUNT_WORDS = nameSet(
  'project projects projectid projectname projectnumber account accounts accountid accountname accountnumber ' +
    'awsaccountid billingaccount billingaccountid tenant tenants tenantid tenantname organization organizations ' +
    'organizationid organizationname org orgs orgid orgname subscription subscriptions subscriptionid subscriptionname ' +
    'resourcegroup resourcegroups resourcegroupname workspace workspaces workspaceid workspacename consumer',
)
const GROUP_WORDS = nameSet('group groups')

/** Fields of `details` that name an account, but are ordinary words in a text. */
const ACCOUNT_DETAILS = nameSet(
  'resourcename resourceid subject owner principal principalemail arn userarn customer customerid team teamid ' +
    'containerinfo clientid serviceaccount directoryid objectid',
)
const NAME_INTRODUCTIONS = nameSet('id ids identifier identifiers number numbers name names named called with')

const VERBS = nameSet(
  'is isn are aren was wasn has hasn have had does doesn do did didn can cannot could will won would must may might ' +
    'should not no exceeded exceeds reached lacks needs requires',
)

/** Words that follow `project`, `account` and the like, but are not their names. */
const ORDINARY_WORDS = nameSet(
  's t expected unexpected extra input inputs unrecognized unsupported got bad too one the a an and or nor but of in on at to for from by as if when while until after before because since that this ' +
    'these those which who you your our it its they their we there then than so only also still yet already currently ' +
    'please see check contact ask try use enable add create set make be been being access accessible active activated ' +
    'activation admin admins administrator administrators api apis associated available balance balances based been ' +
    'being billing blocked budget budgets changed closed configured configuration credentials credit credits deactivated ' +
    'default deleted denied details disabled does enabled error exist exists expired failed field fields found has ' +
    'header invalid inactive key keys level limit limited limits linked location locations manager manual member ' +
    'members membership missing model models needed off owner owners page parameter parameters payment permission ' +
    'permissions per plan plans policies policy privileges property quota quotas rate region regions request requests ' +
    'required resource resources role roles root service services setting settings setup spend spending state status ' +
    'string support suspended suspension team terminated tier token tokens type types under unverified up update usage ' +
    'used user users using value values verification verified verify via whose within without yaml tpm rpm tpd rpd itpm ' +
    'otpm json http null undefined true false unknown allowed allowlist allowlisted object array number integer boolean ' +
    'group groups wide specific account accounts project projects tenant tenants organization organizations subscription ' +
    'subscriptions workspace workspaces consumer',
)

const ORDINARY_SUFFIXES = nameSet(
  'id ids name names number numbers level wide specific based scoped owned provided supplied specified defined ' +
    'generated linked bound managed only key keys limit limits settings status type quota billing admin owner assistant ' +
    'system developer tool tools model function',
)
const PATH_WORDS = nameSet(
  'project projects organization organizations org orgs folders resourcegroup resourcegroups tenant tenants account ' +
    'accounts billingaccounts user users subscription subscriptions workspace workspaces team teams customers role ' +
    'roles assumed-role serviceaccounts',
)

const QUANTITIES = nameSet(
  'token tokens limit limits maximum minimum max min second seconds millisecond milliseconds ms byte bytes size length ' +
    'count total seed int integer between than least most epoch time timestamp reset resets expires expiry until created ' +
    'char chars character characters budget value range retry after delay requested requests used usage remaining',
)
const QUANTITY_FILLERS = nameSet('is are was were be of to from or and equal equals at about only exactly a an up')
