/**
 * Pairs of requests that look alike and have different responses, written by someone who had not read `src/cache`.
 * `test/laws/near-questions.test.ts` sends them.
 */
import type { JsonObject } from '../../../src/core/json.ts'

export interface NearRequest {
  readonly system?: string
  /** Earlier user messages and their responses. */
  readonly turns?: readonly string[]
  /** Other fields of the request. */
  readonly fields?: JsonObject
  /** An earlier user message. It was answered with "OK.". */
  readonly earlier?: string
  readonly text: string
}

export type NearPair = readonly [NearRequest, NearRequest]

/** Fewer pairs are not enough to say something about a kind. */
export const MIN_PAIRS = 100

/** Marks the place in a frame where the two requests differ. */
const GAP = '◦'

const lines = (text: string): readonly string[] =>
  text
    .split('\n')
    .map((line) => line.trim())
    .filter((line) => line !== '')

/** Line breaks and tabs are written as \n and \t, so that a frame is one line. */
const unescape = (text: string): string => text.replaceAll('\\n', '\n').replaceAll('\\t', '\t')

const fill = (frame: string, filling: string): NearRequest => ({ text: unescape(frame.replaceAll(GAP, filling)) })

/** Each frame with any two alternatives of a group. Groups are lines of alternatives with `|` between them. */
export function swap(frames: string, groups: string): readonly NearPair[] {
  const alternatives = lines(groups).map((group) => group.split(' | '))
  return lines(frames).flatMap((frame) =>
    alternatives.flatMap((group) =>
      pairsOf(group).map(([one, other]) => [fill(frame, one), fill(frame, other)] as const),
    ),
  )
}

const pairsOf = <Item>(items: readonly Item[]): (readonly [Item, Item])[] =>
  items.flatMap((one, at) => items.slice(at + 1).map((other) => [one, other] as const))

/** Each frame with two fillings in both orders. `◦` is the first and `•` the second. */
function order(frames: string, fillings: string): readonly NearPair[] {
  const items = lines(fillings).map((line) => line.split(' | '))
  return lines(frames).flatMap((frame) =>
    items.flatMap((group) =>
      pairsOf(group).map(([one, other]) => {
        const put = (first: string, second: string): NearRequest => ({
          text: frame.replaceAll(GAP, first).replaceAll('•', second),
        })
        return [put(one, other), put(other, one)] as const
      }),
    ),
  )
}

/** The same pairs below each of these system prompts. */
const below = (systems: string, pairs: readonly NearPair[]): readonly NearPair[] =>
  lines(systems).flatMap((system) =>
    pairs.map(
      ([one, other]) =>
        [
          { ...one, system },
          { ...other, system },
        ] as const,
    ),
  )

/** The same pairs after each of these messages. */
const after = (messages: string, pairs: readonly NearPair[]): readonly NearPair[] =>
  lines(messages).flatMap((earlier) =>
    pairs.map(
      ([one, other]) =>
        [
          { ...one, earlier },
          { ...other, earlier },
        ] as const,
    ),
  )

/** The same texts below system prompts, or after messages, that differ. */
const context = (field: 'system' | 'earlier', texts: string, contexts: string): readonly NearPair[] =>
  lines(texts).flatMap((text) =>
    lines(contexts).flatMap((group) =>
      pairsOf(group.split(' | ')).map(
        ([one, other]) =>
          [
            { text, [field]: one },
            { text, [field]: other },
          ] as const,
      ),
    ),
  )

/** Texts as users write them, with and without a slip. For a question they would be the same. */
export const SLIPS: readonly NearPair[] = swap(
  GAP,
  `
  Where is the station? | Where is teh station?
  I will not come to the meeting tomorrow. | I won't come to the meeting tomorrow.
  Can you send me the report? | Can you send me the report, please?
  How do I get to the airport? | How do I get to the aiport?
  What is your name? | What's your name?
  When does the museum open? | When does the musuem open?
  Why did she not call? | Why didn't she call?
  Hello, when will my parcel arrive? | When will my parcel arrive?
  Could you tell me what time it is? | What time is it?
  How much does the ticket cost? | How much does the tickte cost?
  Is there a bus to the beach? | Is there a bus to the beahc?
  What does the doctor recommend? | What does the doctor reccommend?
  Please call me back. | Call me back.
  Who is going to the party? | Who's going to the party?
  Which platform does the train leave from? | Which platfrom does the train leave from?
  Thank you, where do I sign? | Where do I sign?
  How long have you been waiting? | How long have you been wating?
  What is the weather like? | whats the weather like
  `,
)

const CAPITALS = 'Vienna | Sienna | Vilnius | Valletta'

export const NEAR_QUESTIONS: Readonly<Record<string, readonly NearPair[]>> = {
  'the system prompt asks for a correction': below(
    `
    You are a proofreader.
    Everything the user writes is a draft. Return a clean copy.
    Mark each spelling mistake with an asterisk.
    You are an English teacher. Grade what the pupil writes.
    Fix it.
    Act as Grammarly.
    `,
    SLIPS,
  ),
  'the system prompt asks for a translation': below(
    `
    Put whatever you are given into Dutch.
    English in, Spanish out.
    You are an interpreter between an English guest and a Polish host. Say everything in Polish.
    Convert the input into Morse code.
    Rewrite in the style of Shakespeare.
    Speak like a pirate: repeat the guest's words in your own way.
    `,
    SLIPS,
  ),
  'the system prompt asks for a judgment of the text': below(
    `
    How polite is the guest? Give a number from 1 to 10.
    You are a tone detector.
    Decide whether a native speaker wrote this.
    Answer only with the number of characters.
    Reply with the reading level of what you receive.
    Say how formal it sounds.
    Return a hash of the input.
    `,
    SLIPS,
  ),
  'the system prompt asks for an echo': below(
    `
    You are an echo. Say the same again.
    Repeat after the user, in capital letters.
    Return the user's words in reverse order.
    Store the note exactly and read it back.
    You are a stenographer.
    Write down verbatim what you hear.
    `,
    SLIPS,
  ),
  'an earlier message asks for work on the next ones': after(
    `
    From now on, repeat each of my messages in capital letters.
    I am learning English. Point out all my errors.
    Be my Spanish voice: whatever I type, say it in Spanish.
    Let's play a game. You count the letters of what I say next.
    I will dictate a letter. Write down each sentence.
    Tell me how rude my next messages are.
    `,
    SLIPS,
  ),
  'the task comes before the text': swap(
    `
    Fix the grammar: ◦
    Translate to German: ◦
    How does this sound to you? ◦
    Make this shorter - ◦
    Say it in Latin ("◦")
    Is this correct English? ◦
    Reply in my name to: ◦
    Proofread\\n\\n◦
    Count the letters in «◦»
    `,
    `
    I have not seen him. | I haven't seen him. | I havent seen him.
    Please bring the book. | Bring the book. | Bring the book, please.
    We recieved the goods. | We received the goods.
    Its late. | It's late. | It is late.
    He go home. | He goes home. | he goes home
    The the cat sat. | The cat sat.
    `,
  ),
  'the task comes after the text': swap(
    `
    ◦ Is that sentence correct?
    ◦\\nTranslate the line above.
    "◦" Who says something like that?
    ◦ - how do I answer this mail?
    ◦ // improve
    ◦ How many words is that?
    ◦ <- rewrite this
    ◦\\n\\nTL;DR
    `,
    `
    I have not seen him. | I haven't seen him. | I havent seen him.
    Please bring the book. | Bring the book. | Bring the book, please.
    We recieved the goods. | We received the goods.
    Its late. | It's late. | It is late.
    He go home. | He goes home. | he goes home
    The the cat sat. | The cat sat.
    `,
  ),
  'questions about spelling and letters': swap(
    `
    Is ◦ spelled right?
    How many letters does ◦ have?
    What rhymes with ◦?
    How do you pronounce ◦?
    How often does the letter e occur in ◦?
    Which word is an anagram of ◦?
    Write ◦ backwards.
    How do I hyphenate ◦?
    Define ◦ and then spell it.
    `,
    `
    accommodate | accomodate | acommodate
    receive | recieve
    separate | seperate
    definitely | definately | definitly
    calendar | calender
    necessary | neccessary
    tomorrow | tommorow
    parallel | paralell
    `,
  ),
  'which of two forms': swap(
    `
    Do I write ◦?
    When do I use ◦?
    Which one is British, ◦?
    What is the difference between ◦?
    Why do people mix up ◦?
    Explain to a pupil: ◦?
    Which is older, ◦?
    Is there a rule for ◦?
    `,
    `
    its or it's | it's or its | its or its'
    can't or cannot | cannot or can't | can not or cannot
    who's or whose | whose or who's
    color or colour | colour or color
    they're or their | their or there | there or they're
    don't or do not | do not or don't
    let's or lets | lets or let us
    grey or gray | gray or grey
    `,
  ),
  'courtesies that belong to a name': swap(
    `
    Who wrote ◦?
    Who sang ◦?
    When was ◦ released?
    What is ◦ about?
    Where was ◦ made?
    How long is ◦?
    Which year is ◦ from?
    `,
    `
    Hello Kitty | Kitty
    Please Please Me | Please Me
    Hey Jude | Jude
    Thank You for Smoking | Smoking
    Dear John | John
    Tell Me Why | Why
    Good Morning Vietnam | Vietnam
    Excuse Me Sir | Sir
    Hi Chew | Chew
    Sorry Sorry | Sorry
    Can You Feel the Love Tonight | Feel the Love Tonight
    Please Like Me | Like Me
    I Want to Know What Love Is | What Love Is
    Thanks for Sharing | Sharing
    Hello Goodbye | Goodbye
    `,
  ),
  'courtesies that are the subject': swap(
    `
    How do I say ◦ in Spanish?
    What is the Japanese word for ◦?
    Where does ◦ come from?
    When do Germans say ◦?
    Is it rude not to say ◦?
    How do I answer ◦?
    `,
    `
    please | thank you | hello | sorry | excuse me
    good morning | good evening | good night
    hi | hey | hello there
    thanks | thanks a lot | many thanks
    `,
  ),
  'contractions with two meanings': swap(
    GAP +
      `
    Tell me: ◦
    Quick question: ◦
    Riddle. ◦
    `,
    `
    What's he done? | What is he done? | What has he done?
    Who'd you like to see? | Who did you like to see? | Who would you like to see?
    Where's it been? | Where is it been?
    What'd you do? | What would you do? | What did you do?
    How's she become so rich? | How is she become so rich?
    Who's finished? | Who is finished? | Who has finished?
    When'd he go? | When would he go? | When did he go?
    Why'd they leave? | Why would they leave? | Why did they leave?
    What's the teacher's pet? | What is the teacher is pet?
    Let's leave, right? | Let us leave, right?
    He'd put it away, when? | He had put it away, when? | He would put it away, when?
    What's that got to do with it? | What is that got to do with it?
    Who's the boss's friend? | Whose the boss's friend?
    `,
  ),
  'apostrophes that change the word': swap(
    `
    What does ◦ be mean here?
    Which tense is ◦ go?
    How do I use ◦ in a sentence?
    Where does the stress fall in ◦?
    Is ◦ old fashioned?
    What is the plural of ◦?
    `,
    `
    well | we'll
    were | we're
    hell | he'll
    shell | she'll
    ill | I'll
    shed | she'd
    wed | we'd
    wont | won't
    cant | can't
    id | I'd
    whore | who're
    boys | boy's | boys'
    girls | girl's | girls'
    ones | one's
    lets | let's
    `,
  ),
  digits: swap(
    `
    How do I cook rice for ◦ people?
    What is the square root of ◦?
    Is ◦ a prime number?
    What happened in room ◦?
    How far can I go with ◦ euros?
    Which bus goes to stop ◦?
    How many calories are in ◦ eggs?
    `,
    `
    2 | 3 | 12 | 20
    1,000 | 10,000 | 1000,5
    1.5 | 15 | 1,5 | 0.15
    -4 | 4
    7 | 7.0001
    1/2 | 1/3 | 2/1
    1e3 | 1e4
    `,
  ),
  'number words': swap(
    `
    How do I divide ◦ apples among us?
    What can I buy for ◦ dollars?
    Who was the author of the book with ◦ chapters?
    How heavy are ◦ bricks?
    Where can ◦ guests sleep?
    How long do ◦ trees live?
    Who wrote about the ◦ sisters?
    What if I miss ◦ lessons?
    `,
    `
    two | three | ten
    fifteen | fifty | five
    thirteen | thirty
    sixty | sixteen
    a hundred | a thousand | a million
    one dozen | two dozen
    half a dozen | a dozen
    a billion | a trillion
    `,
  ),
  'ordinals and Roman numerals': swap(
    `
    Who was the ◦ king?
    What happened in the ◦ act?
    When did the ◦ crusade begin?
    Who won the ◦ race?
    What is the ◦ amendment?
    Who is on the ◦ floor?
    `,
    `
    first | second | third | last
    1st | 2nd | 3rd
    21st | 22nd
    II | III | IV | VI
    XI | IX
    penultimate | ultimate
    `,
  ),
  units: swap(
    `
    How much is 5 ◦ in grams?
    How fast is 100 ◦?
    Is 40 ◦ a lot?
    How do I convert 7 ◦?
    What costs 3 ◦ of it?
    How big is a file of 8 ◦?
    `,
    `
    mg | Mg | mcg | kg
    MB | Mb | MiB | GB
    km | mi | m | nm
    °C | °F | K
    ml | cl | dl | l
    kW | kWh | MW | mW
    oz | lb | fl oz
    kPa | hPa | Pa
    `,
  ),
  dates: swap(
    `
    What happened on ◦?
    Which day of the week was ◦?
    How many days are left until ◦?
    Who was born on ◦?
    What is the deadline after ◦?
    What was the weather on ◦?
    Who won the match on ◦?
    `,
    `
    3/4/2020 | 4/3/2020 | 3/4/2021
    May 1 | May 11 | May 1st, 1901
    2001-02-03 | 2001-03-02
    July 4, 1776 | July 14, 1789
    Monday | Tuesday | Sunday
    January 31 | January 13
    New Year's Day | New Year's Eve
    Christmas Day | Christmas Eve
    Easter Sunday | Easter Monday
    `,
  ),
  'years and eras': swap(
    `
    Who ruled Egypt in ◦?
    What was invented in ◦?
    How many people lived in Rome in ◦?
    Which war was fought in ◦?
    What did people wear in ◦?
    Which books were popular in ◦?
    `,
    `
    1914 | 1941 | 1918 | 1814
    44 BC | 44 AD
    the 1890s | the 1980s | the 1990s
    the 12th century | the 21st century | the 12th century BC
    the early Bronze Age | the late Bronze Age
    Q1 1999 | Q2 1999 | Q1 1998
    the 60s | the '60s
    `,
  ),
  'clock times and zones': swap(
    `
    Is the shop open at ◦?
    What is ◦ in Tokyo time?
    Which train leaves at ◦?
    Who is on duty at ◦?
    How long is it from noon until ◦?
    What is on TV at ◦?
    Why is it dark at ◦?
    `,
    `
    8 am | 8 pm
    12:30 | 13:20 | 12:03
    noon | midnight
    7 EST | 7 EDT | 7 CET | 7 UTC
    half past six | half past seven | quarter past six
    ten to five | ten past five
    `,
  ),
  'past and future distance': swap(
    `
    What was the date ◦?
    Where will the comet be ◦?
    How old was my car ◦?
    What moon phase is it ◦?
    Was it a leap year ◦?
    Who is the chair ◦?
    `,
    `
    3 days ago | in 3 days | 13 days ago
    two years ago | in two years | twenty years ago
    a week before | a week after
    within an hour | after an hour
    since Monday | until Monday | on Monday
    for a year | in a year | a year ago
    last week | next week | this week
    `,
  ),
  'first names': swap(
    `
    Who is ◦ Miller?
    Where does ◦ live?
    What did ◦ write about the war?
    How old is my cousin ◦?
    When is the name day of ◦?
    Which saint is called ◦?
    `,
    `
    Jon | Joan | John | Jan
    Brian | Brain | Bryan
    Carla | Clara | Carlo
    Alice | Alicia
    Marta | Martha | Marta's
    Leo | Lea | Leon
    Stephen | Stefan | Stephanie
    Eric | Erica
    `,
  ),
  'names without capitals': swap(
    `
    where was ◦ born
    what is ◦ famous for
    how tall is ◦
    who is ◦ married to
    which songs did ◦ write
    is ◦ still alive
    `,
    `
    john mayer | john meyer
    kate moss | kate mosse
    paul simon | paul simons | paul simmons
    neil young | neil yong
    jimmy page | jimmy pace
    brian may | brian mays
    tom hardy | tom hardly | tim hardy
    steve martin | steve marvin
    peter green | peter greene
    james brown | james browne
    michael moore | michael more
    chris martin | christ martin
    david byrne | david burne
    tim burton | tim barton
    adam levine | adam levin
    ryan adams | bryan adams
    sam smith | sam smyth
    `,
  ),
  'cities and countries': swap(
    `
    How do I get to ◦ by train?
    What is the population of ◦?
    Do I need a visa for ◦?
    What do people eat in ◦?
    Who is the mayor of ◦?
    Which language is spoken in ◦?
    `,
    `
    ${CAPITALS}
    Austria | Australia
    Slovenia | Slovakia
    Niger | Nigeria
    Iran | Iraq
    Guinea | Guyana | New Guinea | Equatorial Guinea
    North Korea | South Korea
    Paris, Texas | Paris, France
    Dominica | the Dominican Republic
    `,
  ),
  'companies and products': swap(
    `
    How much does the ◦ cost?
    Is the ◦ waterproof?
    When was the ◦ announced?
    Which chip does the ◦ have?
    How do I reset the ◦?
    Should I buy the ◦?
    `,
    `
    iPhone 15 | iPhone 15 Pro | iPhone 5 | iPhone 15 Plus
    Xbox One S | Xbox One X | Xbox Series S
    Galaxy S21 | Galaxy S12 | Galaxy A21
    Model 3 | Model S | Model Y
    PS4 | PS5 | PS4 Pro
    ThinkPad X1 | ThinkPad T1
    `,
  ),
  'new words of technology': swap(
    `
    what is ◦ used for
    how do I install ◦
    is ◦ free
    who maintains ◦
    what are the alternatives to ◦
    how fast is ◦
    `,
    `
    valkey | valley
    deno | demo
    vite | vine | kite
    zod | zed
    hono | honor
    podman | postman
    grok | groq
    mistral | mistrial
    gemma | gamma
    llama | lama
    qwen | queen
    ollama | llama
    kafka | kapka
    nginx | nginz
    keras | keras2
    redis | rediss
    pnpm | npm
    mypy | mypi
    `,
  ),
  'medical terms': swap(
    `
    what is ◦
    how is ◦ treated
    what are the symptoms of ◦
    is ◦ dangerous
    which doctor treats ◦
    `,
    `
    hypotension | hypertension
    hypothyroidism | hyperthyroidism
    hypoglycemia | hyperglycemia
    dysphagia | dysphasia
    ileum pain | ilium pain
    abduction | adduction
    arthritis | arteritis
    hydroxyzine | hydralazine
    prednisone | prednisolone
    celebrex | celexa
    perineal pain | peroneal pain
    gastritis | gastroenteritis
    hyperkalemia | hypokalemia
    macrocytosis | microcytosis
    endocarditis | pericarditis
    vaginitis | vaginismus
    tinea | tinnitus
    apnea | apnoea diving
    otitis media | otitis externa
    lamotrigine | lamivudine
    `,
  ),
  chemistry: swap(
    `
    what is the formula of ◦
    is ◦ toxic
    at what temperature does ◦ boil
    how do I store ◦
    what is ◦ made from
    `,
    `
    ethanol | methanol | ethanal
    butane | butene | butyne
    sodium sulfate | sodium sulfite | sodium sulfide
    nitrate | nitrite | nitride
    chlorate | chlorite | chloride
    phosphate | phosphite
    propanol | propanal | propanone
    potassium | sodium
    carbon dioxide | carbon monoxide
    ammonia | ammonium
    `,
  ),
  codes: swap(
    `
    What does error ◦ mean?
    Which airport is ◦?
    What color is ◦?
    Where is ◦ located?
    Who uses the code ◦?
    `,
    `
    404 | 403 | 440
    0x80070005 | 0x80070050 | 0x80007005
    SFO | SJC | SFU
    #ff0000 | #ff00ff | #f00000
    E404 | E-404 | e404
    192.168.1.1 | 192.168.1.11 | 192.168.11.1
    1a2b-3c4d | 1a2b-3c4e
    ISBN 978-3-16-148410-0 | ISBN 978-3-16-148410-8
    10115 | 10151
    `,
  ),
  abbreviations: swap(
    `
    What does ◦ do?
    Who founded the ◦?
    How does ◦ work?
    Is ◦ secure?
    When was ◦ introduced?
    What replaced ◦?
    `,
    `
    TCP | UDP | TCP/IP
    HTTP | HTTPS
    CIA | FBI | NSA
    AC | DC | AC/DC
    RAM | ROM
    DNA | RNA | mRNA
    GPT | GPS
    MRI | fMRI
    ssh | ssl
    POP3 | IMAP
    `,
  ),
  versions: swap(
    `
    What is new in Python ◦?
    How do I upgrade to ◦?
    Is ◦ still supported?
    When was Node ◦ released?
    Which bugs does ◦ have?
    `,
    `
    3.1 | 3.10 | 3.1.0 | 31
    2 | 3
    v1 | v2 | 1
    1.0-beta | 1.0 | 1.0-rc
    20.1.2 | 20.2.1
    >=4 | <4 | ^4 | ~4
    `,
  ),
  'file names and paths': swap(
    `
    What is in ◦?
    How do I open ◦?
    May I delete ◦?
    Who owns ◦?
    Why is ◦ so large?
    `,
    `
    config.yml | config.yaml | config.yml.bak
    /usr/bin | /usr/sbin | usr/bin
    index.ts | index.tsx | Index.ts
    ~/.ssh/id_rsa | ~/.ssh/id_rsa.pub
    .env | env | .env.local
    C:\\Temp | C:\\temp2 | D:\\Temp
    src/a.js | src/b.js | srca.js
    a b.txt | ab.txt | a_b.txt
    `,
  ),
  'shell options': swap(
    `
    What does ◦ do?
    Is it safe to run ◦?
    Explain ◦ to me
    Why does ◦ fail?
    How long does ◦ take?
    `,
    `
    ls -a | ls -A | ls a
    grep -v | grep -V
    curl -o | curl -O
    tar -x | tar -X
    ssh -p | ssh -P
    rm -rf . | rm -rf ./* | rm -rf /
    git reset | git reset --hard | git reset --soft
    cat a > b | cat a >> b | cat a < b | cat a | b
    kill -9 1 | kill 91
    echo $HOME | echo '$HOME' | echo "$HOME"
    chmod 755 | chmod 775
    `,
  ),
  code: swap(
    `
    What is the output of ◦?
    Does ◦ compile?
    Why is ◦ false?
    Refactor ◦ for me.
    How does ◦ work in this language?
    `,
    `
    a == b | a === b | a = b
    i++ | ++i | i--
    x < 3 | x <= 3 | x > 3
    f(a, b) | f(b, a) | f(a b)
    arr.sort | arr.sort! | arr.sort()
    empty? | empty
    foo.Bar | foo.bar | fooBar | foo_bar
    "a" + 1 | 'a' + 1 | a + 1
    x && y | x & y | x || y
    *p | &p | **p
    let x | var x | const x
    `,
  ),
  'code in several lines': swap(
    `
    ◦\\n\\nWhat does this print?
    Fix this:\\n◦
    Here is my code\\n\`\`\`\\n◦\\n\`\`\`\\nIs it right?
    ◦
    Explain this code.\\n\\n◦\\n
    Rewrite in Go:\\n◦
    What is wrong?\\n\\n◦
    ◦\\n// why?
    `,
    `
    if a:\\n  b()\\n  c() | if a:\\n  b()\\nc()
    for i in x:\\n\\tprint(i)\\n\\tbreak | for i in x:\\n\\tprint(i)\\nbreak
    a:\\n  - b\\n  - c | a:\\n  - b\\n- c
    x = 1\\ny = 2 | y = 2\\nx = 1
    SELECT a\\nFROM b | SELECT b\\nFROM a | SELECT a FROM b
    const a = 'x'\\nlog(a) | const a = "x"\\nlog(A)
    return\\n1 | return 1
    print("A") | print("a") | print("A ")
    # x = 1\\ny = x | x = 1\\ny = x
    int a;\\nint b; | int a\\nint b;
    begin\\n\\nend | begin\\nend
    `,
  ),
  'regular expressions and patterns': swap(
    `
    What does ◦ match?
    Is ◦ greedy?
    How do I write ◦ in Java?
    Simplify ◦
    Does ◦ accept an empty string?
    `,
    `
    a+ | a* | a? | a
    [a-z] | [A-Z] | [^a-z]
    \\\\d | \\\\D | d
    ^a$ | ^a | a$
    (ab)+ | ab+ | a(b+)
    *.js | **.js | .js
    x{2} | x{3} | x{2,}
    `,
  ),
  mathematics: swap(
    `
    What is ◦?
    Solve ◦
    Why is ◦ not 10?
    Can you calculate ◦?
    Simplify ◦ for me
    `,
    `
    5! | 5 | 5!!
    2 + 3 | 2 - 3 | 2 * 3 | 2 / 3
    2^3 | 3^2 | 2*3
    x < y | x > y | x ≤ y
    (1 + 2) * 3 | 1 + 2 * 3
    |x| | x
    sin x | cos x | sin 2x
    5 mod 3 | 3 mod 5
    x² | x³ | x2
    n choose k | k choose n
    a : b | b : a
    `,
  ),
  'games and music notation': swap(
    `
    Is ◦ a good move?
    What comes after ◦?
    Who plays ◦ best?
    How do I read ◦?
    What is the answer to ◦?
    Should a beginner learn ◦?
    `,
    `
    Nf3 | Nf3! | Nf3? | Nf6 | Nf3+
    e4 e5 | e4 e6 | e5 e4
    O-O | O-O-O
    Bb | B | BB
    C# | C | Cb | C♯m
    F minor | F major | F sharp minor
    3/4 time | 4/4 time
    exd5 | ed5#
    `,
  ),
  'scores, sizes and ratios': swap(
    `
    Who scored when it was ◦?
    How large is ◦?
    What does ◦ mean?
    How likely is ◦?
    When was it last ◦?
    Which one is ◦?
    `,
    `
    2-1 | 1-2 | 21
    8x10 | 10x8 | 8x100
    1:2 | 2:1 | 1:20
    50/50 | 50/5
    size S | size L | size M
    4K | 4k | 4 K
    16:9 | 9:16
    6-4, 4-6 | 4-6, 6-4
    10% | 10%% | 10‰ | 1.0%
    `,
  ),
  currencies: swap(
    `
    How much are 100 ◦?
    Can I pay in ◦ in Geneva?
    What does a flat cost in ◦?
    Is the price of 20 ◦ fair?
    How did 5 ◦ look in 1990?
    Where can I exchange ◦?
    `,
    `
    dollars | euros | pounds | yen
    US dollars | Canadian dollars | Australian dollars
    Swiss francs | French francs
    USD | EUR | CUC | CUP
    $ | € | £ | ¥
    cents | dollars
    Norwegian kroner | Danish kroner
    pesos | Mexican pesos | Chilean pesos
    `,
  ),
  negation: swap(
    `
    Which animals ◦ eat meat?
    Why ◦ people sleep at night?
    When ◦ metals rust?
    What if plants ◦ get water?
    Who says that fish ◦ feel pain?
    How come children ◦ like spinach?
    `,
    `
    do | do not | don't ever
    can | can't | can hardly
    will | won't
    should | should not | shouldn't have to
    did | didn't | did not even
    must | mustn't | need not
    could | couldn't
    `,
  ),
  'negation elsewhere': swap(
    `
    Is it ◦ to work here?
    What is ◦ in chess?
    Why is smoking ◦?
    Where is fishing ◦?
    How do I make the change ◦?
    Tell me which plants are ◦
    `,
    `
    legal | illegal | not illegal
    possible | impossible | not possible
    allowed | not allowed | disallowed
    safe | unsafe | not safe
    healthy | unhealthy
    visible | invisible | barely visible
    reversible | irreversible
    edible | inedible
    with license | without license
    `,
  ),
  'questions that expect yes or no': swap(
    `
    ◦ Paris in Italy?
    ◦ whales fish?
    ◦ the moon a planet?
    ◦ tomatoes a vegetable?
    ◦ glass a liquid?
    ◦ penguins birds?
    ◦ Pluto still a planet?
    ◦ this the right way?
    ◦ two a prime number?
    ◦ Ankara the capital?
    ◦ Latin a dead language?
    ◦ the bridge safe?
    ◦ he the author?
    `,
    `
    Is | Isn't | Was
    Are | Aren't | Were
    Why is | Why isn't
    When is | When was
    `,
  ),
  quantifiers: swap(
    `
    Which laws apply to ◦ citizens?
    Do ◦ birds fly?
    Why do ◦ students fail?
    What happens if ◦ members vote against it?
    How can ◦ of them be right?
    `,
    `
    all | some | most | no | not all
    few | a few | quite a few
    many | several
    every | any | each
    both | neither | either
    at least ten | at most ten | exactly ten | more than ten
    half the | twice the
    `,
  ),
  tense: swap(
    `
    What ◦ the queen say?
    Where ◦ the army sleep?
    Why ◦ Tom need a lawyer?
    How ◦ the river flood the town?
    Who ◦ the committee choose?
    When ◦ the factory close?
    What ◦ it cost?
    `,
    `
    did | does | will | would
    has to let | had to let
    might have made | might make
    may | might | must | can
    used to make | is used to make
    `,
  ),
  person: swap(
    `
    How do I change ◦ name?
    Where is ◦ passport?
    What is ◦ blood group?
    Can I use ◦ car?
    When does ◦ lease end?
    `,
    `
    my | your | his | her | their | our
    my father's | my mother's | my father in law's
    the king's | the kings' | the king
    his own | her own
    `,
  ),
  comparison: swap(
    `
    Which city is ◦ Rome?
    Which animal is ◦ a horse?
    What is ◦ steel?
    Who is ◦ my boss?
    Which country is ◦ Spain?
    What sounds ◦ a violin?
    Which metal is ◦ tin?
    Is my son ◦ his friends?
    `,
    `
    larger than | smaller than | as large as
    more expensive than | less expensive than
    better than | worse than | as good as
    nearly as old as | twice as old as | half as old as
    much faster than | a little faster than | slower than
    the same as | different from
    `,
  ),
  superlatives: swap(
    `
    What is the ◦ river in Asia?
    Who is the ◦ person alive?
    Which is the ◦ planet?
    What was the ◦ battle of the war?
    Where is the ◦ building?
    Who wrote the ◦ poem?
    `,
    `
    longest | shortest | second longest | least long
    oldest | youngest | third oldest
    biggest | bigger | big
    most famous | least famous | more famous
    highest | lowest
    best known | least known
    `,
  ),
  'order of two things': order(
    `
    Is ◦ better than •?
    How do I convert ◦ to •?
    Who moved from ◦ to •?
    Does ◦ own •?
    Did ◦ come before •?
    How do I use ◦ instead of •?
    Why did ◦ attack •?
    How much more ◦ than • do I need?
    `,
    `
    iron | copper | gold
    Celsius | Fahrenheit | Kelvin
    London | Berlin | Rome
    Disney | Marvel
    France | England
    PNG | JPEG | GIF
    butter | oil
    `,
  ),
  'order of words': swap(
    `
    What is a ◦?
    Where can I buy a ◦?
    How do I draw a ◦?
    Who invented the ◦?
    How much does a ◦ cost?
    `,
    `
    houseboat | boathouse
    milk chocolate | chocolate milk
    guide dog | dog guide
    card game | game card
    bus station | station bus
    horse race | race horse
    ring finger | finger ring
    paper wall | wall paper
    garden flower | flower garden
    work group | group work
    party birthday | birthday party
    book cook | cook book
    sugar cane | cane sugar
    pot plant | plant pot
    bird cage | cage bird
    glass window | window glass
    shop pet | pet shop
    light house | house light
    show talk | talk show
    video music | music video
    `,
  ),
  'who does it to whom': order(
    `
    Who said that ◦ saw •?
    When did ◦ marry •?
    Why does ◦ hate •?
    Where did ◦ meet the sister of •?
    Was ◦ killed by •?
    Did ◦ teach •?
    What did ◦ give to •?
    How did ◦ beat •?
    Why was ◦ afraid of •?
    How can ◦ help •?
    `,
    `
    Anna | Bob | the baker
    Caesar | Brutus
    Plato | Socrates | Aristotle
    Tom | Jerry
    the cat | the dog | the mouse
    `,
  ),
  'active and passive': swap(
    `
    Who ◦ the president?
    Which dog ◦ the man?
    What ◦ the sun?
    Which team ◦ the champion?
    Which firm ◦ Google?
    Which woman ◦ the boy?
    Who says the king ◦ the people?
    Which state ◦ the union?
    `,
    `
    killed | was killed by
    saw | was seen by
    chose | was chosen by
    followed | was followed by | is following
    likes | is liked by
    beats | is beaten by | beat
    bought | was bought by | will be bought by
    calls | is called by
    `,
  ),
  'places and prepositions': swap(
    `
    Is there a cafe ◦ the station?
    What lies ◦ the bridge?
    Who lives ◦ the church?
    How do I park ◦ the museum?
    Can I sleep ◦ the train?
    Where is the bank ◦ the river?
    `,
    `
    in | on | under | above
    behind | in front of | near | far from
    inside | outside
    before | after
    within 5 km of | beyond 5 km of
    to the left of | to the right of
    north of | south of | east of
    `,
  ),
  directions: swap(
    `
    How do I turn the knob ◦?
    Which way is ◦ from here?
    Why does water flow ◦?
    How do I scroll ◦?
    What happens if I push it ◦?
    How do I walk ◦?
    Should the arrow point ◦?
    Why did the ship move ◦?
    `,
    `
    left | right
    up | down | upside down
    clockwise | counterclockwise
    north | south
    forward | backward
    in | out
    upstream | downstream
    inward | outward | onward
    eastward | westward
    `,
  ),
  'question words': swap(
    `
    ◦ did she leave?
    ◦ do they pay?
    ◦ is it done?
    ◦ can I park?
    ◦ should one drink?
    ◦ will he return?
    ◦ does he sing?
    ◦ are we to wait?
    ◦ has it rained?
    `,
    `
    Why | When | Where | How
    How often | How long | How soon
    What time | Which day
    With whom | For whom
    Since when | Until when
    `,
  ),
  'modal verbs': swap(
    `
    ◦ I take aspirin with coffee?
    What ◦ a landlord ask?
    When ◦ a soldier refuse?
    Why ◦ I pay this fee?
    How ◦ we reply to the court?
    Where ◦ a tourist smoke?
    Which papers ◦ I sign?
    ◦ we wear masks indoors?
    `,
    `
    Can | Should | Must | May
    could | would | need
    might | must
    can | can only
    should | should never
    do | would
    did | could
    `,
  ),
  'opposite verbs': swap(
    `
    How do I ◦ the service?
    What does it cost to ◦ it?
    Why should I ◦ the file?
    How can we ◦ this?
    Who may ◦ an account?
    Is it hard to ◦ a drive?
    `,
    `
    install | uninstall | reinstall
    enable | disable
    open | close | reopen
    encode | decode
    encrypt | decrypt
    mount | unmount
    push | pull
    lock | unlock
    import | export
    upgrade | downgrade
    attach | detach
    freeze | unfreeze
    pack | unpack
    `,
  ),
  'particles of verbs': swap(
    `
    How do I ◦ the engine?
    Why did he ◦ the offer?
    When should I ◦ the kids?
    Who will ◦ the meeting?
    How do I ◦ my coat?
    What does it mean to ◦ someone?
    Is it wise to ◦ now?
    `,
    `
    turn on | turn off | turn down
    put on | put off | put out
    take on | take off | take up
    look up | look after | look into
    call off | call in
    bring up | bring down
    set up | set off
    pick up | pick on
    `,
  ),
  conjunctions: [
    ...swap(
      `
      What happens ◦ it rains?
      Do I pay tax ◦ I leave?
      Can I get a refund ◦ the train is late?
      Do cats sleep ◦ they eat?
      What do I do ◦ the alarm rings?
      Who is in charge ◦ she travels?
      `,
      `
      if | unless | even if | only if
      before | after | until
      while | when | whenever
      because | although
      `,
    ),
    ...swap(
      `
      Which drinks contain milk ◦ sugar?
      Can I bring a dog ◦ a cat?
      Who has a car ◦ a bike?
      `,
      `
      and | or | but not | nor | without
      `,
    ),
  ],
  'adverbs of time and degree': swap(
    `
    Is the shop ◦ open?
    Why is he ◦ late?
    Is it ◦ full?
    Are they ◦ alone?
    Who is ◦ hungry?
    `,
    `
    always | often | sometimes | rarely | never
    still | already | not yet | no longer
    almost | completely | not quite
    too | very | rather
    only | even | also
    really | actually
    `,
  ),
  'place of only': swap(
    GAP +
      `
    Is it true: ◦
    Tell me: ◦
    `,
    `
    Can only he enter? | Can he only enter? | Only can he enter?
    Who only eats fish? | Who eats only fish? | Only who eats fish?
    Did only Tom call Ann? | Did Tom only call Ann? | Did Tom call only Ann?
    Do not all birds fly? | Do all birds not fly?
    Are even experts wrong? | Are experts even wrong?
    Is he just a friend? | Is just he a friend?
    Does almost everyone win? | Does everyone almost win?
    Will she alone drive? | Will she drive alone?
    May I also come? | May also I come?
    Who else can help? | Who can help else?
    Did nearly all die? | Did all nearly die?
    What happened then exactly? | What exactly happened then?
    Can I eat here now? | Can I eat now here?
    Who rarely speaks? | Rarely who speaks?
    When did he first visit? | When did he visit first?
    Is the most common error serious? | Is the common error most serious?
    Are both his kids ill? | Are his kids both ill?
    Why do people really lie? | Why do people lie, really?
    Who is still there? | Who is there still?
    Did Ann too leave? | Did Ann leave too?
    How well do you know it? | How do you know it well?
    Which one only costs a dollar? | Only which one costs a dollar?
    Would he rather stay? | Rather, would he stay?
    Is it hardly raining? | Hardly is it raining?
    Can you simply explain it? | Can you explain it simply?
    Did she happily not die? | Did she not die happily?
    Will it clearly fail? | Will it fail clearly?
    Who naturally grows tall? | Naturally, who grows tall?
    Is he too clever? | Is he clever too?
    `,
  ),
  'plural and singular': swap(
    `
    What is the meaning of ◦ in law?
    How do I clean ◦?
    Where can I find ◦?
    What do people do with ◦?
    How do I pay for ◦?
    `,
    `
    damage | damages
    glass | glasses
    custom | customs
    good | goods
    arm | arms
    wood | woods
    spectacle | spectacles
    mean | means
    iron | irons
    minute | minutes
    ground | grounds
    paper | papers
    cloth | clothes
    color | colors
    spirit | spirits
    manner | manners
    saving | savings
    earning | earnings
    water | waters
    draught | draughts
    `,
  ),
  articles: swap(
    `
    What does it mean that ◦?
    Why is it that ◦?
    Who said: ◦?
    How can it be that ◦?
    Is it true that ◦?
    Does it matter that ◦?
    `,
    `
    few came | a few came
    little is known | a little is known
    the number is rising | a number is rising
    he went to school | he went to the school | he went to a school
    she is in hospital | she is in the hospital
    it is out of question | it is out of the question
    a king died | the king died
    man is mortal | the man is mortal | a man is mortal
    he is in office | he is in the office
    she plays piano man | she plays the piano man
    they sat at table | they sat at the table
    most people left | the most people left
    he has an eye | he has the eye
    we went to bed | we went to the bed
    `,
  ),
  'words that sound alike': swap(
    `
    What is a ◦ good for?
    How do I use the word ◦?
    Where does ◦ come from?
    Is there another name for ◦?
    What kind of ◦ is the most common?
    `,
    `
    complement | compliment
    principal | principle
    stationary | stationery
    desert | dessert
    brake | break
    cereal | serial
    capital | capitol
    discreet | discrete
    bare | bear
    flour | flower
    hair | hare
    mail | male
    pair | pear
    plain | plane
    sail | sale
    root | route
    waist | waste
    council | counsel
    currant | current
    mussel | muscle
    `,
  ),
  'slips that are words': swap(
    `
    what is a ◦
    how do I find a ◦
    where is the ◦
    who needs a ◦
    why is the ◦ so long
    `,
    `
    trial | trail
    angel | angle
    diary | dairy
    form | from
    martial court | marital court
    causal link | casual link
    customer | costumer
    united party | untied party
    nuclear plan | unclear plan
    sacred cow | scared cow
    quiet room | quite room
    loose screw | lose screw
    tried horse | tired horse
    calm sea | clam sea
    bowl game | bowel game
    singer | signer
    board meeting | broad meeting
    silver coin | sliver coin
    reality check | realty check
    deified man | defied man
    `,
  ),
  'one letter more': swap(
    `
    what is a ◦ called in Italian
    how heavy is a ◦
    how do you draw a ◦
    where do I buy a ◦
    what is the price of a ◦
    `,
    `
    plan | plane | planet
    star | start | stare
    car | cart | card
    pan | pant | pain
    ten | tent
    bow | bowl
    cap | cape
    tub | tube
    pin | pine | pint
    win | wine | wing
    bar | bark | barn
    stick | sticker
    `,
  ),
  'capitals that change the meaning': swap(
    `
    What is ◦?
    How do I learn about ◦?
    Where do I find ◦?
    Who likes ◦?
    Tell me about ◦
    `,
    `
    polish | Polish
    turkey | Turkey
    china | China
    march | March
    aids | AIDS
    apple | Apple
    windows | Windows
    bush | Bush
    mercury | Mercury
    reading | Reading
    nice | Nice
    bath | Bath
    job | Job
    java | Java
    python | Python
    rust | Rust
    amazon | Amazon
    oracle | Oracle
    swift | Swift
    jordan | Jordan
    chile | Chile
    `,
  ),
  hyphens: swap(
    `
    What does ◦ mean?
    Is ◦ allowed?
    Who would ◦?
    How do I ◦?
    When did they ◦?
    `,
    `
    resign | re-sign
    recover | re-cover
    recreate | re-create
    reform | re-form
    unionized | un-ionized
    man eating | man-eating
    co-op | coop
    resent | re-sent
    release | re-lease
    relay | re-lay
    repress | re-press
    resort | re-sort
    remark | re-mark
    retreat | re-treat
    reserve | re-serve
    represent | re-present
    recount | re-count
    dispose | dis-pose
    small business owner | small-business owner
    old furniture dealer | old-furniture dealer
    `,
  ),
  spaces: swap(
    `
    What does ◦ mean?
    Is ◦ correct here?
    How do I use ◦?
    Why did she write ◦?
    When do I write ◦?
    `,
    `
    everyday | every day
    maybe | may be
    altogether | all together
    sometime | some time
    already | all ready
    into | in to
    anyone | any one
    nowhere | now here
    cannot | can not
    login | log in
    setup | set up
    backup | back up
    awhile | a while
    apart | a part
    anyway | any way
    onto | on to
    overall | over all
    blackbird | black bird
    greenhouse | green house
    hotdog | hot dog
    `,
  ),
  'commas and full stops': swap(
    GAP +
      `
    ◦ Explain.
    `,
    `
    Shall we eat, grandma? | Shall we eat grandma?
    Do you like cooking, dogs and kids? | Do you like cooking dogs and kids?
    Who is Bill, the king? | Who is Bill the king?
    No, sugar is bad? | No sugar is bad?
    Did the men who were tired leave? | Did the men, who were tired, leave?
    What is this thing called, love? | What is this thing called love?
    Can you call me, Ann? | Can you call me Ann?
    Is it Mr Smith, the baker or the cook? | Is it Mr Smith the baker, or the cook?
    Stop. Clubbing baby seals? | Stop clubbing baby seals?
    Who said I am, sir? | Who said I am sir?
    Why do panda eats, shoots and leaves? | Why do panda eats shoots and leaves?
    What, is he dead? | What is he, dead? | What is he dead?
    How, old man? | How old, man? | How old man?
    Where is no, sir? | Where is no sir?
    Yes, we can? | Yes we can?
    Is that, you know, who? | Is that you-know-who?
    When is time, up? | When is time up?
    Help, your friend Ted? | Help your friend Ted?
    Do I pay you, John? | Do I pay you John?
    Who kills, bears? | Who kills bears?
    Which, one? | Which one?
    Why, not? | Why not?
    Let's see, Bob? | Let's see Bob?
    Were you there, then? | Were you there then?
    Do you know, Paul? | Do you know Paul?
    Can I hit it, now? | Can I hit it now?
    Pardon? Impossible to execute? | Pardon impossible? To execute?
    Is woman, without her man, nothing? | Is woman, without her, man nothing?
    Should I sell 1,5 shares? | Should I sell 1, 5 shares? | Should I sell 1.5 shares?
    What is a.m? | What is am?
    Do as I say, not as I do? | Do as I say not, as I do?
    Does it matter, really? | Does it, matter really?
    Who is I, Robot? | Who is I Robot?
    Is St. John here? | Is St John, here?
    Is he a U.S. citizen? | Is he a US, citizen?
    Where are my Ph.D students? | Where are my Ph. D students?
    How is B.A. paid? | How is BA paid?
    Has he read 1. Samuel? | Has he read 1 Samuel?
    Is no. 4 lucky? | Is no 4 lucky?
    Are co. rules strict? | Are co rules strict?
    Is op. 9 hard? | Is op 9 hard?
    Is it rated R. Kelly? | Is it rated R, Kelly?
    Can gin. be drunk? | Can gin be drunk?
    Is art. 5 in force? | Is art 5 in force?
    `,
  ),
  'marks at the end': swap(
    `
    What does ◦
    How do I call ◦
    Who made ◦
    When should I use ◦
    Explain ◦
    What is the type of ◦
    `,
    `
    map! | map
    sort! | sort
    save! | save
    nil! | nil
    Yahoo! | Yahoo?!
    C++ | C | C#
    .NET | NET
    A* | A | A+
    valid! | valid
    Guess Who? | Guess Who
    $x | @x | x
    x' | x
    `,
  ),
  'symbols and emoji': swap(
    `
    What does ◦ mean?
    Who uses ◦?
    How do I type ◦?
    What is the opposite of ◦?
    Is ◦ polite?
    `,
    `
    🙂 | 🙁 | 🙂🙂
    🇩🇪 | 🇧🇪
    👍 | 👎 | 👍🏿
    ♂ | ♀
    → | ← | ⇒
    ≤ | < | ≥
    m² | m³ | m2
    α | a | а
    µm | mm
    ① | 1 | ②
    ½ | ¼ | 12
    :-) | :-( | ;-)
    © | ®
    `,
  ),
  'lines and lists': swap(
    `
    Sort this\\n◦
    ◦\\nWhich one is first?
    Here are my notes\\n\\n◦\\n\\nMake a table.
    ◦
    Read this to me\\n◦
    `,
    `
    a b\\nc | a\\nb c | a b c
    1. x\\n2. y | 1. y\\n2. x | 1) x\\n2) y
    - a\\n- b | - a\\n  - b | - a - b
    roses are\\nred | roses\\nare red | roses are red
    # A\\n## B | ## A\\n# B | A\\nB
    a\\tb | a b | ab
    x\\n\\ny | x\\ny
    **a** b | a **b** | a b
    a|b|c | a||bc
    one, two\\nthree | one\\ntwo, three
    `,
  ),
  'how to answer': swap(
    `
    What is photosynthesis, ◦?
    Explain gravity ◦
    Tell me about Kant ◦
    List the planets ◦
    How does a fridge work? Answer ◦
    Summarize Hamlet ◦
    Write about trees ◦
    `,
    `
    in one sentence | in two sentences | in one word
    in French | in Spanish | in old French
    as JSON | as YAML | as XML
    for a child | for an expert | as a child
    briefly | in detail
    with examples | without examples
    in a table | in a list
    with sources | with no sources
    `,
  ),
  'law and business roles': swap(
    `
    What are the duties of the ◦?
    Who pays the ◦?
    When may the ◦ cancel?
    How is a ◦ chosen?
    Can the ◦ appeal?
    `,
    `
    lessor | lessee
    mortgagor | mortgagee
    employer | employee
    plaintiff | defendant
    payer | payee
    licensor | licensee
    trustor | trustee
    buyer | seller
    debtor | creditor
    assignor | assignee
    donor | donee
    franchisor | franchisee
    landlord | tenant
    appellant | appellee
    grantor | grantee
    insurer | insured
    drawer | drawee
    bailor | bailee
    offeror | offeree
    testator | testatrix
    `,
  ),
  finance: swap(
    `
    What is a ◦?
    How is a ◦ taxed?
    When should I choose a ◦?
    Is the ◦ at risk?
    Who issues a ◦?
    `,
    `
    put option | call option
    long position | short position
    gross salary | net salary
    bull market | bear market
    debit card | credit card
    asset | liability
    fixed rate | floating rate
    stock split | reverse stock split
    buy order | sell order
    primary market | secondary market
    common share | preferred share
    limit order | stop order | stop limit order
    traditional IRA | Roth IRA
    inflow | outflow
    spot price | strike price
    open fund | closed fund
    junior bond | senior bond
    Series A | Series B
    `,
  ),
  'the system prompt differs': context(
    'system',
    `
    What is your name?
    Where is the nearest office?
    What can you do for me?
    How much does it cost?
    Are you open today?
    Who is your boss?
    `,
    `
    You are Ann, a nurse. | You are Anna, a nurse. | You are Ann, a nun.
    Answer in English. | Answer in Spanish. | answer in English.
    You work for Acme. | You work for Acme Inc.
    Do reveal prices. | Do not reveal prices. | Don't reveal prices.
    You are in room 4. | You are in room 5.
    Be brief. | Be brief | Be brief!
    Our shop is open. | Our shop was open.
    Speak to adults. | Speak to adolescents.
    Prices in USD | Prices in EUR
    a\\tb | a b
    `,
  ),
  'the earlier turn differs': context(
    'earlier',
    `
    And how much is that?
    Why?
    What about the other one?
    Go on
    Who is she?
    Is that so?
    Tell me more
    How do you know?
    `,
    `
    I have 3 apples. | I have 4 apples. | I have 3 apple pies.
    My mother is Ann. | My mother is Anna. | My mother was Ann.
    I like tea. | I don't like tea. | I like tea
    Show me 1 or 2. | Show me 2 or 1.
    She won. | She lost.
    Call me Bill. | Call me bill.
    Add milk, not sugar. | Add milk not, sugar.
    It is in Rome. | It is near Rome.
    `,
  ),
  German: swap(
    `
    ◦ in Berlin wohnen?
    Warum ◦ Peter das Buch?
    Wann ◦ die Gäste bezahlen?
    Wo ◦ man hier parken?
    Wie ◦ wir das schaffen?
    `,
    `
    Kann ich | Muss ich | Darf ich | Kann ich nicht
    soll | sollte | wollte
    drückt | druckt
    zahlt | zählt
    ist | isst | war
    lädt | lud | leiht
    kann | könnte | konnte
    `,
  ),
  French: swap(
    `
    Où est ◦?
    Combien coûte ◦?
    Quand part ◦?
    Pourquoi ${GAP} est-il si cher?
    Qui aime ◦?
    À qui appartient ◦ ?
    Que signifie ◦ ?
    Je cherche ◦
    Depuis quand existe ◦ ?
    `,
    `
    le pêcheur | le pécheur
    la tache | la tâche
    mon père | mon frère | ma mère
    le train de 8 h | le train de 18 h
    le premier roi | le dernier roi
    l'avocat | l'avocate
    le vin rouge | le vin rosé | le vin rose
    un livre | une livre
    le côté | la côte
    `,
  ),
  Spanish: swap(
    `
    ¿Cuánto cuesta ◦?
    ¿Dónde está ◦?
    ¿Quién conoce ◦?
    ¿Por qué no funciona ◦?
    ¿Cuándo llega ◦?
    ¿Qué significa ◦?
    ¿De quién es ◦?
    Busco ◦
    ¿Cómo es ◦?
    `,
    `
    el papa | el papá
    la papa | la papá
    el hombre | el hambre | el hombro
    el tren de las dos | el tren de las doce
    mi caso | mi casa
    la primera calle | la tercera calle
    el ano | el año
    la cola | la col
    el niño | la niña | los niños
    `,
  ),
  Italian: swap(
    `
    Dove si trova ◦?
    Quanto costa ◦?
    Perché ◦ è chiuso?
    Quando arriva ◦?
    Chi ha visto ◦?
    Che cosa significa ◦?
    Di chi è ◦?
    Cerco ◦
    Come si dice ◦?
    `,
    `
    il pero | la pera
    la pena | la penna
    il nono piano | il primo piano
    la casa | la cassa | il caso
    il capello | il cappello
    il treno delle sei | il treno delle sette
    mio nonno | mio nono
    il papa | il papà
    la pala | la palla
    il fine | la fine
    `,
  ),
  Portuguese: swap(
    `
    Onde fica ◦?
    Quanto custa ◦?
    Quem conhece ◦?
    Quando chega ◦?
    Por que ◦ não veio?
    O que significa ◦?
    De quem é ◦?
    Procuro ◦
    Como se diz ◦?
    Para que serve ◦?
    `,
    `
    a avó | o avô
    o coco | o cocô
    a sede | a seda
    o pão | o pau | o pai
    o segundo livro | o terceiro livro
    meu caso | minha casa
    o ônibus das 8 | o ônibus das 18
    a mãe | a mão
    o norte | o morte
    `,
  ),
  Dutch: swap(
    `
    Waar is ◦?
    Hoeveel kost ◦?
    Wie heeft ◦ gezien?
    Wanneer komt ◦?
    Waarom is ◦ zo duur?
    Wat betekent ◦?
    Van wie is ◦?
    Ik zoek ◦
    `,
    `
    de man | de maan | de mand
    het bos | de bus | de baas
    mijn moeder | mijn broeder | mijn moeders
    de eerste trein | de laatste trein
    het boot | het bord
    een rode auto | geen rode auto
    de trein van 9 uur | de trein van 19 uur
    het haar | de haas
    `,
  ),
  Polish: swap(
    `
    Gdzie jest ◦?
    Ile kosztuje ◦?
    Kiedy przyjedzie ◦?
    Kto zna ◦?
    Dlaczego ◦ jest drogi?
    Co znaczy ◦?
    Czyj jest ◦?
    Szukam ◦
    Jak wygląda ◦?
    `,
    `
    kat | kąt
    sad | sąd
    mój brat | mój bratanek | moja siostra
    pierwszy pociąg | ostatni pociąg
    zamek | zamiek
    los | łoś
    pociąg o 7 | pociąg o 17
    nowy dom | nie nowy dom
    laska | łaska
    kasa | kasza
    `,
  ),
  Russian: swap(
    `
    Где находится ◦?
    Сколько стоит ◦?
    Когда приедет ◦?
    Кто знает ◦?
    Почему ◦ так важен?
    Что значит ◦?
    Чей это: ◦?
    Как выглядит ◦?
    Зачем нужен ◦?
    `,
    `
    угол | уголь
    замок | замо́к
    мой брат | мой врач | моя сестра
    первый поезд | последний поезд
    мел | мель
    небо | нёбо
    поезд в 7 | поезд в 17
    новый дом | не новый дом
    банка | банк
    все | всё
    `,
  ),
  Ukrainian: swap(
    `
    Де знаходиться ◦?
    Скільки коштує ◦?
    Коли приїде ◦?
    Хто знає ◦?
    Чому ◦ такий важливий?
    Що означає ◦?
    Чий це ◦?
    Як виглядає ◦?
    Навіщо потрібен ◦?
    `,
    `
    кут | кит | кіт
    мій брат | моя сестра | мій батько
    перший поїзд | останній поїзд
    гриб | грип
    ліс | лис
    поїзд о 7 | поїзд о 17
    новий дім | не новий дім
    гніт | ґніт
    `,
  ),
  Turkish: swap(
    `
    ◦ nerede?
    ◦ ne kadar?
    ◦ ne zaman geliyor?
    ◦ neden pahalı?
    Kim ◦ gördü?
    ◦ ne demek?
    ◦ kimin?
    ◦ nasıl?
    `,
    `
    kuş | kus
    acı | açı
    sınır | sinir
    ilk tren | son tren
    kar | kâr
    ılık | ilik
    saat 7 treni | saat 17 treni
    evim | evin | evi
    gelen adam | gelmeyen adam
    halı | hali
    olmak | ölmek
    `,
  ),
  Swedish: swap(
    `
    Var är ◦?
    Vad kostar ◦?
    När kommer ◦?
    Vem såg ◦?
    Varför är ◦ så dyr?
    Vad betyder ◦?
    Vems är ◦?
    Hur ser ◦ ut?
    `,
    `
    får | far
    mal | mål | mål nummer två
    hal | hål
    min bror | min syster | min far
    första tåget | sista tåget
    tåget kl 7 | tåget kl 17
    en ny bil | ingen ny bil
    val | väl
    lök | lok
    `,
  ),
  Vietnamese: swap(
    `
    ◦ ở đâu?
    ◦ giá bao nhiêu?
    Khi nào ◦ đến?
    Ai biết ◦?
    Tại sao ◦ đắt?
    `,
    `
    ma | má | mà | mả | mã
    bán | bàn | bạn
    chuyến tàu đầu tiên | chuyến tàu cuối cùng
    anh trai tôi | em trai tôi
    tàu 7 giờ | tàu 17 giờ
    nhà mới | không phải nhà mới
    dưa | dứa | dừa
    `,
  ),
  Japanese: swap(
    `
    ◦はどこですか
    ◦はいくらですか
    ◦はいつ来ますか
    ◦を知っていますか
    なぜ◦は高いのですか
    ◦とは何ですか
    ◦は誰のものですか
    `,
    `
    橋 | 箸 | 端
    兄 | 弟 | 姉
    始発電車 | 終電車
    7時の電車 | 17時の電車
    ビル | ビール
    おばさん | おばあさん
    東京 | 京都 | 東京都
    一つ目の店 | 二つ目の店
    日本人ではない人 | 日本人である人
    `,
  ),
  Chinese: swap(
    `
    ◦在哪里？
    ◦多少钱？
    ◦什么时候来？
    谁认识◦？
    为什么◦这么贵？
    ◦是什么意思？
    ◦是谁的？
    `,
    `
    哥哥 | 弟弟 | 姐姐
    第一班车 | 最后一班车
    七点的车 | 十七点的车
    大人 | 太人 | 犬人
    买的书 | 卖的书
    新房子 | 不是新房子
    北京 | 南京 | 东京
    未来 | 末来
    土地 | 士地
    `,
  ),
  Korean: swap(
    `
    ◦ 어디에 있나요?
    ◦ 얼마인가요?
    ◦ 언제 오나요?
    누가 ◦ 알아요?
    왜 ◦ 비싼가요?
    ◦ 무엇인가요?
    ◦ 누구의 것인가요?
    ◦ 어떤가요?
    `,
    `
    형은 | 동생은 | 누나는
    첫 기차는 | 마지막 기차는
    7시 기차는 | 17시 기차는
    달은 | 딸은 | 탈은
    불은 | 뿔은 | 풀은
    새 집은 | 새 집이 아닌 것은
    서울은 | 수원은
    방은 | 빵은
    `,
  ),
  Arabic: swap(
    `
    أين ◦؟
    كم سعر ◦؟
    متى يأتي ◦؟
    من يعرف ◦؟
    لماذا ◦ مهم؟
    ما معنى ◦؟
    لمن ◦؟
    كيف يبدو ◦؟
    هل ◦ قديم؟
    ما فائدة ◦؟
    `,
    `
    الكلب | القلب
    أخي | أختي | أبي
    القطار الأول | القطار الأخير
    قطار الساعة 7 | قطار الساعة 17
    التين | الطين
    البيت الجديد | البيت غير الجديد
    السيف | الصيف
    الجمل | الجمال
    عَلَم | عِلْم
    `,
  ),
  Hindi: swap(
    `
    ◦ कहाँ है?
    ◦ कितने का है?
    ◦ कब आएगा?
    ◦ कौन जानता है?
    ◦ महँगा क्यों है?
    ◦ का अर्थ क्या है?
    ◦ किसका है?
    ◦ कैसा है?
    ◦ किसलिए है?
    `,
    `
    मेरा भाई | मेरी बहन | मेरा पिता
    पहली गाड़ी | आखिरी गाड़ी
    7 बजे की गाड़ी | 17 बजे की गाड़ी
    दिन | दीन
    नया घर | नया घर नहीं
    बाल | बाला | भाल
    कल | काल
    सुर | सूर
    `,
  ),
  Greek: swap(
    `
    Πού είναι ◦;
    Πόσο κοστίζει ◦;
    Πότε έρχεται ◦;
    Ποιος ξέρει ◦;
    Γιατί ◦ είναι ακριβό;
    Τι σημαίνει ◦;
    Ποιανού είναι ◦;
    Πώς είναι ◦;
    `,
    `
    ο νόμος | ο νομός
    ο αδελφός | η αδελφή
    το πρώτο τρένο | το τελευταίο τρένο
    το τρένο των 7 | το τρένο των 17
    η φίλη | τα φύλλα | το φύλο
    το νέο σπίτι | όχι το νέο σπίτι
    το πότε | το ποτέ
    ο ώμος | ωμός
    το τυρί | το κερί | το τζάκι
    το χωριό | το χωριού
    `,
  ),
}
