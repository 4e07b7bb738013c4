import { expect, it } from 'vitest'
import type { Prompt } from '../../../src/core/prompt.ts'
import { chat, chatPrompt, createFixture } from './fixture.ts'

async function hits(left: Prompt, right: Prompt, similar?: boolean): Promise<boolean> {
  const { recall, teach } = createFixture(similar === undefined ? {} : { similar }, {})
  await teach(left, 'stored')
  return (await recall(right)) === 'stored'
}

async function agree(left: Prompt, right: Prompt): Promise<readonly boolean[]> {
  return [
    await hits(left, right),
    await hits(right, left),
    await hits(left, right, true),
    await hits(right, left, true),
  ]
}

function withSystem(system: string, text: string): Prompt {
  return chat({
    messages: [
      { role: 'system', content: system },
      { role: 'user', content: text },
    ],
  })
}

it.each([
  ['Count the characters of the message.', 'go home', 'go home '],
  ['Count the characters of the message.', ' go home', 'go home'],
  ['Count the lines of the message.', 'go home\n', 'go home'],
  ['Complete the text; continue exactly where it stops.', 'The cat ', 'The cat'],
  ['Is the message valid Python on its own?', '  x = 1', 'x = 1'],
  ['Count the UTF-8 bytes of the message.', 'caf\u00e9', 'cafe\u0301'],
  ['Count the UTF-8 bytes of the message.', '\u212a', 'K'],
  ['Be kind.', 'Why is \u212a a unit?', 'Why is K a unit?'],
  ['Be kind.', 'Who is at \u2126?', 'Who is at \u03a9?'],
])('after "%s", %j is another request than %j', async (system, left, right) => {
  expect(await agree(withSystem(system, left), withSystem(system, right))).not.toContain(true)
  expect(await hits(withSystem(system, left), withSystem(system, left))).toBe(true)
})

it('white space at the ends of a text counts only if the text may be worked on or has more than 4,000 characters', async () => {
  const [short, long] = ['Who has that?', `Who has ${'that and '.repeat(500)}that?`]

  expect(await agree(chatPrompt(short), chatPrompt(`${short} `))).not.toContain(false)
  expect(await agree(chatPrompt(long), chatPrompt(`${long} `))).not.toContain(true)
})

it('the Unicode form and white space of a system prompt are significant', async () => {
  const forms = ['Answer with the letter \u00e9', 'Answer with the letter e\u0301', 'Answer with the letter \u00e9 ']
  for (const form of forms.slice(1)) {
    expect(await agree(withSystem(forms[0] ?? '', 'Which?'), withSystem(form, 'Which?'))).not.toContain(true)
  }
})

it.each([
  ['print(len("\u00e9"))', 'print(len("e\u0301"))'],
  ['Is "\u212a" pure ASCII?', 'Is "K" pure ASCII?'],
  ['Is "\u212b" pure ASCII?', 'Is "\u00c5" pure ASCII?'],
  ['How many bytes does "\u00e9" have in UTF-8?', 'How many bytes does "e\u0301" have in UTF-8?'],
  ['List the code points of "\u2126".', 'List the code points of "\u03a9".'],
  ['Explain Int?', 'Explain Int'],
  ['Explain String?', 'Explain String'],
  ['Explain nil', 'Explain nil?'],
  ['Describe empty?', 'Describe empty.'],
  ['Describe Who?', 'Describe Who'],
  ['Is it Therapy?', 'Is it Therapy'],
  ['Tell me about the band Therapy?', 'Tell me about the band Therapy'],
  ['Good morning, which meal is next?', 'Good evening, which meal is next?'],
  ['Good morning! What time of day is it for me?', 'What time of day is it for me?'],
  ['Did I greet you?', 'Hi! Did I greet you?'],
  ['Was that a greeting?', 'Hello! Was that a greeting?'],
  ['Did I thank you?', 'Did I thank you? Thanks!'],
  ['Is this question polite?', 'Is this question polite, please?'],
  ['What is the MD5 of hello, thanks?', 'What is the MD5 of hello?'],
  ['What is the SHA-1 of hello, please?', 'What is the SHA-1 of hello?'],
  ["What is the subtext of I'm fine, thanks?", "What is the subtext of I'm fine?"],
  ['Who plays the role of Bob, thanks?', 'Who plays the role of Bob?'],
  ['How does Siri react to stop, please?', 'How does Siri react to stop?'],
  ["Is don't informal?", 'Is do not informal?'],
  ["Is can't formal?", 'Is cannot formal?'],
  ["Is it's informal?", 'Is it is informal?'],
  ["Which song has the line I can't get no satisfaction?", 'Which song has the line I cannot get no satisfaction?'],
  ['Why do people write cant?', "Why do people write can't?"],
  ["Which banks won't lend?", 'Which banks wont lend?'],
  ['What does whos stand for?', "What does who's stand for?"],
  ["Write a story that contains can't.", 'Write a story that contains cannot.'],
  ['Who is the user torkriix?', 'Who is the user torkrmix?'],
  ['Where is the server weather?', 'Where is the server waether?'],
  ['Who owns the channel named kitchen?', 'Who owns the channel named kitchne?'],
  ['What is gooogle?', 'What is google?'],
  ['Why do people hodl?', 'Why do people hold?'],
  ['What is a hodler?', 'What is a holder?'],
  ['Why do people type teh?', 'Why do people type the?'],
  ['Why do people type adn so often?', 'Why do people type and so often?'],
  ['Why do people type taht so often?', 'Why do people type that so often?'],
  ['Why is teh a meme?', 'Why is the a meme?'],
  ['Why is teh so funny?', 'Why is the so funny?'],
  ['Who sang yes please?', 'Who sang yes?'],
  ['Who wrote Baby, Please?', 'Who wrote Baby?'],
  ['Who directed stay, please?', 'Who directed stay?'],
  ['Who starred in pretty please?', 'Who starred in pretty?'],
  ['Who taught me to ask pretty please?', 'Who taught me to ask pretty?'],
  ['Where is methane found?', 'Where is menthane found?'],
  ['Who sells nitrogen?', 'Who sells nitrofen?'],
  ['Why would I use glycerol?', 'Why would I use glyceol?'],
  ['When do I debounce the calls?', 'When do I denounce the calls?'],
  ['What is the usual dose of parasol?', 'What is the usual dose of paradol?'],
  ['Which error is in untill?', 'Which error is in until?'],
  ['Which mistake is in harrass?', 'Which mistake is in harass?'],
  ['What is wrong with recieve?', 'What is wrong with receive?'],
  ["Which error is in don't?", 'Which error is in do not?'],
  ['Does guarantee look right to you?', 'Does garantee look right to you?'],
  ["Does can't look right to you?", 'Does cannot look right to you?'],
  ['Is vacuum British?', 'Is vaccuum British?'],
  ['When do people use until?', 'When do people use untill?'],
  ['How do I install reqeusts?', 'How do I install requests?'],
  ['Who maintains the package reqeusts?', 'Who maintains the package requests?'],
  ['Is litre British or American?', 'Is liter British or American?'],
  ['Is organize British or American?', 'Is organise British or American?'],
  ['Who leads the labor party?', 'Who leads the labour party?'],
  ['Who heads the department of defence?', 'Who heads the department of defense?'],
  ['Does CSS support colour?', 'Does CSS support color?'],
  ['Does scrollTo accept behavior?', 'Does scrollTo accept behaviour?'],
  ['Should a Canadian write centre?', 'Should a Canadian write center?'],
  ['Does honour contain a u?', 'Does honor contain a u?'],
  ['How do I import grey from matplotlib?', 'How do I import gray from matplotlib?'],
  ['grep for jewellery in the file', 'grep for jewelry in the file'],
  ['Rename color to tint in my code', 'Rename colour to tint in my code'],
  ['Hi is which pronoun in Norse?', 'Hey is which pronoun in Norse?'],
  ['Hello is how old?', 'Hey is how old?'],
  ['Hi, hey, which is older?', 'Hi, hello, which is older?'],
  ['Hi is short for what?', 'Hello is short for what?'],
  ['What comes after?', 'What comes after please?'],
  ['What goes before please?', 'What goes before?'],
  ['How do robots?', 'How do robots please?'],
])('%j is another question than %j', async (left, right) => {
  expect(await agree(chatPrompt(left), chatPrompt(right))).not.toContain(true)
})

it.each([
  [' Who is Rene\u0301?\n', 'Who is Ren\u00e9?'],
  ['What does a room cost for 2 nights?', 'Hi! What does a room cost for 2 nights, please?'],
  ['What does a room cost', 'What does a room cost?'],
  ['Explain how vaccines work.', 'Could you explain how vaccines work?'],
  ['What is the capital of Mongolia?', 'Please tell me what the capital of Mongolia is.'],
  ['Who sang it?', 'Who sang it? Thanks!'],
  ['Who painted the ceiling?', 'Who painted the ceiling, please?'],
  ['What is the difference between a pond and a lake?', "What's the difference between a pond and a lake?"],
  ['Why is my screen dark?', "Why's my screen dark?"],
  ['Can I drive if I have not slept?', "Can I drive if I haven't slept?"],
  ['Where do I get a new password?', 'Where do I get a new passsword?'],
  ["Why can't penguins fly?", 'Why cannot penguins fly?'],
  ['How is the weather in the town?', 'How is teh weather in the town?'],
  ['What type of climate has the country?', 'What type of cliamte has the country?'],
])('%j is the same question as %j', async (left, right) => {
  expect(await agree(chatPrompt(left), chatPrompt(right))).not.toContain(false)
})
