"""Letters: to relatives and friends, thanks, invitations, to a king, to a shop, from a journey; and answers to them."""

from train.stories.facts import any_fact
from train.stories.scenes import Telling

OPENING = ("[How are you?|How are you all?|I hope that you are well.|I hope this letter finds you well.|I think of you often.] [I am well.|We are all well here.|I am very well, thank you.|All is well here.|]",
           "[It is a long time since I wrote to you.|I have wanted to write to you for a long time.|Today I have time to write to you.|I must tell you what happened.|I have so much to tell you.]",
           "[Thank you for your [long|kind|last] letter.|Your letter made me very happy.|I was so glad to get your letter.]")
NEWS = (
    "[Yesterday|On {day}|Last week] we {play}, and I saw {sight}.", "Our {pet} {petname} is [very big now|always hungry|well, and sleeps on my bed|a little ill, but it will soon be better].", "At school I like {subject} best, [and my teacher is very kind|but {subject} is hard for me].",
    "[It has been {weather} all week|The weather is {weather}], and [the {flower} are in bloom|we stay in the house|we are out of doors all day|the garden is full of birds].", "{Name1} and I {play} [every day|after school|all day long].",
    "I can now [swim|skate|whistle|read thick books|bake a cake|ride a bicycle|play {instrument}], and I [am very proud of it|want to show you].", "[Father|Mother|My {relative}] {chore} with me, and [afterwards|then] we had {meal}.", "I have read a book about [a ship|two brothers|a brave {animal}|the stars|a little girl in the mountains], and I liked it very much.",
    "In our garden there are {fruit} and {vegetable} this year.", "We have a new [teacher|neighbour|house|boat|clock|baker], and [everybody is pleased|I like it|all the street talks of it].", "I have lost a tooth, and it does not hurt at all.", "[On {day}|Tomorrow] we go to {place}, and I [am looking forward to it|cannot wait].",
)
WISH = ("[I hope that you will visit us soon.|Please come and see us soon.|When will you come to us?|I should like to see you again.|We all miss you very much.|Please write to me soon.|Give my love to everybody.|I look forward to your letter.]",)
END_WARM = ("[With love|With much love|Much love|Love|Your loving {kin}|With many kisses|Yours], {s}", "[With love from|Love from|Many greetings from|Warm wishes from] {s}", "Your {s}", "Yours ever, {s}")
END_POLITE = ("Yours truly, {s}", "Yours faithfully, {s}", "With kind regards, {s}", "Yours sincerely, {s}", "Respectfully yours, {s}")


def _letter(t: Telling, to: str, body: list[str], end: tuple[str, ...], sender: str, kin: str = "child") -> str:
    p = t.phrases
    place = p("{town}, [the|] {n} of {month}\n\n", n=_ordinal(t.rng.randint(1, 28))).replace(", the", ", the").replace(",  ", ", the ") if t.maybe(0.25) else ""
    closing = p.pick(end, s=sender, kin=kin)
    if t.maybe(0.7):
        closing = closing.replace(", ", ",\n", 1)
    gap = "\n\n" if t.maybe(0.85) else "\n"
    return f"{place}Dear {to},{gap}{gap.join(part for part in body if part)}{gap}{closing}"


def _ordinal(day: int) -> str:
    ending = "th" if 4 <= day <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(day % 10, "th")
    return f"{day}{ending}"


def _paragraph(t: Telling, options: tuple[str, ...], count: int) -> str:
    return " ".join(filter(None, (t.phrases(part).strip() for part in t.rng.sample(options, count))))


def family(t: Telling) -> str:
    """A child writes home, or to a relative or a friend."""
    p = t.phrases
    to, kin = t.rng.choice((("Grandmother", "grandchild"), ("Grandfather", "grandchild"), ("Grandma", "grandchild"), ("Grandpa", "grandchild"), ("Mother", "child"), ("Father", "child"), ("Aunt {girl}", "{niece}"), ("Uncle {boy}", "{niece}"), ("{name2}", "friend"), ("cousin {name2}", "cousin"), ("Mother and Father", "child")))
    she = t.maybe(0.5)
    sender = p("{girl9}" if she else "{boy9}")
    p.keep(name9=sender, niece="niece" if she else "nephew")
    body = [_paragraph(t, OPENING, 1), _paragraph(t, NEWS, t.rng.randint(1, 4)), p.pick(WISH)]
    if t.maybe(0.25):
        body.insert(2, p("[At school we learned|Our teacher told us|I have learned|Did you know] that {c}[. Is that not strange?|.|. I did not know it before.]", c=any_fact(t.rng).clause))
        body[2] = body[2].replace("Did you know that", "You know, perhaps, that")
    return _letter(t, p(to), body, END_WARM, sender, p(kin))


def thanks(t: Telling) -> str:
    p = t.phrases
    to = p("[Grandmother|Grandfather|Aunt {girl}|Uncle {boy}|{name2}|Mr. {surname}|Mrs. {surname}|Mother|Father]")
    p.keep(present=p("{gift}"))
    what = p("the " + p.given["present"].removeprefix("a ").removeprefix("an "))
    body = [p("[Thank you very much for|Many thanks for|Thank you so much for|I want to thank you for] {what}[ that you sent me| you gave me for my birthday| that came yesterday|]. [It is just what I wanted.|I like it very much.|It is beautiful.|I was so happy when I opened the parcel.|It was the best of all my presents.]", what=what),
            p("[I use it every day.|I have put it beside my bed.|I showed it to all my friends.|{Name1} would like to have one, too.|Mother says that I must take good care of it.] [On my birthday we {play}.|We had {meal}, and {number} friends came.|All the family came, and we {play}.|]"),
            p("[I hope to see you soon.|Please visit us soon.|You are very kind.|Thank you again.|I will draw a picture for you.]")]
    if t.maybe(0.3):
        body = [" ".join(body)]
    return _letter(t, to, body, END_WARM, p("{name9}"), "friend")


def invitation(t: Telling) -> str:
    p = t.phrases
    to = p("[{name2}|friends|Aunt {girl}|Uncle {boy}|Grandmother|neighbours|{name2} and {name3}|Mr. and Mrs. {surname}]")
    body = [p("[On {day}|Next {day}|On {day}, the {n} of {month},] [it is my birthday|we have a feast in the garden|I shall be {age} years old|we celebrate the harvest|we show a play at school|there is a concert at our school], and I [should like to invite you|invite you to come|hope that you will come].", n=_ordinal(t.rng.randint(1, 28))),
            p("[We begin at {hour} o'clock|It begins at {hour} o'clock|Please come at {hour} o'clock]. [There will be {meal} and {drink}.|We shall eat {sweet}.|Mother will bake a cake.] [Then we will {play_now}.|We shall sing and play {game}.|In the evening there will be lanterns in the trees.]"),
            p("[Please bring|You need only bring|Do not forget] [a warm coat|good humour|a cushion to sit on|something to drink|an instrument, if you play one]. [Please write and say whether you can come.|Please answer soon.|I am looking forward to it.|Come if you can!]")]
    if t.maybe(0.3):
        body.pop()
    return _letter(t, to, body, END_WARM, p("{name9}"), "friend")


def to_the_king(t: Telling) -> str:
    p = t.phrases
    ruler = p("[King|King|Queen]")
    asks = p.pick((
        "[The bridge over the river is broken, and we cannot come to the market.|The well in our village is dry.|The road to the mill is full of holes.|Our school has no books.|The roof of our school lets in the rain.] [Please send us|Could you send us|We ask you to send us] [a carpenter|some workmen|help before the winter|a few men with good tools].",
        "[I have heard that you have a [lion|horse as white as snow|garden with {number} fountains|library with a thousand books].|My {relative} says that you have a golden coach.] [Is it true?|May I come and see it?|I should like to see it once.]",
        "[Please give the children a day without lessons.|Please plant a(n) {tree} in every village.|We should like to have a park where the children may play.|Please let everyone come to the castle once a year.] [We should all be very glad.|It would make many people happy.|We would help with the work.]",
        "I should like to know [what a king does all day|whether your crown is heavy|who wakes you in the morning|whether you must go to bed early, too|what you eat for breakfast]. I am [a {job}'s child|{age} years old] and I [have never seen a castle|live in a small house near {place}].",
    ))
    body = [p("[My name is {name9}, and I live in {town}.|I am {name9}, the {job} of {town}.|You do not know me, but I am {name9} from {town}.|I write to you because I do not know whom else to ask.]"), asks.replace("king does", f"{ruler.lower()} does"),
            p("[We shall be thankful to you.|I thank you, and wish you a long life.|I hope that you are well and that your crown is not too heavy.|If you come to {town}, you shall have {meal}.|With thanks for your kindness.]")]
    return _letter(t, ruler, body, (*END_POLITE, "Your faithful {s}"), p("{name9}"))


def reply_of_king(t: Telling) -> str:
    p = t.phrases
    sender = p("[The King|The Queen|Your King|Your Queen]")
    body = [p("[Thank you for your letter.|I was glad to read your letter.|Your letter came with the morning post.] [You are quite right.|You have a good heart.|I laughed when I read it, and then I thought about it.]"),
            p("[I will send you a carpenter and {small} men.|On {day} my workmen will come.|You shall have books for your school.|Come to the castle on {day} and see everything for yourself.|I have told my gardener to plant a(n) {tree} in your village.] [Tell it to your friends.|Give my greetings to all in {town}.|And write to me again.]")]
    return _letter(t, p("{name2}"), body, ("{s}", "With kind regards,\n{s}"), sender)


def postcard(t: Telling) -> str:
    p = t.phrases
    to = p("[{name2}|Mother|Grandmother|Father|all|friends|Uncle {boy}]")
    text = p("[We are at the sea.|We are in the mountains.|We are on a farm.|I am with my {relative} in {town}.|We are at the lake.] [The weather is {weather}.|It is {weather} here.|Every day is {weather}.] [Yesterday|Today|This morning] we {play} and saw {sight}. [The food is good: there is {meal} every day.|I sleep in a tent.|From my window I see a lighthouse.|I have found {number} shells.|] [I wish you were here.|We come home on {day}.|I will tell you more when I am back.]")
    return _letter(t, to, [text], ("Greetings from {s}", "Love, {s}", "Your {s}", "Many greetings, {s}"), p("{name9}"))


def sorry(t: Telling) -> str:
    p = t.phrases
    to = p("[{name2}|Mr. {surname}|Mrs. {surname}|Grandmother|Miss {surname}|Father]")
    body = [p("[I am very sorry that|I write to you because|I want to tell you that] I [x:broke your window with my ball|forgot your birthday|was late on {day}|lost the book that you lent me|did not help you yesterday|walked through your {flower}|was not kind to you]. [I did not mean to do it.|It was my fault.|I have thought about it all day.]"),
            p("[x:I will pay for it with my own money.|May I come next week and bring you a present?|I will get up earlier from now on.|I will buy you another with my own money.|I will help you in the garden on {day}.|I will plant new ones for you.|Let us be friends again.] [Please do not be angry with me.|Please forgive me.|I hope you can forgive me.]")]
    return _letter(t, to, body, (*END_WARM[1:3], *END_POLITE), p("{name9}"))


def to_a_shop(t: Telling) -> str:
    p = t.phrases
    to = p("[Mr. {surname}|Mrs. {surname}|Sir|Madam|Sir or Madam]")
    body = p.pick((
        "[Please send me|I should like to order|Would you kindly send me] {small} [jars of jam|pounds of {fruit}|packets of tea|loaves of bread|sacks of potatoes] and [a box of candles|some {food}|{gift}]. [I will pay when they come.|The money is in this letter.] Please send everything to {n} {street}, {town}.",
        "I have read that you are looking for a(n) {job}. I have worked as a(n) {job} for {number} years in {town}, and I like the work. [I am never late.|I get up early.|I can also {chore_now}.] I could begin on {day}.",
        "[The clock|The lamp|The umbrella|The bicycle] that I bought from you on {day} does not work. [Could you mend it?|Please tell me when I may bring it back.] Otherwise I am quite content with your shop.",
        "On {day} I left my {colour} [umbrella|scarf|hat|bag] in your [shop|library|train]. Has anybody found it? It has [a wooden handle|my name in it|a {colour} button|a small hole]. I should be very glad to have it back.",
    ), n=str(t.rng.randint(2, 40)))
    return _letter(t, to, [body], END_POLITE, p("{name} {surname}"))


def to_a_teacher(t: Telling) -> str:
    p = t.phrases
    she = t.maybe(0.5)
    p.keep(child=p("{girl}" if she else "{boy}"), he="she" if she else "he", son="daughter" if she else "son")
    to = p("[Miss {surname}|Mr. {surname}|Mrs. {surname}|teacher]")
    body = p.pick((
        "{child} cannot come to school [today|tomorrow|on {day}], because {he} [has a cold|has a sore throat|must go to the dentist|has hurt {his} foot]. {He} will come again [on {day}|when {he} is well]. [Please tell us what there is to learn.|]",
        "Thank you for all that you have taught {child} this year. {He} [can read well now|likes {subject} best|tells us every evening what you have told {him}]. We wish you a [fine|restful] summer.",
        "[We should like to speak with you about {child}.|May we come and see you?] {He} likes [{subject} and {subject}|going to school], but [{subject} is hard for {him}|{he} is often tired]. We could come on {day} at {hour} o'clock.",
    ), his="her" if she else "his", him="her" if she else "him")
    return _letter(t, to, [body], END_POLITE, p("[Mr.|Mrs.] {surname}"))


KINDS = ((family, 10), (thanks, 5), (invitation, 5), (to_the_king, 4), (reply_of_king, 1), (postcard, 3), (sorry, 3), (to_a_shop, 3), (to_a_teacher, 2))
