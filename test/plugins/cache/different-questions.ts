/**
 * Generators of pairs of requests that look alike and need different responses, by kind. They know nothing of the rules by
 * which the cache compares texts: each kind says only what a person would call another question.
 */
export interface Difference {
  readonly left: string
  readonly right: string
  /** Both requests have this system prompt. */
  readonly system?: string
  /** Both requests begin with this message and its response. */
  readonly earlier?: string
}

export type Pick = <T>(list: readonly T[]) => T
type Kind = (pick: Pick) => Difference

const SUBJECTS = lines(`
  a garden by the river
  my old kitchen table
  the best way to train a dog
  a small boat on a lake
  the water in the pool
  the roof of a barn
  a letter to my landlord
  the history of the old mill
  a long walk in the winter
  the price of a good bicycle`)
const QUESTIONS = lines(`
  how do I clean the gutters of a house
  what is the right size for a fish tank
  why do the leaves turn red so early
  is it safe to eat the skin of a mango
  when should I water a young apple tree
  can I keep a rabbit in a small apartment
  where do the storks go when it gets cold
  which tools do I need to repair a chair
  how long does it take to boil a large egg
  what should I say to a friend who is sad`)
const STATEMENTS = lines(`
  I do not like the colour of the new house
  she said that it is a really good idea
  we are going to the beach and it is cold
  the manager did not answer my letter
  he can not find the keys to the car
  they will not travel because it is late
  it is a lovely place and the staff are kind
  you should have told us about the delay
  the weather was nice but the food was not
  I have not seen the report that you sent`)
/** Changes of one text that a reader of the text itself would see. */
const EDITS: readonly ((text: string) => string)[] = [
  (text) =>
    text.replace(/ (do|did|can|will|was|have|are) not\b/, (_, verb: string) =>
      ` ${verb}n't`.replace('cann', 'can').replace('willn', 'won'),
    ),
  (text) => text.replace(/\b(it|she|he|that) is\b/i, "$1's"),
  (text) => text.replace(/\b(the|a) /, ''),
  (text) => text.replace(/ (and|but|because|that) /, ', $1 '),
  (text) => `${text}.`,
  (text) => `${text}!`,
  (text) => `${text}?`,
  (text) => `Hi, ${text}`,
  (text) => `${text}, thanks!`,
  (text) => `Please ${text}`,
  (text) => `${text} please`,
  (text) => text.charAt(0).toUpperCase() + text.slice(1).replace(/\bi\b/g, 'I'),
  (text) => text.toLowerCase(),
  (text) => text.replace(/colour/, 'color').replace(/travel/, 'travell'),
  (text) => misspell(text),
  (text) => text.replace(/ /, '\n'),
  (text) => text.replace(/ /, '  '),
  (text) => `Can you tell me ${text}`,
  (text) => text.replace(/\breally /, ''),
]

const TASKS_IN_SYSTEM = lines(`
  You are a proofreader.
  Correct the grammar of what the user writes.
  Translate every message into French.
  You are a translator from English to German. Output only the translation.
  Count the words of the message.
  Classify the sentiment of the message as positive or negative.
  Rewrite the user's text in a formal tone.
  You are a spell checker. List every misspelled word.
  Return the user's message in upper case.
  Repeat what the user says.
  Rate how polite the user is from 1 to 10.
  Summarize the text in five words.
  You are a Linux terminal. I type commands and you reply with what the terminal should show.
  Convert the message to JSON with the fields subject, verb and object.
  Write a reply to the email below.
  You are a poetry critic. Judge each line that you get.
  Tell me which language register the sentence has.
  Label each input as spam or not spam.
  Extract all nouns.
  Say how many characters the input has.`)
const TASKS_BEFORE = [
  'Fix this: @',
  'Translate to Spanish: @',
  'Proofread @',
  'Is this polite?\n@',
  'Count the letters in "@"',
  'How many words are in @',
  'Rewrite formally - @',
  'What is the sentiment of (@)?',
  'Is this a good subject line: @',
  "Is the comma right in '@'?",
  'Reply to this message\n\n@',
  'Paraphrase «@»',
  'Shorten „@“',
  'Put into past tense: @',
  'Make it rhyme; @',
  'Which word is a verb in “@”?',
  'Grade my sentence: @',
  'What is wrong here? @',
  'Improve the following text. @',
  'Summarize this.\n@',
  'Is it spam? @',
  'Turn into a question: @',
  'Say this in Latin → @',
  'Act as an editor. @',
  'Write this as code # @',
  'How would a Brit say @',
  'Analyze the grammar of @',
  'Does this sound natural - @',
  'What tone does it have: @',
  'Edit for clarity\n> @',
  'Is <p>@</p> valid HTML?',
  '{"task":"correct","text":"@"}',
] as const
const TASKS_AFTER = [
  '@ — is that correct English?',
  '@\n\nTranslate this to Italian.',
  '"@": what is the tone?',
  '@ Is that sentence right?',
  '@. How many words is that?',
  '@ (please proofread)',
] as const

const PAIRS = {
  'modal verbs': slot(
    'How @ I @',
    ['can', 'could', 'would', 'should', 'might', 'did', 'do', 'must', 'will'],
    ['build a raft', 'leave early', 'ask for a raise', 'cook rice', 'win the game'],
  ),
  'who does it': slot(
    'How can @ @?',
    ['I', 'you', 'we', 'they', 'someone', 'one', 'he', 'she'],
    ['make money', 'stop the noise', 'leave early', 'learn to swim'],
  ),
  adverbs: slot(
    'Is it @ a good idea to @?',
    ['', 'really', 'actually', 'still', 'also', 'always', 'even', 'only', 'just', 'generally', 'exactly', 'basically'],
    ['sell a house', 'learn the violin', 'fly a kite in a storm'],
  ),
  'articles of nouns': slot(
    'Who is @ @ of the choir?',
    ['', 'a', 'the', 'an', 'this', 'that'],
    ['teacher', 'head', 'friend', 'voice'],
  ),
  'articles of names': slot(
    'What is @ @ about?',
    ['', 'the', 'a', 'The'],
    ['Queen', 'Office', 'bible', 'Wire', 'matrix', 'Giver'],
  ),
  quantifiers: slot(
    'Do @ @ sleep at night?',
    ['all', 'some', 'most', 'few', 'a few', 'many', 'no', 'any', 'both', 'several', 'the'],
    ['birds', 'fish', 'farmers', 'owls'],
  ),
  prepositions: slot(
    'Is it safe to stand @ the @?',
    ['in', 'on', 'at', 'by', 'near', 'under', 'over', 'behind', 'above', 'below', 'off', 'of', 'to', 'from'],
    ['bridge', 'gate', 'machine', 'tree'],
  ),
  tense: slot(
    '@ the baker @ on Sunday?',
    ['Does', 'Did', 'Will', 'Would', 'Has', 'Had', 'Is', 'Was', 'Should', 'Can'],
    ['work', 'open', 'come'],
  ),
  negation: slot(
    'Which plants @ grow in @?',
    ['can', 'can not', 'never', 'hardly', 'do', 'do not', 'cannot', "don't", 'barely', 'will', "won't"],
    ['the shade', 'wet soil', 'a cave'],
  ),
  opposites: slot(
    'How do I @ @?',
    [
      'open',
      'close',
      'enable',
      'disable',
      'lock',
      'unlock',
      'install',
      'uninstall',
      'increase',
      'decrease',
      'pack',
      'unpack',
      'wrap',
      'unwrap',
    ],
    ['the file', 'the door', 'the account', 'the box'],
  ),
  units: slot(
    'Is 20 @ of @ too much?',
    ['g', 'mg', 'kg', 'G', 'Mg', 'lb', 'oz', 'ml', 'l', 'mL', 'ML', 'tons', 'tonnes'],
    ['sugar', 'salt', 'water', 'yeast'],
  ),
  numbers: slot(
    'Can @ people share @?',
    ['5', '15', '50', '1.5', '1,5', '-5', '5.0', '5+', '~5', '05', 'five', 'fifty', 'fifteen', '½', '5%'],
    ['a tent', 'one pizza', 'the cost'],
  ),
  'number words in code': slot('What does @ print in @?', ['2', 'two', '02', '2.0', '2L'], ['Python', 'Java', 'C']),
  dates: slot(
    'What happened on @ in @?',
    [
      '03/04/2024',
      '04/03/2024',
      '3/4/2024',
      '03-04-2024',
      '3 April 2024',
      '4 March 2024',
      '3 Apr 2024',
      'April 3, 2024',
    ],
    ['Rome', 'court', 'the city'],
  ),
  times: slot('Is the @ open at @?', ['pool', 'bank'], ['9 am', '9 pm', '9 AM', '9:00', '19:00', '9.30', '9', '09']),
  versions: slot(
    'What is new in @ @?',
    ['Python', 'Node', 'Ubuntu'],
    ['3.11', '3.12', '3.1', '3.1.1', '3.11rc', '3.11a', 'v3.11', '3'],
  ),
  'Roman numerals': slot(
    'When did @ @ die?',
    ['Henry', 'Louis', 'henry', 'louis'],
    ['VI', 'VII', 'VIII', 'vi', 'vii', 'viii', 'xvi', 'xvii', 'xviii', 'XVII'],
  ),
  'question words': slot(
    '@ did the @ leave?',
    ['Why', 'When', 'How', 'Where', 'What', 'Who', 'Which'],
    ['train', 'king', 'choir'],
  ),
  conjunctions: slot(
    'Do I need a visa @ a @?',
    ['and', 'or', 'nor', 'but not', 'plus', 'with', 'without', 'before'],
    ['passport', 'ticket', 'sponsor'],
  ),
  conditions: slot(
    'Do I pay tax @ I @?',
    ['if', 'unless', 'when', 'until', 'while', 'before', 'after', 'because', 'although', 'even if', 'only if'],
    ['move', 'retire', 'sell a house'],
  ),
  comparison: slot(
    'Is copper @ @ than iron?',
    ['more', 'less', 'not more', 'much more', 'no more', 'a bit more', 'far more'],
    ['useful', 'common', 'stable'],
  ),
  superlatives: slot(
    'Which is the @ @ in the league?',
    ['best', 'worst', 'better', 'second best', 'biggest', 'smallest', 'oldest', 'newest', 'next', 'last', 'first'],
    ['team', 'player', 'coach'],
  ),
  pronouns: slot(
    'Is it @ fault that @ left?',
    ['my', 'your', 'his', 'her', 'their', 'our', 'its', 'the'],
    ['I', 'you', 'he', 'she', 'they', 'we'],
  ),
  number: slot(
    'Where do I put @ @?',
    ['the', 'my', 'old'],
    ['glass', 'glasses', 'key', 'keys', 'box', 'boxes', 'child', 'children', 'foot', 'feet', 'tooth', 'teeth'],
  ),
  'possessive marks': slot(
    'Where is the @ @?',
    ["dog's", "dogs'", 'dogs', 'dog', "boys'", "boy's", 'boys'],
    ['house', 'park', 'food'],
  ),
  'names with other letters': slot(
    'Where does @ @ live?',
    ['Jon', 'John', 'Joan', 'Jean', 'Jan', 'Joanne', 'Johan'],
    ['Smith', 'Smyth', 'Smithe', 'Schmidt', 'Hansen', 'Hanson', 'Jensen', 'Jenson'],
  ),
  'names in lower case': slot(
    'where does @ @ live',
    ['jon', 'john', 'joan', 'marta', 'martha', 'kristen', 'kirsten', 'brian', 'brain'],
    ['smith', 'smyth', 'hansen', 'hanson', 'philips', 'phillips'],
  ),
  places: slot(
    'How far is @ from @?',
    [
      'Austria',
      'Australia',
      'Niger',
      'Nigeria',
      'Iran',
      'Iraq',
      'Dominica',
      'Dominican Republic',
      'Slovakia',
      'Slovenia',
    ],
    ['Paris', 'Perth', 'Parish', 'Peru'],
  ),
  roles: swap('Did the @ thank the @ at the party?', ['cook', 'host', 'guest', 'driver', 'singer']),
  'order of places': swap('How long is the flight from @ to @?', ['Rome', 'Oslo', 'Lima', 'Cairo', 'Delhi']),
  'order of numbers': swap('What is @ minus @?', ['5', '7', '12', '40', '99']),
  'words of one letter more': either(
    'How do I @ it before the trip?',
    'adopt adapt|affect effect|lose loose|cloth clothe|breath breathe|bath bathe|loath loathe|plan plane|cut cute|pin pine|hop hope|star stare|scrap scrape|strip stripe|fat fate|can cane|rob robe|past paste|plum plume',
  ),
  'words that sound alike': either(
    'What is a good @ for this?',
    'site sight|bored board|principal principle|dessert desert|stationary stationery|compliment complement|council counsel|cereal serial|role roll|sole soul|steal steel|tale tail|vein vain|waist waste|weather whether|peace piece|aisle isle|altar alter|berth birth|canvas canvass|capital capitol|cue queue|dual duel|flour flower|hoard horde|idle idol|lesson lessen|manner manor|medal meddle|morning mourning|naval navel|profit prophet|rain reign|root route|sail sale|stair stare|story storey',
  ),
  'swapped letters': either(
    'Where can I find the @ that we talked about?',
    'trial trail|angel angle|diary dairy|form from|quiet quite|casual causal|united untied|martial marital|silver sliver|bread beard|unite untie|signal single|parental paternal|board broad|clam calm|gird grid|lair liar|sacred scared|reserve reverse|conversation conservation',
  ),
  'product names near words': either(
    'How do I use @ with a large database at work?',
    'valkey valley|deno demo|trino trio|qdrant quadrant|milvus minus|flink flint|solr solar|prisma prism|polars polar|grafana grandma|airtable airable|vitess vitals|bazel hazel|nginx engine|kotlin kitten|redash radish|dremio premio|rundeck rundown|druid fluid|presto preset|strapi straps|directus directs|sanity vanity|supabase superbase|postgrest postgres|mistral mistrial|gradio gradient|fastly lastly|traefik traffic|tekton tektite|hasura measure|appwrite apprite|dragonfly dragonfly2|systemd system|dockerd docker|gitea gifted|netlify notify|clickup cleanup|codeium podium|surreal surreals|cilium helium|falco falcon|istio histio|linkerd linked|chroma chromes|pinecone pinecones|weaviate deviate|redpanda propaganda|meltano melting|fivetran veteran|looker locker|tableau table|mixpanel panel|segment segments|amplitude altitude|heap heaps|jaeger jagger|vercel vertical|railway railways|starship startship|pulumi plumy',
  ),
  'words as names': either(
    'How good are the @ this year?',
    'Bears bears|Bulls bulls|Giants giants|Jets jets|Eagles eagles|Lions lions|Kings kings|Rockets rockets|Heat heat|Magic magic|Browns browns|Saints saints|Pirates pirates|Twins twins|Royals royals|Angels angels|Cubs cubs|Tigers tigers|Sharks sharks|Ducks ducks|Wild wild|Stars stars|Flames flames|Oilers oilers|Spurs spurs|Wolves wolves|Hawks hawks|Hornets hornets|Nets nets|Suns suns',
  ),
  'words as products': either(
    'How do I remove @ from my computer?',
    'Teams teams|Word word|Windows windows|Edge edge|Chrome chrome|Safari safari|Zoom zoom|Slack slack|Discord discord|Notion notion|Steam steam|Signal signal|Photos photos|Notes notes|Mail mail|Pages pages|Numbers numbers|Keynote keynote|Access access|Outlook outlook|Paint paint|Python python|Ruby ruby|Swift swift|Rust rust|Go go|Java java',
  ),
  identifiers: either(
    'What does @ do in this library?',
    'GetName getName|getname getName|GetName getname|toString tostring|isNaN isnan|userId userID|userid userId|XMLHttpRequest xmlhttprequest|readFile readfile|MAX_SIZE max_size|foo_bar fooBar|parseInt parseint|Foo foo|id ID|url URL|NULL null|Nil nil|True true|List list|Map map|String string|Object object|Array array|Set set|Date date|Error error',
  ),
  'final marks of names': either(
    'What is the use of @',
    "save! save|save! save?|empty? empty!|sort! sort|merge! merge?|nil? nil!|push! push|valid? valid!|reload! reload|include? include!|map! map|zero? zero!|find! find|let! let|unsafe! unsafe|Nf3! Nf3?|Nf3!? Nf3?!|Qxe4!! Qxe4!|e4? e4??|Bb5+ Bb5#|n! n|5! 5|vec! vec|format! format|a++ a--|i++ i|C++ C|C# C|F# F|.NET NET|R* R|p^ p|x' x|A+ A-|A+ A|B- B",
  ),
  'final marks of texts': either(
    'You really think that it is @',
    'over? over!|over over?|over. over?|over... over|over?! over!|over?? over!!|over: over|over, over|over; over|over- over|over… over|over! over',
  ),
  commas: either(
    '@',
    "Let's eat, grandma|Let's eat grandma\nStop clubbing, baby seals!|Stop clubbing baby seals!\nWhat is this thing called, love?|What is this thing called love?\nWho likes cooking, dogs and kids?|Who likes cooking dogs and kids?\nWhat do pandas eat, shoots and leaves?|What do pandas eat shoots and leaves?\nHow do I invite my brother, who lives in Rome?|How do I invite my brother who lives in Rome?\nWhy do drivers, who drink, crash?|Why do drivers who drink crash?\nDid he leave her, happy?|Did he leave her happy?\nIs it no, problem?|Is it no problem?\nWhen should I go, slow?|When should I go slow?\nHow do you like that, John?|How do you like that John?\nIs 1,000 big?|Is 1000 big?\nCan you call me, Tom?|Can you call me Tom?\nWhat should I read, books or short stories?|What should I read books or short stories?",
    '|',
    '\n',
  ),
  'hyphens and spaces': either(
    'What is @ about?',
    're-sign>resign|re-cover>recover|co-op>coop|re-form>reform|every day>everyday|may be>maybe|a part>apart|all ready>already|log in>login|set up>setup|any one>anyone|some time>sometime|man eating>man-eating|small business>small-business|black bird>blackbird|green house>greenhouse|dark room>darkroom|high school>highschool|re-creation>recreation|un-ionized>unionized',
    '>',
  ),
  'contractions that are words': either(
    '@',
    "Is it we're here?|Is it were here?\nWhat is ill about?|What is I'll about?\nWhat is a shed for?|What is a she'd for?\nIs well water safe?|Is we'll water safe?\nWhat is its name?|What is it's name?\nWhat's changed in the law?|What is changed in the law?\nWho's finished the work?|Who is finished the work?\nWhere's he gone?|Where is he gone?\nWhat's he lost?|What is he lost?\nWhat's happened here?|What is happened here?\nWhose car is it?|Who's car is it?\nIs that your problem?|Is that you're problem?\nWhere is there house?|Where is they're house?\nWhat is a cant?|What is a can't?\nIs it his wont?|Is it his won't?\nWhat is hell like?|What is he'll like?\nWhat is shell like?|What is she'll like?\nWhat is wed?|What is we'd?\nHow was id formed?|How was I'd formed?",
    '|',
    '\n',
  ),
  'courtesies as the subject': either(
    '@',
    'How do I say thank you in Welsh?|How do I say please in Welsh?\nWhat does hello mean?|What does hey mean?\nHow do I reply to thanks?|How do I reply to thanks a lot?\nWhen do I use please?|When do I use?\nIs it rude to say hey?|Is it rude to say hello?\nWho sang Hello?|Who sang?\nWho sang Please Please Me?|Who sang Please Me?\nWhat is Thank You?|What is?\nWho wrote Tell Me Why?|Who wrote Why?\nWho sang Excuse Me?|Who sang Me?\nWhat is Hello Kitty?|What is Kitty?\nWho wrote So What?|Who wrote What?\nWho directed Please Give?|Who directed Give?\nIs please a verb?|Is a verb?\nIs sorry a song?|Is a song?',
    '|',
    '\n',
  ),
  'near synonyms': either(
    'How do I @ in spring?',
    'purchase a lot|buy a lot\nobtain rest|get rest\nselect a row|choose a row\nshut the app|close the app\nbegin a process|start a process\nrepair the price|fix the price\nassist in labor|help in labor\nfall|autumn\nhuge code|enormous code\nwrite a programme|write a program\nadd a metre|add a meter\nread a dialogue|read a dialog\npractise|practice\nmake a draught|make a draft\nget a cheque|get a check',
    '|',
    '\n',
  ),
  'similar intents': either(
    '@',
    'How do I look?|How can I look?\nHow do I feel?|How can I feel?\nHow do I sound?|How can I sound?\nHow do I die in the game?|How would I die in the game?\nHow do I compare with others?|How can I compare with others?\nHow do you know him?|Do you know him?\nWhat is the meaning of life?|What does life mean?\nDo you know how to swim?|How to swim?\nCan you swim?|Swim?\nWhat is a type of bear?|What is the type of bear?\nCan you write a will?|Write a will\nWould you recommend a dog?|Recommend a dog\nI want you to be kind|Be kind\nWhat are the steps to the attic?|How to the attic?\nWhat is the way to go?|How to go?\nHow can a person die from salt?|How do I die from salt?\nWho is the author of it?|Who was the author of it?\nMust I stay?|May I stay?\nWhat can I do to help?|What do I do to help?\nExplain the joke|Tell the joke\nWhy do cats purr?|Do cats purr?\nCan I go?|Can I not go?\nIs there a way out?|Is a way out possible?\nWrite a poem for me|Write a poem to me\nMake me a list|Make a list of me\nGive me a hand|Give a hand\nTell me the truth about cats|The truth about cats and me',
    '|',
    '\n',
  ),
  abbreviations: either(
    'Is @ good for the town?',
    'US us|IT it|WHO who|AIDS aids|PM pm|AM am|Polish polish|March march|Turkey turkey|China china|Nice nice|Reading reading|OR or|IN in|May may|Mark mark|Bill bill|Rose rose|Job job|Co CO|Mb MB|SAT sat|CAT cat|RAM ram|PIN pin|ADD add|ERA era|SIM sim|VAT vat|OK ok|Am am|Em em|Dm dm|C c|A a|I i|G g',
  ),
  chemistry: either(
    'How toxic is @ for fish?',
    'sulfate sulfite|nitrate nitrite|chlorate chlorite|methane ethane|propane propene|Co CO|No NO|Hf HF|CO2 CO|H2O H2O2|cis trans|alpha beta|D L|ethanol methanol|butane butene|phosphate phosphite|lactose lactase|adenine adenosine|guanine guanidine|estrogen androgen|alanine aniline|thymine thiamine',
  ),
  operators: either(
    'What does a @ b do?',
    '= ==|== ===|< <=|> >>|& &&|+ ++|- --|* **|! !!|~ !|/ //|% %%|? ??|: ::|. ..|-> =>|| ||'.replaceAll(
      '|| ||',
      '^ ^^',
    ),
  ),
  'spaces in code': either(
    'Evaluate @',
    '5 -3|5 - 3\n- 3|-3\na -b|a - b\n1 . 5|1.5\nx ! y|x !y\na :b|a: b\n2 3|23\nf (x)|f(x)\n# a|#a\n$ x|$x\n@ a|@a\n/ a|/a\n. a|.a\n% d|%d\n* p|*p\n& x|&x\n-- v|--v',
    '|',
    '\n',
  ),
  'quotes and brackets': either(
    'What is @ in the shell?',
    '"a" \'a\'|"a" a|\'a\' a|(a) [a]|[a] {a}|`a` a|$a "$a"|<a> a|a a"|«a» a|“a” a|‘a’ a',
  ),
  addresses: either(
    'What is at @ today?',
    'a.com a.org|a.com/b a.com/B|http://a.com https://a.com|a.com a.com/|bob@a.com rob@a.com|/usr/bin /usr/sbin|C:\\a C:\\b|a_b a_B|~/a /a|./a ../a|10.0.0.1 10.0.0.2|a.b.c a.b|#tag tag|@bob bob|a.com?x=1 a.com?x=2',
  ),
  'look-alike characters': either(
    'Is @ a good site for my bank?',
    'paypal p\u0430ypal|apple \u0430pple|google g\u043eogle|bank ban\u043a|resume résumé|rose rosé|cafe café|pate pâté|expose exposé|ﬁne fine|a\u200bb ab|shop sh\u00adop|１２ 12|naive naïve|cooperate coöperate|passe passé|I ı|i ı|İ I',
  ),
  emoji: either('How was it @', '🙂 🙁|👍 👎|❤️ 💔|😀 😀😀|🙂 |👩 👨|🇺🇸 🇬🇧|1️⃣ 2️⃣'),
  'line structure': either(
    '@',
    'roses are red\nviolets are blue|roses are red violets are blue\u0000Is this a haiku?\nold pond|Is this a haiku? old pond\u0000How many lines are\nhere|How many lines are here\u0000list a\nb|list a b\u0000What is\n\nthis|What is\nthis\u0000What is this\tthing|What is this thing\u0000why is it\n- red\n- blue|why is it - red - blue\u0000Is a\r\nb|Is a\nb\u0000What is a\u2028b|What is a b\u0000what goes\n  here|what goes\nhere',
    '|',
    '\u0000',
  ),
  grammar: either(
    'Is it right: @?',
    "who whom|lie lay|less fewer|then than|your you're|its it's|affect effect|I me|was were|different than|among between|colour color|travelled traveled|learnt learned|do not don't|cannot can't|recieve receive|teh the|seperate separate|alot a lot",
  ),
} satisfies Readonly<Record<string, Kind>>

/** Statements and questions of many languages. Each pair differs in meaning or in a letter, a mark or the case. */
const LANGUAGES: Readonly<Record<string, string>> = {
  German:
    'Wir spinnen gern|Wir Spinnen gern\nWo ist der weise Mann?|Wo ist der Weise Mann?\nIst das erlaubt?|Ist das erlaubt!\nDu kommst heute|Du kommst heute?\nWas kosten die Maße?|Was kosten die Masse?\nIch habe liebe Genossen|Ich habe Liebe genossen\nWann kommt der Zug an?|Wann kommt der Zug?\nKannst du umfahren?|Kannst du um fahren?\nWas ist schon?|Was ist schön?\nWer ist Ihr Freund?|Wer ist ihr Freund?\nHelft den armen Vögeln|Helft den Armen vögeln\nWas ist in der Tasche?|Was ist die Tasche?',
  French:
    'Où est la peche?|Où est la pêche?\nIl est ou elle?|Il est où elle?\nOn mange, les enfants|On mange les enfants\nEst-ce que tu viens|Est-ce que tu viens pas\nQuel est le cote?|Quel est le côté?\nUn pécheur|Un pêcheur\nTu pars?|Tu pars.\nLa tâche|La tache\nJe suis sur|Je suis sûr\nQui a mange?|Qui a mangé?',
  Spanish:
    '¿Cuántos años tienes?|¿Cuántos anos tienes?\nSi quiero|Sí quiero\nVamos a comer, niños|Vamos a comer niños\n¿Dónde está el papa?|¿Dónde está el papá?\nTomo un te|Tomo un té\nHablo bien|Habló bien\n¿Vienes?|Vienes.\nNo, vamos|No vamos\n¿Qué pasó?|¿Qué paso?\nEl perro come|Él perro come',
  Italian:
    'Dove è il casino?|Dove è il casinò?\nSi fa così|Sì fa così\nVado a casa e mangio|Vado a casa è mangio\nQuanti anni hai?|Quanti ani hai?\nChe ora e?|Che ora è?\nVieni?|Vieni!\nPero mangio|Però mangio\nLa pesca|La pésca\nE tardi|È tardi\nMangiamo, nonna|Mangiamo nonna',
  Portuguese:
    'Onde está o coco?|Onde está o cocô?\nEle e alto|Ele é alto\nVocê vem?|Você vem.\nA avó chegou|A avô chegou\nNão, espere|Não espere\nEu pais|Eu país\nSecretaria|Secretária\nPor que|Por quê\nEle tem|Eles têm\nPode sair|Pôde sair',
  Dutch:
    'Wat is de bank?|Wat is de band?\nIs hij een arts of een bakker?|Is hij een arts of een banker?\nHet is voor komen|Het is voorkomen\nKom je?|Kom je.\nEen man|Eén man\nWat doet de Koning?|Wat doet de koning?\nIk wil de man zien in de stad|Ik wil de maan zien in de stad\nHoe is het met mij|Hoe is het met jou\nWie is in de tuin|Wie is in te tuin\nEten, opa|Eten opa',
  Swedish:
    'Vad är en far?|Vad är en får?\nHur är läget?|Hur ar läget?\nKommer du?|Kommer du.\nEn back|En bäck\nDet är för er|Det är för en\nVem är Sten?|Vem är sten?\nJag ser en hund|Jag ser en hind\nVar är bilen|Var är bullen\nInte gå|Gå inte\nÄta, mormor|Äta mormor',
  Danish:
    'Hvad er en gås?|Hvad er en gas?\nKommer du?|Kommer du.\nHvem er Bo?|Hvem er bo?\nJeg ser en hund|Jeg ser en hånd\nEr det for dem|Er det for den\nKom, spis, far|Kom spis far\nEn mor|En mår\nHan er i by|Han er i byen\nDet er at se|Det er og se\nIkke i dag|I dag',
  Finnish:
    'Kuka tapaa sinut?|Kuka tappaa sinut?\nTuletko?|Tuletko.\nTuli on täällä|Tuuli on täällä\nSe on Kuusi|Se on kuusi\nMitä sää|Mitä saa\nVoi antaa|Voi ampua\nTakka|Taakka\nEn tiedä|Et tiedä\nSyödään, isä|Syödään isä\nMuta|Mutta',
  Polish:
    'Zrób mi łaskę|Zrób mi laskę\nCzy idziesz?|Czy idziesz.\nSad|Sąd\nKto to Polak|Kto to polak\nNie, jest|Nie jest\nKat|Kąt\nBiałe|Biale\nZamek|Zamęk\nMa to|Mą to\nDaj mu|Daj my',
  Czech:
    'Kde je sad?|Kde je sád?\nPřijdeš?|Přijdeš.\nJe to byt|Je to být\nVada|Váda\nPravá|Prává\nMám rád|Mam rad\nNe, jdi|Ne jdi\nDrahá|Dráha\nPán|Pan\nKuchař|Kuchar',
  Turkish:
    'SINIR nedir?|sinir nedir?\nIsı nedir?|İsi nedir?\nGeldin mi?|Geldin mi.\nKar yağdı|Kâr yağdı\nHala geldi|Hâlâ geldi\nOldu|Öldü\nSıkıldım|Sikildim\nAçı nedir?|Acı nedir?\nKız|Kiz\nOku, baban gibi|Oku baban gibi',
  Russian:
    'Казнить нельзя, помиловать|Казнить, нельзя помиловать\nТы идёшь?|Ты идёшь.\nВсе ушли|Всё ушли\nКто такой Орел?|Кто такой орел?\nЗамок|Замóк\nОн не был дома|Он был дома\nКот|Кит\nЛев ест|лев ест\nГде мой дом|Где мои дом\nБелка|Булка',
  Greek:
    'Έρχεσαι;|Έρχεσαι.\nΠού είναι;|Που είναι;\nΠότε ήρθε|Ποτέ ήρθε\nΟ νόμος|Ο νομός\nΠως είσαι|Πώς είσαι\nΓέρος|Γερός\nΌμως|Ομώς\nΤο τζάμι|Το τζαμί\nΗ Ελπίδα|Η ελπίδα\nΔεν πάω|Πάω',
  Chinese:
    '他来了吗？|他来了吗！\n她是谁？|他是谁？\n我不去|我去\n两个人|二个人\n买房子|卖房子\n你吃了？|你吃了。\n左边是什么？|右边是什么？\n上海多大？|海上多大？\n我，爱你|我爱你\n一百万|一百',
  Japanese:
    '橋はどこ？|箸はどこ？\nこれは何？|これは何。\n行きます|行きません\n雨が降る？|飴が降る？\nビルは高い|ビールは高い\nおばさん|おばあさん\n私が食べる|私を食べる\nここでは、きものを|ここで、はきものを\n大き|大さ\nはい|いいえ',
  Korean:
    '갈까요?|갈까요.\n아버지가 방에|아버지 가방에\n배가 아파요|배가 고파요\n달이 떴다|딸이 떴다\n물 주세요|불 주세요\n안 가요|가요\n오늘|오늘?\n밥을 먹다|법을 먹다\n나는 학생|너는 학생\n한국|한글',
  Arabic:
    'هل جاء؟|هل جاء!\nكتب الولد|كتب البنت\nلا، أريد|لا أريد\nما هذا؟|من هذا؟\nقلب|كلب\nعلم|علّم\nذهب|ذهبت\nفي البيت|من البيت\nكتاب|كاتب\nسور|صور',
  Hindi:
    'वह आया?|वह आया।\nरोको, मत जाने दो|रोको मत, जाने दो\nक्या यह फल है?|क्या यह पल है?\nदिन|दीन\nमैं नहीं गया|मैं गया\nकमल|कमाल\nवह कौन है|यह कौन है\nसुत|सूत\nऔर|ओर\nबेल|बैल',
  Indonesian:
    'Apa kamu datang?|Apa kamu datang.\nDi mana buku|Di mana bubu\nTidak, pergi|Tidak pergi\nSiapa Bunga?|Siapa bunga?\nSaya suka ikan|Saya suka iklan\nMari makan, ibu|Mari makan ibu\nAir panas|Air pantas\nDia sudah|Dia susah\nBulan|Bukan\nRumah kita|Rumah kami',
  Vietnamese:
    'Ma là gì?|Mà là gì?\nBạn là ai?|Ban là ai?\nBa mua|Ba mưa\nCon bò|Con bơ\nAnh đến?|Anh đến.\nChó|Chờ\nKhông, đi|Không đi\nCá|Cà\nDừa|Dưa\nTôi ở|Tối ở',
  Latin:
    'Quid est malus?|Quid est mālus?\nVenisne?|Venisne.\nIbis redibis, nunquam peribis|Ibis, redibis nunquam, peribis\nQuis est Rex?|Quis est rex?\nPater in horto est|Pater in hortu est\nCanis|Cantis\nAmo te|Amo et te\nNon venit|Venit\nPopulus|Populos\nUbi est|Ubi et',
}

export const KINDS: Readonly<Record<string, Kind>> = {
  ...Object.fromEntries(
    TASKS_IN_SYSTEM.map((system) => [
      `task in system: ${system}`,
      (pick: Pick): Difference => ({ ...edited(pick([...STATEMENTS, ...QUESTIONS, ...SUBJECTS]), pick), system }),
    ]),
  ),
  'task in an earlier turn': (pick) => ({
    ...edited(pick([...STATEMENTS, ...QUESTIONS]), pick),
    earlier: `${pick(TASKS_IN_SYSTEM)} Reply OK.`,
  }),
  'task before the text': (pick) => framed(pick, TASKS_BEFORE, STATEMENTS),
  'task before a question': (pick) => framed(pick, TASKS_BEFORE, QUESTIONS),
  'task before a noun': (pick) => framed(pick, TASKS_BEFORE, SUBJECTS),
  'task after the text': (pick) => framed(pick, TASKS_AFTER, [...STATEMENTS, ...QUESTIONS]),
  ...PAIRS,
  ...Object.fromEntries(
    Object.entries(LANGUAGES).map(([name, list]) => [`language: ${name}`, either('@', list, '|', '\n')]),
  ),
}

function lines(text: string): readonly string[] {
  return text
    .trim()
    .split('\n')
    .map((line) => line.trim())
}

function edited(text: string, pick: Pick): Difference {
  for (;;) {
    const right = pick(EDITS)(text)
    if (right.normalize('NFC').trim() !== text) return { left: text, right }
  }
}

function framed(pick: Pick, frames: readonly string[], texts: readonly string[]): Difference {
  const frame = pick(frames)
  const { left, right } = edited(pick(texts), pick)
  return { left: frame.replace('@', () => left), right: frame.replace('@', () => right) }
}

/** Swaps two letters in the longest word. */
function misspell(text: string): string {
  const word = text.split(/\W+/).reduce((longest, other) => (other.length > longest.length ? other : longest), '')
  return text.replace(word, `${word.slice(0, 2)}${word.charAt(3)}${word.charAt(2)}${word.slice(4)}`)
}

/** Fills the first `@` with two different values of the first list, or the second with two of the second. */
function slot(template: string, first: readonly string[], second: readonly string[]): Kind {
  const [before = '', between = '', after = ''] = template.split('@')
  const fill = (a: string, b: string): string => `${before}${a}${between}${b}${after}`.replace(/ {2,}/g, ' ').trim()
  return (pick) => {
    const [a, b] = [pick(first), pick(second)]
    for (;;) {
      const [otherA, otherB] = [pick(first), pick(second)]
      const variesFirst = pick([true, true, false])
      const [left, right] = [fill(a, b), variesFirst ? fill(otherA, b) : fill(a, otherB)]
      if (left !== right && !isSame(a, otherA, variesFirst)) return { left, right }
    }
  }
}

const SAME: readonly string[] = ['can not cannot', "do not don't"]

function isSame(one: string, other: string, varies: boolean): boolean {
  return varies && SAME.some((pair) => pair === `${one} ${other}` || pair === `${other} ${one}`)
}

function swap(template: string, words: readonly string[]): Kind {
  const [before = '', between = '', after = ''] = template.split('@')
  return (pick) => {
    for (;;) {
      const [a, b] = [pick(words), pick(words)]
      if (a !== b) return { left: before + a + between + b + after, right: before + b + between + a + after }
    }
  }
}

/** Fills the `@` with the two sides of a pair from the list. */
function either(template: string, list: string, side = ' ', end = '|'): Kind {
  const pairs = list.split(end).map((pair) => pair.split(side))
  return (pick) => {
    const [left = '', right = ''] = pick(pairs)
    const fill = (text: string): string => template.replace('@', () => text)
    return pick([true, false]) ? { left: fill(left), right: fill(right) } : { left: fill(right), right: fill(left) }
  }
}
