/** A question that rephrases an earlier response of the assistant, and the location of that answer. */
export interface ResponseQuestion {
  /** The beginning of a dialog's id in mtragun, and the index of the user's message in it. */
  readonly dialog: string
  readonly at: number
  readonly question: string
}

/** Written for this project, based on the dialogs of mtragun. Each question shares few words with its response. */
export const RESPONSE_QUESTIONS: readonly ResponseQuestion[] = [
  ['025b54', 0, 'What reasons did you give for those two index trackers drifting apart?'],
  ['08d663', 6, 'Remind me what you said about whether that pension pot makes sense for me.'],
  ['0ad895', 2, 'You once told me why the public senior coverage beats others. What were the points?'],
  ['0f7771', 6, 'How did you describe trading away from the big exchanges?'],
  ['10eea7', 0, 'What perks of the veterans housing program did you list?'],
  ['12f390', 6, 'What did you advise me to do when the water rises?'],
  ['132020', 0, 'What was your answer on writing off what I spend while helping out unpaid?'],
  ['132020', 6, 'You suggested giving something other than cash to lower my bill. What was it?'],
  ['132020', 14, 'What did you recommend about putting my last wishes in writing?'],
  ['13a2bc', 0, 'How did you compare the fund with holding the debt papers directly?'],
  ['13a2bc', 2, 'Which danger did you warn me about with those bond baskets?'],
  ['148853', 4, 'Which steps did you lay out for configuring the firewall appliance?'],
  ['166230', 2, 'What did you tell me about testing models in moving air for aviation?'],
  ['166230', 8, 'What did you say about the condition of that orbiting observatory?'],
  ['1c08aa', 0, 'You gave me a list of steps for an urgent court appointment. What were they?'],
  ['1c9999', 0, 'What tips did you give me for a cozy house with lower bills?'],
  ['1c9999', 8, 'Why did you recommend fixing the old panes rather than buying new ones?'],
  ['1d0453', 0, 'How did you explain substances crossing a membrane without energy?'],
  ['1dd9e5', 0, 'What could go wrong for me when I help a buddy with his property, according to you?'],
  ['1fa022', 4, 'What was your advice on getting prepared before a disaster strikes?'],
  ['2732cc', 0, 'Which offerings of that Boston medical center did you mention?'],
  ['2bd746', 0, 'Which documents did you say belong to arranging my legacy?'],
  ['2ea23a', 0, 'What did you tell me about drama and plays in Athens?'],
  ['3199ec', 0, 'How did you describe the nutrition education project for poor Californians?'],
  ['3f01b8', 4, 'What rules did you mention about garbage bins in that city?'],
  ['3f9ccd', 2, 'Which medical effects of those plant compounds did you name?'],
  ['43ad1b', 0, 'How did you tell the science of stars apart from horoscopes?'],
  ['464ef8', 6, 'What similarities between the two kinds of funds did you point out?'],
  ['49ba68', 2, 'What did you say happens at the first appearance before a judge?'],
  ['4b9f4a', 0, 'Which machines did you say the young corps members get trained on?'],
  ['4cf488', 0, 'What arguments did you give for putting a chatbot on the site?'],
  ['4e6b92', 10, 'What did you answer about my vintage bike and smog rules?'],
  ['5989c7', 0, 'What did you say about resizing compute and memory later on?'],
  ['5bda16', 2, 'How did you suggest I deal with notifications that could not be delivered?'],
  ['5c0d48', 0, 'What did you recommend to stay safe on the social network?'],
  ['5c0d48', 8, 'What did you suggest against scam messages?'],
  ['5c0d48', 10, 'What precautions for paying and buying on the web did you list?'],
  ['5f51ae', 2, 'Walk me again through how you said I build the bot script.'],
  ['604714', 6, 'What requirements did you list for a teenager who wants to learn driving?'],
  ['66bc2d', 6, 'Which charitable foundations of that rich man did you name?'],
  ['69330b', 6, 'What did you explain about the cost of sending money abroad?'],
  ['69330b', 10, 'What did you say about citizens of the US banking in other countries?'],
].map(([dialog, at, question]) => ({ dialog: String(dialog), at: Number(at), question: String(question) }))
