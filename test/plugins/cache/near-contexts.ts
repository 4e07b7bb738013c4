/**
 * More pairs of requests that look alike and have different responses: those of 98 kinds, by a third author who had not read
 * the guard, that were hits or that no other file has. `test/laws/near-questions.test.ts` sends them.
 */
import type { JsonObject } from '../../../src/core/json.ts'
import { SLIPS, swap, type NearPair, type NearRequest } from './near-questions.ts'

/** The pairs of texts with each of these contexts. */
const within = (contexts: readonly Omit<NearRequest, 'text'>[]): readonly NearPair[] =>
  contexts.flatMap((context) =>
    SLIPS.map(
      ([one, other]) =>
        [
          { ...one, ...context },
          { ...other, ...context },
        ] as const,
    ),
  )

const text = { type: 'object', properties: { text: { type: 'string' } } }
const tool = (name: string): JsonObject => ({ tools: [{ type: 'function', function: { name, parameters: text } }] })
const response = (field: string): JsonObject => ({
  response_format: {
    type: 'json_schema',
    json_schema: { name: 'out', schema: { type: 'object', properties: { [field]: { type: 'string' } } } },
  },
})

export const NEAR_CONTEXTS: Readonly<Record<string, readonly NearPair[]>> = {
  'earlier turns show the work': within(
    [
      ['helo wat time is it', 'Hello, what time is it?'],
      ['Where is the dog?', 'Wo ist der Hund?', 'Is it late?', 'Ist es spät?'],
      ['Could you help me please', 'polite'],
      ['How are you?', '3 words'],
      ['I hate it.', 'negative', 'I like it.', 'positive'],
      ['wheres my bag', "You probably meant: where's my bag, with a comma."],
      ['The dog sleeps.', 'Le chien dort dans la grande maison.'],
    ].map((turns) => ({ turns })),
  ),
  'a tool takes the text': within(
    ['save', 'translate', 'log_transcript', 'record_politeness', 'count', 'setSubject'].map((name) => ({
      fields: tool(name),
    })),
  ),
  'the schema of the answer names the work': within(
    ['corrected', 'typos', 'politeness', 'word_count', 'french', 'greeting'].map((name) => ({
      fields: response(name),
    })),
  ),
  'a title ends in a courtesy': swap(
    `
    Who sang ◦?
    who wrote ◦?
    Who directed ◦?
    Who starred in ◦?
    Which band recorded ◦?
    Who produced ◦?
    Which actor plays in ◦?
    `,
    `
    yes please | yes
    pretty please | pretty
    no please | no
    stay, please | stay
    so long, thanks | so long
    baby, please | baby
    tickets please | tickets
    one more, please | one more
    wait please | wait
    help me please | help me
    come home, please | come home
    two coffees please | two coffees
    more, please | more
    not now please | not now
    silence please | silence
    `,
  ),
  'chemicals that resemble words': swap(
    `
    Where is ◦ found?
    Who discovered ◦?
    How do I store ◦ at home?
    What is ◦ made of?
    Why is ◦ so expensive?
    Who sells ◦ in large amounts?
    how is ◦ made?
    `,
    `
    methane | menthane
    nitrogen | nitrofen
    nicotine | nicotene | nicorine
    glycerol | glyceol
    adrenaline | adrenalone
    monotone | monoxone
    pesticide | penticide
    fluorite | florite
    reactive | reactine
    expansive | expansine
    sublimate | sublimase
    conjugate | conjugase
    formulate | formylate
    naphthalene | naphthacene
    `,
  ),
  'names that are composed of two words': swap(
    `
    When do I use ◦?
    How do I ◦ it?
    What is the point of ◦?
    Where do I find ◦?
    Who told you about ◦?
    why would anyone need ◦?
    `,
    `
    denounce | debounce
    pretender | prerender
    nutshell | nushell
    backfire | blackfire
    megaphone | metaphone
    landscape | timescape
    backend | blackend
    workshop | workship
    overflow | overglow
    hardware | hardwire
    homepage | homepace
    foothold | foothole
    firewall | wirewall
    keyboard | greyboard
    framework | frameword
    firefly | fireply
    pipeline | wipeline
    `,
  ),
  'the name of a package': swap(
    `
    How do I install ◦?
    Who maintains the package ◦?
    Why is npm ◦ so large?
    How do I import ◦ in a script?
    Is the library ◦ safe?
    Which version has the module ◦ now?
    `,
    `
    requests | reqeusts | requets
    python | pyhton
    express | exrpess | expres
    commander | comander
    colors | colros
    request | reqeust
    moment | momnet
    chalk | chakl
    winston | wisnton
    puppeteer | pupeteer
    browser | broswer
    events | evetns
    buffer | bufer
    process | proces
    `,
  ),
  'a misspelled word is the subject': swap(
    `
    Which error is in ◦?
    Does ◦ look right to you?
    What is wrong with ◦?
    Which mistake is in ◦?
    Does ◦ sound odd?
    Which dictionary lists ◦?
    How is ◦ said?
    Do people use ◦ in essays?
    `,
    `
    untill | until
    garantee | guarantee
    harrass | harass
    vaccuum | vacuum
    succesful | successful
    tommorow | tomorrow
    goverment | government
    recieve | receive
    noticable | noticeable
    cemetary | cemetery
    acheive | achieve
    neccessary | necessary
    can't | cannot
    what's up | what is up
    `,
  ),
  'medicines by their exact name': swap(
    `
    What is the usual dose of ◦ for an adult?
    Can I take ◦ pills with milk?
    What are the side effects of ◦?
    Is ◦ safe while pregnant?
    Which drug is stronger than ◦?
    How toxic is ◦?
    `,
    `
    hydroxyzine | hydralazine
    prednisone | prednisolone
    celebration | celebratio
    parasol | paradol
    optical | optival
    reactive | reactine
    sedative | sedatine
    relevant | redevant
    metronome | metronone
    vertical | vectical
    cultivate | cutivate
    vanguard | vangard
    provide | provive
    oblivion | oblivon
    microcode | microcide
    sulfate | sulfite
    magical | magcal
    `,
  ),
  'verbs with other particles': swap(
    `
    How do I ◦ the light?
    Can we ◦ the offer?
    What does a judge do to ◦ the case?
    When should I ◦ the car?
    Why did she ◦ the letter?
    how can they ◦ the meeting?
    `,
    `
    turn on | turn off | turn over
    put on | put off | put out
    look for | look after | look over
    give in | give up | give away
    call off | call on
    break into | break in
    hand in | hand out
    hold up | uphold
    take over | overtake
    back up | back off
    `,
  ),
  'the wished form of the answer': swap(
    `
    How do vaccines work? ◦
    Why do cats purr? ◦
    What is a bond? ◦
    Explain how a fridge cools. ◦
    When should I prune roses? ◦
    Tell me how bees communicate. ◦
    `,
    `
    Answer in French. | Answer in German.
    Be brief. | Be thorough.
    Use a table. | Use a list.
    Explain it to a child. | Explain it to an expert.
    In rhyme, please. | In prose, please.
    Short please. | Long please. | Please.
    Give two examples, thanks. | Give ten examples, thanks.
    Answer yes or no. | Answer in detail.
    Start with hello. | Start.
    Use at most 50 words. | Use at least 50 words.
    Please be funny. | Please be frank.
    Thanks, in Dutch. | Thanks, in Danish.
    No lists. | Lists.
    Use metric units. | Use imperial units.
    Say please at the end. | Say it at the end.
    `,
  ),
  'facts before the question': swap(
    `
    ◦. What should I cook for guests?
    ◦. Do I have to pay taxes?
    Hi! ◦. Can you recommend a holiday?
    ◦ - what do I need to know?
    ◦, so how do I start?
    Given that ◦, what fits?
    Hello, ◦, which gift would you choose?
    `,
    `
    I am vegan | I am vegetarian
    I am 17 | I am 71
    I have a dog | I have a rabbit | I have a dong
    I am pregnant | I am not pregnant
    my son is 3 | my son is 13
    I rent a flat | I own a flat
    I have no oven | I have one oven
    I drive a diesel | I drive an electric car
    I speak no French | I speak only French
    I work at night | I work at home
    I need it today | I need it in May
    I am an adult | I am an addict
    I am left-handed | I am right-handed
    I live in Ohio | I live in Utah
    `,
  ),
  'who does it and to whom it is done': swap(
    `
    Can a doctor ◦ there?
    When do citizens ◦?
    Why would he ◦ first?
    Who will ◦?
    How soon can a guest ◦?
    Must the tenant ◦?
    `,
    `
    pay | be paid
    vaccinate | be vaccinated
    sue | be sued
    call | be called | have called
    examine | be examined
    invite | be invited
    choose | be chosen
    hire | be hired
    teach | be taught
    warn | be warned
    help | be helped
    insure | be insured
    move | be moved
    follow | be followed
    replace | be replaced
    `,
  ),
}
