"""Dialogues, plain or as a play: in a shop, at the doctor's, on the way, at home."""

from train.stories.phrases import Phrases, capital
from train.stories.scenes import Telling

Turn = tuple[str, str]  # who speaks ("a" or "b"), and a template

GREETING: tuple[tuple[Turn, ...], ...] = (
    (("a", "Good morning, {b}!"), ("b", "Good morning, {a}. How are you?"), ("a", "[I am well, thank you.|Very well, thank you.|Quite well.]")),
    (("a", "Hello, {b}. Where are you going?"), ("b", "[I am going to {place}.|I am on my way to {place}.|Only for a walk.|I want to {play_now}.]"), ("a", "[May I come too?|May I go with you?|Then I will come with you.]"), ("b", "[Of course.|Yes, do.|With pleasure.|I should like that.]")),
    (("a", "[Is that you, {b}?|Who is there?]"), ("b", "It is I, {b}. [May I come in?|I have something for you.]"), ("a", "[Come in, come in!|How nice of you to come!]")),
)

TALKS: dict[str, tuple[tuple[Turn, ...], ...]] = {
    "shop": (
        (("a", "Good [morning|day]. What can I do for you?"), ("b", "I should like [{small} pounds of {fruit}|some {food}|{small} eggs|a loaf of bread|some {vegetable}], please."), ("a", "[Here you are.|Certainly.|They are quite fresh.] [Is that all?|Anything else?]"), ("b", "[Yes, thank you. How much is it?|And a little {food}, please. How much is that?]"), ("a", "That makes {number} pence."), ("b", "Here it is. Thank you[| very much]."), ("a", "Thank you. Good-bye!")),
        (("b", "Have you any {fruit} today?"), ("a", "[I am sorry, they are all gone.|Not today. But I have fine {fruit1}.]"), ("b", "Then I will take {small} pounds of {fruit1}."), ("a", "[A good choice.|They are very sweet.] Shall I put them into a bag?"), ("b", "No, thank you. I have a basket.")),
        (("b", "How much does [the {colour} {petthing}|this book|that kite|the {colour} scarf] cost?"), ("a", "It costs [seven|eight|nine|ten] shillings."), ("b", "That is too much for me. I have only {small1}."), ("a", "[Well, because it is you, you may have it for {small1}.|Then look at this one. It costs only two.]"), ("b", "[How kind of you!|I will take it.|Thank you very much!]")),
        (("a", "Do you want something to read?"), ("b", "Yes, I am looking for a book about {plural_animal}."), ("a", "This one is [very good|full of pictures|new]. My own children like it."), ("b", "Then I will take it."),),
    ),
    "doctor": (
        (("a", "Good morning. What is the matter?"), ("b", "My [head|ear|throat|stomach|tooth|knee|foot] hurts, doctor."), ("a", "[b:Since when?|How long has it hurt?]"), ("b", "[b:Since yesterday.|For two days.]"), ("a", "Let me look. Does it hurt when I press here?"), ("b", "[Yes, a little.|Only a little.|Not very much.]"), ("a", "It is nothing bad. [Drink warm tea and stay in bed for a day.|Rest for two days, and you will be well.|I will bind it up for you.]"), ("b", "Thank you, doctor."), ("a", "Get well soon!")),
        (("b", "Doctor, I [have a cold|cough all night|cannot sleep|am always tired]."), ("a", "[b:When do you go to bed?|Do you go out into the fresh air?]"), ("b", "[b:Very late, I am afraid.|Not often.]"), ("a", "Then go to bed early, drink much water, and walk a little every day."), ("b", "Is that all?"), ("a", "That is all. [Come back in a week.|You will see that it helps.]")),
    ),
    "way": (
        (("b", "Excuse me, [how do I get to|where is|which is the way to] the [station|library|school|market|church|museum], please?"), ("a", "[It is not far.|That is easy.] Go straight on as far as the [bridge|well|church|big {tree}], and then turn [left|right]."), ("b", "Straight on, and then I turn. [b:Is it far?|How long does it take?]"), ("a", "[b:No, you will be there in {number} minutes.|About {number} minutes.]"), ("b", "Thank you very much."), ("a", "You are welcome.")),
        (("b", "When does the [next train|train to {town}|boat|bus] leave?"), ("a", "At half past {hour}."), ("b", "[b:And how much is a ticket?|Where must I wait?]"), ("a", "[b:A ticket costs {number} pence.|Over there, by the clock.]"), ("b", "Thank you. [b:Two tickets, please.|I will wait there.]"), ("a", "Have a good journey!")),
    ),
    "home": (
        (("a", "It is time to get up, {b}!"), ("b", "[Is it late?|What time is it?]"), ("a", "It is {hour} o'clock, and breakfast is on the table."), ("b", "What is there for breakfast?"), ("a", "{Meal}."), ("b", "[Oh, good! I am coming.|Then I will get up at once.]")),
        (("a", "Have you [done your lessons|washed your hands|fed the {pet}], {b}?"), ("b", "[Not yet.|Almost.|I forgot.]"), ("a", "Then do it now, [please|and after that we can {play_now}]."), ("b", "[Yes, I will.|All right.|At once!]"), ("a", "[Thank you.|That is a good child.]")),
        (("a", "What shall we do today?"), ("b", "We could {play_now}."), ("a", "But it is [rainy|cold|windy|snowy|misty]. [What do you think?|]"), ("b", "[Then let us stay at home and read.|That does not matter to me.|We can dress warmly.]"), ("a", "[Very well.|A good idea.] And in the evening we will have {meal}.")),
        (("b", "May I have a {pet1}?"), ("a", "[A(n) {pet1} is much work.|Who would feed it?]"), ("b", "I will feed it every day, I promise."), ("a", "And where would it sleep?"), ("b", "In my room."), ("a", "[We will think about it.|Well, let us ask your {relative}.|Very well, you may have one.]"), ("b", "Thank you, thank you!")),
        (("a", "Why are you so [sad|quiet], {b}?"), ("b", "[I have lost my {colour} cap.|My friend has moved away.|I broke a cup.|Nobody wants to play with me.]"), ("a", "[That is not so bad.|I am sorry to hear it.|Do not be sad.] [I will help you.|Come and sit with me.|Tomorrow is a new day.]"), ("b", "[You are very kind.|Thank you. Now I feel better.]")),
        (("b", "I cannot sleep, {a}."), ("a", "[What is the matter?|Why not?]"), ("b", "[The wind is so loud.|I am thinking of tomorrow.|I am not tired.]"), ("a", "[Then count the sheep: one, two, three, four, five ...|Shut your eyes and think of {place}.|I will sit with you for a while.]"), ("b", "[Good night, {a}.|Thank you. Now I can sleep.]"), ("a", "Good night, {b}. Sleep well.")),
        (("b", "What are you cooking? It smells so good."), ("a", "{Meal}. [b:Do you want to help me?|It will soon be ready.]"), ("b", "[b:Yes, what shall I do?|How many are we today?]"), ("a", "[b:Bring me {kitchen_thing}, please.|We are {small}.]")),
        (("b", "I have torn my [shirt|coat|sock], {a}. Are you angry?"), ("a", "[No, such things happen.|A little, but I will mend it.]"), ("b", "[b:I will be more careful.|May I learn to mend it myself?]"), ("a", "[b:Bring me the needle and some thread.|Yes, I will show you how.]")),
        (("b", "How old are you, {a}?"), ("a", "[Older than you!|As old as my hands and a little older than my teeth.|I am much older than you. Guess!]"), ("b", "[A hundred?|Thirty?|Older than the house?]"), ("a", "[Not quite!|No, no. Guess again.]")),
        (("b", "Tell me a story, please."), ("a", "What shall it be about?"), ("b", "About a(n) {animal1} and a(n) {animal2}."), ("a", "Well, once upon a time there was a(n) {animal1} who lived in the wood. One day the {animal1} met a(n) {animal2}, and they became friends. They built a little house together, and there they live to this day."), ("b", "[That was a nice story.|Another one, please!|And what happened then?]"), ("a", "[Now it is time to sleep. Good night!|Tomorrow I will tell you more.]")),
    ),
    "friends": (
        (("a", "What is your name?"), ("b", "My name is {b}. And yours?"), ("a", "I am {a}. How old are you?"), ("b", "I am {age} years old. [And you?|I go to school.]"), ("a", "[So am I!|So am I.|I am {age}.] Do you live here?"), ("b", "Yes, in {street}, beside the [baker's|school|mill|park]."), ("a", "[Shall we play together?|Let us be friends.]"), ("b", "[Yes, gladly!|I should like that.]")),
        (("a", "What do you like best, {b}?"), ("b", "I like {hobby}. And you?"), ("a", "I like {hobby}[, and I like {food} as well|]."), ("b", "[b:Why?|Is that not hard?]"), ("a", "[b:Because it makes me happy.|No, it is easy when you practise.]")),
        (("a", "I had a strange dream last night."), ("b", "What did you dream?"), ("a", "I dreamed that I could fly, and that a(n) {animal} flew beside me."), ("b", "[b:And where did you fly?|Were you afraid?]"), ("a", "[b:Over the hills, as far as the sea.|No, it was beautiful. Then I woke up.]"), ("b", "[I should like to dream that, too.|What a pity that you woke up!]")),
        (("a", "Look, {b}! [There is {sight}!|Do you see it? It is {sight}!]"), ("b", "[b:Where? I cannot see it.|Oh, how beautiful!]"), ("a", "[b:There, behind the {tree}.|Yes, is it not?]"), ("b", "[b:Now I see it!|Let us go nearer.]")),
        (("a", "I am sorry, {b}. [I took your pencil without asking.|I was not kind to you yesterday.|I broke your kite.]"), ("b", "[b:Why did you do it?|I was sad about it.]"), ("a", "[b:I do not know. I will not do it again.|I know. It was wrong of me.]"), ("b", "[Then let us be friends again.|It is all right.|I forgive you.]"), ("a", "Thank you, {b}.")),
        (("a", "Can you help me, {b}?"), ("b", "Of course. What is it?"), ("a", "[This bag is too heavy for me.|I cannot do this sum.|I cannot reach the apples.|I have lost my key.]"), ("b", "[Let me see.|We will do it together.|Two can do it better than one.]"), ("a", "[Thank you. That was easy!|Now it is done. Thank you!]"), ("b", "[You are welcome.|It was nothing.]")),
        (("a", "Guess what I have in my hand, {b}."), ("b", "Is it [a stone|a button|a coin|a nut]?"), ("a", "No. It is [small and {colour}|round and smooth|very light]."), ("b", "[Then I give it up. Show me!|Is it a snail?|Please show me!]"), ("a", "Look: it is [a ladybird|a {colour} shell|a feather|an acorn|a little frog]!"), ("b", "[How pretty!|Let us put it back into the grass.|Where did you find it?]")),
        (("a", "I cannot do this sum, {b}. What is {small} and one more?"), ("b", "Count it on your fingers."), ("a", "Oh yes, now I see. [Thank you!|It is easy after all.]"), ("b", "[Everything is easy when one knows how.|You did it yourself!]")),
        (("a", "Which season do you like best?"), ("b", "I like {season1} best. [And you?|What about you?]"), ("a", "{Season2}[, because then I can {play_now}|, because my birthday is in {season2}|]."), ("b", "[Every season has something good.|That is a good reason.|I like {season2} as well.]")),
        (("a", "Have you read [that book|the new book|the book I gave you], {b}?"), ("b", "[Yes, all of it.|Yes, in two days!]"), ("a", "[How did you like it?|What do you think of it?]"), ("b", "[Very much. I liked the {animal} best.|It made me laugh.|I cried a little at the end.|It was a little long, but good.]"), ("a", "[Then I will bring you another.|Lend it to {name3} when you have done.]")),
        (("a", "Let us play a game, {b}. I spy something {colour1}."), ("b", "Is it [the door|your coat|that flower|the curtain]?"), ("a", "No, guess again."), ("b", "Is it [the cup on the table|the hat of that man|the roof|this book]?"), ("a", "Yes! Now it is your turn."), ("b", "I spy something {colour2}.")),
        (("a", "Where were you yesterday, {b}? [I looked for you everywhere.|We missed you.]"), ("b", "I was [b:at my grandmother's|in bed with a cold|at {place} with my {relative}]."), ("a", "[b:And what did you do there?|Are you well again?|Did you see anything?]"), ("b", "[b:We {play}.|Yes, thank you. I slept all day.|Yes, I saw {sight}.]")),
        (("a", "May I borrow your [pencil|ruler|ball|bicycle|book|umbrella], {b}?"), ("b", "[Of course. Here it is.|Yes, but give it back, please.|Yes, if you are careful.]"), ("a", "[Thank you. I will bring it back tomorrow.|You are a good friend.]"), ("b", "[Do not hurry.|That is all right.|You are welcome.]")),
        (("a", "What are you making, {b}?"), ("b", "[A house for the birds.|A boat for the pond.|A scarf for my {relative}.|A kite.]"), ("a", "[b:May I help you?|Is it difficult?]"), ("b", "[b:Yes, hold this, please.|Not at all. Look, like this.]"), ("a", "[It will be beautiful.|You are clever with your hands.]")),
        (("a", "What will you be when you are grown up?"), ("b", "I will be a(n) {job}. And you?"), ("a", "A(n) {job}, I think. [Or a(n) {job}.|I like to work with my hands.|I want to help people.]"), ("b", "[That is a fine trade.|Then you must learn a great deal.]")),
    ),
    "animals": (
        (("a", "Good morning, {b}. Where are you going?"), ("b", "I am looking for [my hat|my breakfast|a new house|my children|the way home]. Have you seen anything?"), ("a", "[No, but I will help you to look.|I saw something by the {tree}.|Perhaps the {animal3} knows more.]"), ("b", "[You are a good neighbour.|Then let us go there together.|Thank you, {a}.]")),
        (("a", "It is going to be a hard winter, {b}."), ("b", "How do you know?"), ("a", "[The swallows have gone early.|There are so many nuts on the trees.|I feel it in my paws.]"), ("b", "[Then I must fill my cellar.|I shall sleep until it is over.|You may come to me when it is cold.]"), ("a", "[That is kind of you.|A good idea.]")),
        (("a", "Who is there in my house?"), ("b", "It is only I, {b}. It rained, and your door was open."), ("a", "[Then stay until it is dry outside.|You might have knocked!]"), ("b", "[Thank you. I have brought some nuts.|I am sorry. I will knock next time.]"), ("a", "Sit down and have some {food} with me.")),
        (("a", "Can you [swim|sing|climb|dig], {b}?"), ("b", "[A little.|Not at all.|Better than anyone!]"), ("a", "[Will you show me?|I should like to learn it.|I never could.]"), ("b", "[Come to the pond tomorrow, and we will try it together.|Everybody can do something.|Then tell me what you can do.]")),
        (("a", "Why are you hiding behind that stone, {b}?"), ("b", "[There is something big and white in the meadow!|I heard a noise.|Hush! Somebody is coming.]"), ("a", "[That is only a sheep.|That was only the wind.|It is only the {animal3}, who lives over there.]"), ("b", "[Oh! Then I need not be afraid.|I am glad that you came.]")),
        (("a", "I have found an apple, {b}."), ("b", "It is a very big one. [Will you eat it alone?|What will you do with it?]"), ("a", "[No, half of it is for you.|We shall share it.]"), ("b", "[Tomorrow you shall have half of my nuts.|How sweet it is!|You are a good friend.]")),
    ),
    "weather": (
        (("a", "What is the weather like today?"), ("b", "It is [b:cold|snowy|rainy|windy|frosty|stormy|misty]."), ("a", "Then [b:take your coat|put on your boots|take your umbrella with you|hold on to your hat|wear your mittens|let us stay in|walk carefully]."), ("b", "[I will.|Yes, you are right.|That is a good idea.]")),
        (("a", "What is the weather like?"), ("b", "It is [fine|warm|sunny] today."), ("a", "Then [we can|let us] {play_now}!"), ("b", "[Yes, let us do that.|A good idea.|And afterwards we will have {meal}.]")),
        (("a", "Do you think it will rain?"), ("b", "[b:Yes, look at the dark clouds.|No, the sky is quite blue.|Perhaps in the evening.]"), ("a", "[b:I like the rain.|Then we can go out.|Good, for my garden needs rain.]"), ("b", "[b:So do the ducks!|Yes, let us go.|And mine, too.]")),
    ),
    "library": (
        (("a", "Good [morning|afternoon]. Can I help you?"), ("b", "Yes, please. I am looking for a book about {plural_animal}."), ("a", "[You will find it on the second shelf.|Come with me, I will show you.]"), ("b", "[b:May I take two books?|How long may I keep it?]"), ("a", "[b:You may take three.|You may keep it for {small} weeks.]"), ("b", "[Thank you. I will bring it back in time.|That is very kind of you.]")),
        (("b", "I have brought back my books."), ("a", "Thank you. [Did you like them?|How did you like them?]"), ("b", "[I liked the one about {plural_animal} best.|The first was good, but the second was too hard for me.]"), ("a", "Then I have another one for you. [It came in only today.|It has many pictures.]")),
    ),
    "farm": (
        (("b", "Good morning! What a fine [cow|horse|goat|dog|hen|sheep|pony|duck|donkey|rabbit|cat] you have."), ("a", "[Yes, I am proud of it.|It is the best one I ever had.]"), ("b", "[b:What is it called?|May I stroke it?]"), ("a", "[b:It is called {petname1}.|Of course, but be gentle.]"), ("b", "[c:And what does it eat?|How nice it is!]"), ("a", "[c:Whatever it can find!|You may come again tomorrow and help me.]")),
        (("b", "May I help you today?"), ("a", "Gladly! You can {chore_now}."), ("b", "[b:I have never done that before.|I know how to do it.]"), ("a", "[b:I will show you.|Very good. And afterwards we will have {meal}.]"), ("b", "[b:It is not hard at all!|Then let us begin.]")),
    ),
    "telephone": (
        (("a", "Hello, this is {a}. Who is speaking?"), ("b", "Hello, {a}, it is {b}. [b:Have you time on {day1}?|What are you doing on {day1}?]"), ("a", "[b:I think I have time. Why?|On {day1}? Nothing at all.]"), ("b", "[It is my birthday.|We want to {play_now}.] Will you come?"), ("a", "[Gladly! At what time?|With pleasure. When?]"), ("b", "At {hour} o'clock."), ("a", "I shall be there. Good-bye, {b}!"), ("b", "Good-bye!")),
    ),
}

ROLES = {"shop": ("[Baker|Shopkeeper|Mr. {surname}|Mrs. {surname}|Woman]", "{name1}"), "doctor": ("Doctor", "{name1}"), "way": ("[Old man|Policeman|Woman|Postman|Boy|Girl]", "[Traveller|{name1}|Visitor]"),
         "library": ("[Librarian|Mr. {surname}|Mrs. {surname}]", "{name1}"), "farm": ("[Farmer|Mr. {surname}|Mrs. {surname}]", "{name1}"), "home": ("[Mother|Father|Grandmother|Grandfather]", "{name1}")}
SETTINGS = {
    "shop": "[In the shop|At the baker's|At the market|In a little shop in {street}]", "doctor": "[At the doctor's|{name1} is ill|A visit to the doctor]", "way": "[In the street|At the station|A stranger asks the way]",
    "home": "[At home|At breakfast|In the kitchen|In the evening]", "animals": "[In the wood|In the meadow|By the pond|{A} and {b}]", "friends": "[Two friends|In the park|After school|On the way home|{A} and {b}]", "weather": "[About the weather|At the window]", "library": "[In the library|At the library]", "farm": "[On the farm|A visit to the farm]", "telephone": "[On the telephone|A call]",
}
SAID = {"?": ("asked",), "!": ("cried", "said", "called"), ".": ("said", "said", "answered", "replied")}


def _talk(t: Telling) -> tuple[str, tuple[Turn, ...]]:
    """A situation, and what is said in it."""
    where = t.rng.choice(tuple(TALKS))
    _cast(t.phrases, where)
    turns = t.rng.choice(TALKS[where])
    if where == "friends" and t.maybe(0.4):
        turns = (*t.rng.choice(GREETING), *turns)
    return where, turns


def _cast(p: Phrases, where: str) -> None:
    first, second = ROLES.get(where, ("{name1}", "{name2}"))
    if where == "animals":
        first, second = p("{animal1}").capitalize(), p("{animal2}").capitalize()
    p.keep(petthing="umbrella", plural_animal=p("[ships|stars|animals|birds|trees|flowers|horses|trains|the sea]"))
    p.keep(a=p(first), b=p(second))


def play(t: Telling) -> str:
    """A dialogue with the name before each line."""
    p = t.phrases
    where, turns = _talk(t)
    lines: list[str] = []
    last = ""
    for who, line in turns:
        if who == last:
            lines[-1] += " " + p(line).strip()
        else:
            lines.append(f"{p.given[who]}: {p(line).strip()}")
        last = who
    head = f"{p(SETTINGS[where])}\n\n" if t.maybe(0.3) else ""
    return head + ("\n\n" if t.maybe(0.15) else "\n").join(lines)


def dialogue(t: Telling) -> str:
    """The same as prose: with quotation marks, and "said" where it helps."""
    p, rng = t.phrases, t.rng
    where, turns = _talk(t)
    names = {"a": p.given["a"], "b": p.given["b"]}
    if where in ROLES or where == "animals":
        names = {who: name if name == p.given.get("name1") or "." in name or where == "home" else f"the {name.lower()}" for who, name in names.items()}
    lines: list[str] = []
    last = said = ""
    for n, (who, line) in enumerate(turns):
        asked, said = said.endswith("?"), p(line).strip()
        if who == last:
            lines[-1] += f' "{said}"'
            continue
        if n < 2 or rng.random() < 0.45:
            verb = rng.choice(SAID[said[-1]] if said[-1] != "." or asked else ("said",))
            if said.endswith("."):
                said = said[:-1] + ","
            spoken = f'"{said}" {verb} {names[who]}.' if rng.random() < 0.8 else f'"{said}" {names[who]} {verb}.'
        else:
            spoken = f'"{said}"'
        lines.append(spoken)
        last = who
    start = ""
    if t.maybe(0.5):
        start = p("[One day|On {day}|One {weather} morning|In the afternoon|Yesterday] {x} [met|saw|spoke with] {y}.\n\n" if where in ("friends", "weather", "animals") else "[It was {day}.|It was a {weather} day.|It was {hour} o'clock.|]\n\n", x=names["a"], y=names["b"]).lstrip()
    end = p("\n\n[They both laughed.|And so it was.|Then they went home.|They were both content.|And they shook hands.]") if t.maybe(0.3) and where in ("friends", "weather", "animals") else ""
    return start + ("\n\n" if t.maybe(0.7) else " ").join(map(capital, lines)) + end


KINDS = ((play, 9), (dialogue, 9))
