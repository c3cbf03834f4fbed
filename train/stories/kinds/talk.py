"""Dialogues, plain or as a play: in a shop, at the doctor's, on the way, at home."""

# Prose reads better in long lines than cut into pieces.
# ruff: noqa: E501
# fmt: off

from __future__ import annotations

from train.stories.phrases import Phrases, capital
from train.stories.scenes import Telling

Turn = tuple[str, str]  # who speaks ("a" or "b"), and a template

GREETING: tuple[tuple[Turn, ...], ...] = (
    (("a", "Good morning, {b}!"), ("b", "Good morning, {a}. [How are you?|How do you do?|It is a fine day.]"), ("a", "[I am well, thank you.|Very well, thank you. And you?|Quite well.]")),
    (("a", "Hello, {b}. [Where are you going?|What are you doing?]"), ("b", "[I am going to {place}.|I am on my way to {place}.|Only for a walk.|I want to {play_now}.]"), ("a", "[May I come too?|May I go with you?|Then I will come with you.]"), ("b", "[Of course.|Yes, do.|With pleasure.|I should like that.]")),
    (("a", "[Is that you, {b}?|Who is there?]"), ("b", "It is I, {b}. [May I come in?|I have something for you.]"), ("a", "[Come in, come in!|How nice of you to come!]")),
)

TALKS: dict[str, tuple[tuple[Turn, ...], ...]] = {
    "shop": (
        (("a", "Good [morning|day]. What can I do for you?"), ("b", "I should like [{small} pounds of {fruit}|some {food}|{small} eggs|a loaf of bread|some {vegetable}], please."), ("a", "[Here you are.|Certainly.|They are quite fresh.] [Is that all?|Anything else?]"), ("b", "[Yes, thank you. How much is it?|And a little {food}, please. How much is that?]"), ("a", "That makes {number} pence."), ("b", "Here it is. Thank you[| very much]."), ("a", "Thank you. Good-bye!")),
        (("b", "Have you any {fruit} today?"), ("a", "[I am sorry, they are all gone.|Not today. But I have fine {fruit1}.]"), ("b", "Then I will take {small} pounds of {fruit1}."), ("a", "[A good choice.|They are very sweet.] Shall I put them into a bag?"), ("b", "No, thank you. I have a basket.")),
        (("b", "How much does [the {colour} {petthing}|this book|that kite|the {colour} scarf] cost?"), ("a", "It costs {number} shillings."), ("b", "That is too much for me. I have only {small}."), ("a", "[Well, because it is you, you may have it for {small}.|Then look at this one. It costs only two.]"), ("b", "[How kind of you!|I will take it.|Thank you very much!]")),
        (("a", "Do you want something to read?"), ("b", "Yes, I am looking for a book about {plural_animal}."), ("a", "This one is [very good|full of pictures|new]. My own children like it."), ("b", "Then I will take it."),),
    ),
    "doctor": (
        (("a", "Good morning. What is the matter?"), ("b", "My [head|ear|throat|stomach|tooth|knee|foot] hurts, doctor."), ("a", "[Since when?|How long has it hurt?]"), ("b", "[Since yesterday.|For two days.|Since this morning.]"), ("a", "Let me look. [Open your mouth, please.|Sit down here.|Does it hurt when I press here?]"), ("b", "[Yes, a little.|Only a little.|Not very much.]"), ("a", "It is nothing bad. [Drink warm tea and stay in bed for a day.|Rest for two days, and you will be well.|I will bind it up for you.]"), ("b", "Thank you, doctor."), ("a", "Get well soon!")),
        (("b", "Doctor, I [have a cold|cough all night|cannot sleep|am always tired]."), ("a", "[When do you go to bed?|Do you go out into the fresh air?]"), ("b", "[Very late, I am afraid.|Not often.]"), ("a", "Then go to bed early, drink much water, and walk a little every day."), ("b", "Is that all?"), ("a", "That is all. [Come back in a week.|You will see that it helps.]")),
    ),
    "way": (
        (("b", "Excuse me, [how do I get to|where is|which is the way to] the [station|library|school|market|church|museum], please?"), ("a", "[It is not far.|That is easy.] Go straight on as far as the [bridge|well|church|big {tree}], and then turn [left|right]."), ("b", "Straight on, and then I turn. [Is it far?|How long does it take?]"), ("a", "[About {number} minutes.|No, you will be there in {number} minutes.]"), ("b", "Thank you very much."), ("a", "You are welcome.")),
        (("b", "When does the [next train|train to {town}|boat|bus] leave?"), ("a", "At half past {hour}."), ("b", "[And how much is a ticket?|Where must I wait?]"), ("a", "[A ticket costs {number} pence.|Over there, by the clock.]"), ("b", "Thank you. [Two tickets, please.|I will wait there.]"), ("a", "Have a good journey!")),
    ),
    "home": (
        (("a", "It is time to get up, {b}!"), ("b", "[Is it late?|I am still so sleepy.|Only a minute more!]"), ("a", "It is {hour} o'clock, and breakfast is on the table."), ("b", "What is there for breakfast?"), ("a", "{Meal}."), ("b", "[Oh, good! I am coming.|Then I will get up at once.]")),
        (("a", "Have you [done your lessons|washed your hands|fed the {pet}], {b}?"), ("b", "[Not yet.|Almost.|I forgot.]"), ("a", "Then do it now, [please|and after that we can {play_now}]."), ("b", "[Yes, I will.|All right.|At once!]"), ("a", "[Thank you.|That is a good child.]")),
        (("a", "What shall we do today?"), ("b", "We could {play_now}."), ("a", "But it is {weather}. [What do you think?|]"), ("b", "[Then let us stay at home and read.|That does not matter.|All the better!]"), ("a", "[Very well.|A good idea.] And in the evening we will have {meal}.")),
        (("b", "May I have a {pet}?"), ("a", "[A {pet} is much work.|Who would feed it?]"), ("b", "I will feed it every day, I promise."), ("a", "And where would it sleep?"), ("b", "In my room."), ("a", "[We will think about it.|Well, let us ask your {relative}.|Very well, you may have one.]"), ("b", "Thank you, thank you!")),
        (("a", "Why are you so [sad|quiet], {b}?"), ("b", "[I have lost my {colour} cap.|My friend has moved away.|I broke a cup.|Nobody wants to play with me.]"), ("a", "[That is not so bad.|I am sorry to hear it.|Do not be sad.] [I will help you.|Come and sit with me.|Tomorrow is a new day.]"), ("b", "[You are very kind.|Thank you. Now I feel better.]")),
        (("b", "Tell me a story, please."), ("a", "What shall it be about?"), ("b", "About a(n) {animal1} and a(n) {animal2}."), ("a", "Well, once upon a time there was a(n) {animal1} who lived in the wood. One day the {animal1} met a(n) {animal2}, and they became friends. They built a little house together, and there they live to this day."), ("b", "[That was a nice story.|Another one, please!|And what happened then?]"), ("a", "[Now it is time to sleep. Good night!|Tomorrow I will tell you more.]")),
    ),
    "friends": (
        (("a", "What is your name?"), ("b", "My name is {b}. And yours?"), ("a", "I am {a}. How old are you?"), ("b", "I am {age} years old. [And you?|I go to school.]"), ("a", "[So am I!|So am I.|I am {age}.] Do you live here?"), ("b", "Yes, in {street}, beside the [baker's|school|mill|park]."), ("a", "[Shall we play together?|Let us be friends.]"), ("b", "[Yes, gladly!|I should like that.]")),
        (("a", "What do you like best, {b}?"), ("b", "I like {hobby}. And you?"), ("a", "I like {hobby}[, and I like {food} as well|]."), ("b", "[Why?|Is that not hard?]"), ("a", "[Because it makes me happy.|No, it is easy when you practise.|It is fun!]")),
        (("a", "I had a strange dream last night."), ("b", "What did you dream?"), ("a", "I dreamed that I could fly, and that a(n) {animal} flew beside me."), ("b", "[And where did you fly?|Were you afraid?]"), ("a", "[Over the hills, as far as the sea.|No, it was beautiful. Then I woke up.]"), ("b", "[I should like to dream that, too.|What a pity that you woke up!]")),
        (("a", "Look, {b}! [There is {sight}!|Do you see it? It is {sight}!]"), ("b", "[Where? I cannot see it.|Oh, how beautiful!]"), ("a", "[There, behind the {tree}.|Over there, beside {place}.]"), ("b", "[Now I see it!|Let us go nearer.|We must be very quiet.]")),
        (("a", "I am sorry, {b}. [I took your pencil without asking.|I was not kind to you yesterday.|I broke your kite.]"), ("b", "[Why did you do it?|I was sad about it.]"), ("a", "[I do not know. I will not do it again.|I was angry. It was wrong of me.]"), ("b", "[Then let us be friends again.|It is all right.|I forgive you.]"), ("a", "Thank you, {b}.")),
        (("a", "Can you help me, {b}?"), ("b", "Of course. What is it?"), ("a", "[This bag is too heavy for me.|I cannot do this sum.|I cannot reach the apples.|I have lost my key.]"), ("b", "[Let me see.|We will do it together.|Two can do it better than one.]"), ("a", "[Thank you. That was easy!|Now it is done. Thank you!]"), ("b", "[You are welcome.|It was nothing.]")),
        (("a", "What will you be when you are grown up?"), ("b", "I will be a(n) {job}. And you?"), ("a", "A(n) {job}, I think. [Or a(n) {job}.|I like to work with my hands.|I want to help people.]"), ("b", "[That is a fine trade.|Then you must learn a great deal.]")),
    ),
    "weather": (
        (("a", "What is the weather like today?"), ("b", "It is {weather}[| and {weather}]."), ("a", "Then [take your coat|do not forget your hat|we can {play_now}|let us stay in]."), ("b", "[I will.|A good idea.|Yes, you are right.]")),
        (("a", "Do you think it will rain?"), ("b", "[Yes, look at the dark clouds.|No, the sky is quite blue.|Perhaps in the evening.]"), ("a", "[I like the rain.|My garden needs rain.|Then we can go out.]"), ("b", "[So do the ducks!|So do I.|Yes, let us go.]")),
    ),
    "telephone": (
        (("a", "Hello, this is {a}. Who is speaking?"), ("b", "Hello, {a}, it is {b}. [Have you time on {day}?|What are you doing on {day}?]"), ("a", "[Yes, I think so. Why?|On {day}? Let me see. Yes.]"), ("b", "[It is my birthday.|We want to {play_now}.] Will you come?"), ("a", "[Gladly! At what time?|With pleasure. When?]"), ("b", "At {hour} o'clock."), ("a", "I shall be there. Good-bye, {b}!"), ("b", "Good-bye!")),
    ),
}

ROLES = {"shop": ("[Baker|Shopkeeper|Mr. {surname}|Mrs. {surname}|Woman]", "{name1}"), "doctor": ("Doctor", "{name1}"), "way": ("[Old man|Policeman|Woman|Postman|Boy|Girl]", "[Traveller|{name1}|Visitor]"),
         "home": ("[Mother|Father|Grandmother|Grandfather]", "{name1}")}
SETTINGS = {
    "shop": "[In the shop|At the baker's|At the market|In a little shop in {street}]", "doctor": "[At the doctor's|{Name} is ill|A visit to the doctor]", "way": "[In the street|At the station|A stranger asks the way]",
    "home": "[At home|At breakfast|In the kitchen|In the evening]", "friends": "[Two friends|In the park|After school|On the way home|{A} and {b}]", "weather": "[About the weather|At the window]", "telephone": "[On the telephone|A call]",
}
SAID = {"?": ("asked",), "!": ("cried", "said", "called"), ".": ("said", "said", "answered", "replied")}


def _cast(p: Phrases, where: str) -> dict[str, str]:
    first, second = ROLES.get(where, ("{name1}", "{name2}"))
    p.keep(petthing="umbrella", plural_animal=p("[ships|stars|animals|birds|trees|flowers|horses|trains|the sea]"))
    p.keep(a=p(first), b=p(second))
    return p.given


def play(t: Telling) -> str:
    """A dialogue with the name before each line."""
    p = t.phrases
    where = t.rng.choice(tuple(TALKS))
    given = _cast(p, where)
    turns = list(t.rng.choice(TALKS[where]))
    if where == "friends" and t.maybe(0.4):
        turns = [*t.rng.choice(GREETING), *turns]
    lines, last = [], ""
    for who, line in turns:
        if who == last:
            lines[-1] += " " + p(line).strip()
        else:
            lines.append(f"{given[who]}: {p(line).strip()}")
        last = who
    head = f"{p(SETTINGS[where])}\n\n" if t.maybe(0.3) else ""
    return head + ("\n\n" if t.maybe(0.15) else "\n").join(lines)


def dialogue(t: Telling) -> str:
    """The same as prose: with quotation marks, and "said" where it helps."""
    p, rng = t.phrases, t.rng
    where = rng.choice(tuple(TALKS))
    given = _cast(p, where)
    names = {"a": given["a"], "b": given["b"]}
    if where in ROLES:
        names = {who: name if name in (given.get("name1"),) or "." in name else f"the {name.lower()}" for who, name in names.items()}
    turns = list(rng.choice(TALKS[where]))
    if where == "friends" and t.maybe(0.4):
        turns = [*rng.choice(GREETING), *turns]
    lines, last = [], ""
    for n, (who, line) in enumerate(turns):
        said = p(line).strip()
        if who == last:
            lines[-1] += f' "{said}"'
            continue
        if n < 2 or rng.random() < 0.45:
            verb = rng.choice(SAID[said[-1]])
            if said.endswith("."):
                said = said[:-1] + ","
            spoken = f'"{said}" {verb} {names[who]}.' if rng.random() < 0.8 else f'"{said}" {names[who]} {verb}.'
        else:
            spoken = f'"{said}"'
        lines.append(spoken)
        last = who
    start = ""
    if t.maybe(0.5):
        start = p("[One day|On {day}|One {weather} morning|In the afternoon|Yesterday] {x} [met|saw|spoke with] {y}.\n\n" if where in ("friends", "weather") else "[It was {day}.|It was a {weather} day.|It was {hour} o'clock.|]\n\n", x=names["a"], y=names["b"]).lstrip()
    end = p("\n\n[They both laughed.|And so it was.|Then they went home.|They were both content.|And they shook hands.]") if t.maybe(0.3) and where in ("friends", "weather") else ""
    return start + ("\n\n" if t.maybe(0.7) else " ").join(map(capital, lines)) + end


KINDS = ((play, 9), (dialogue, 9))
