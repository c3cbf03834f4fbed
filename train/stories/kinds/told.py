"""Descriptions, diaries, little news, and people who tell about themselves."""

from train.stories.facts import SUBJECTS, any_fact
from train.stories.facts.days import DAYS
from train.stories.phrases import capital
from train.stories.scenes import Telling

ROOM = (
    "[In the middle|By the window|Against the wall] stands a [round|square|long|heavy|little] [wooden |old |]table with {small} chairs.", "[On the wall hangs|Over the bed hangs|Beside the door hangs] a [picture of {sight}|clock that ticks loudly|map of the world|small mirror].", "[Under the window|In one corner|Behind the door] there is a [bed with a {colour} blanket|shelf full of books|box of toys|chest with a lock].",
    "[On the floor lies|Before the fire lies] a [soft|thick|worn] {colour} carpet.", "A [cat|dog] sleeps [in the warm corner|on the cushion|beside the stove].", "The curtains are {colour}[ and reach down to the floor|].", "[From the window one sees|Through the window one can see] [the garden|the street|the hills|a {tree}|the roofs of the town].", "It smells of [apples|bread|wood|soap|{flower}|coffee].",
    "On the table there [is a bowl of {fruit}|are {number} books|stands a lamp|is a vase with {flower}].", "[In winter a fire burns there.|In the evening the lamp is lit.|The sun comes in early in the morning.]",
)
GARDEN = (
    "[Along the path|By the wall|Beside the gate|Under the windows] grow {flower}[ and {flower}|].", "[In one bed|In the sunny corner|At the back] there are {vegetable} and {vegetable}.", "A(n) {tree} stands [in the middle|by the fence|in the corner], and [a swing hangs from it|birds nest in it|there is a bench under it].", "[Bees fly from flower to flower.|Butterflies sit on the leaves.|A blackbird looks for worms.|A hedgehog lives under the heap of leaves.]",
    "[A small path of stones leads to the door.|A narrow path leads to the pond.]", "In the pond there are [{small} fish|frogs|water lilies].", "[In summer|In the evening] one can [sit there and hear the birds|smell the {flower}|pick {fruit}].", "The fence is {colour}, and the gate [is always open|creaks a little].",
)
PERSON = (
    "{He} has {hair1} hair and [blue|brown|green|grey] eyes.", "{He} is [tall|small|thin|stout|strong] and [walks quickly|walks slowly|stands very straight|is always in a hurry].", "{He} wears [a {colour} coat|a {colour} hat|an apron with deep pockets|spectacles|big boots|a {colour} scarf].", "{He} is {good} and {good}, and everybody likes {him}.",
    "{He} likes {hobby} and {hobby}.", "In {his} pocket there is always [a handkerchief|a piece of string|an apple|a pencil|a key].", "{He} lives in {street}, in a house with {number} windows.", "[On {day}|Every morning] {he} [goes to {place}|{feeds} the birds|has tea with a neighbour].", "When {he} laughs, [everyone laughs with {him}|one can hear it in the street|{his} eyes grow small].", "{He} speaks [slowly and clearly|very softly|with a loud voice|little, but listens well].",
)
SEASON_SIGHTS = {
    "spring": "[The snow has melted.|The days grow longer.] [The first {flower} come out.|The trees have young leaves.] [The birds come back and build their nests.|Lambs jump about in the meadow.] [The children leave their coats at home.|People dig in their gardens.]",
    "summer": "[The sun is high in the sky.|The days are long and hot.] [The wheat grows yellow in the fields.|The cherries are ripe.] [Bees hum in the flowers.|In the evening the air is warm.] [Children swim in the lake.|People sit in the shade and drink lemonade.]",
    "autumn": "[The leaves turn red and yellow.|The wind blows the leaves from the trees.] [The apples are picked.|Mist lies on the fields in the morning.] [The swallows fly south.|Squirrels hide their nuts.] [Children fly kites.|People carry wood into the house.]",
    "winter": "[Snow lies on the roofs.|The pond is frozen.] [The days are short and dark.|The trees have no leaves.] [Hungry birds come to the window.|The bear sleeps in its cave.] [Children build a snowman.|People sit by the fire and tell stories.]",
}


def _some(t: Telling, options: tuple[str, ...], low: int, high: int) -> str:
    return " ".join(t.phrases(part) for part in t.rng.sample(options, t.rng.randint(low, high)))


def description(t: Telling) -> str:
    """A room, a garden, a person, or a season."""
    p = t.phrases
    form = t.rng.randrange(5)
    if form == 0:
        return p("[This is the room of {name}.|The {room} was [large and bright|small but cosy|warm and quiet].|Let me describe my room.|My room is [not large|small and bright|at the top of the house].|There is a room that I like above all others.|Describe your room.\n\nMy room is small, but I like it.] ") + _some(t, ROOM, 3, 5)
    if form == 1:
        return p("[Behind the house there is a garden.|Our garden is [not big, but beautiful|full of flowers|old and quiet].|{Name} has a [small|large|wonderful] garden.|This is a description of our garden.|The garden lay in the [morning sun|evening light].] ") + _some(t, GARDEN, 3, 5)
    if form == 2:
        she = t.maybe(0.5)
        p.keep(he="she" if she else "he", him="her" if she else "him", his="her" if she else "his", feeds="feeds")
        who = p("[{x} is a(n) {job}.|{x} is my [neighbour|friend].|My {r} is called {x}.|Let me tell you about {x}.|Everybody in {town} knows {x}.|In our street lives {x}, a(n) {job}.] ", x=p("{girl}" if she else "{boy}"), r=p("[aunt|grandmother|sister|teacher]" if she else "[uncle|grandfather|brother|teacher]"))
        return who + _some(t, PERSON, 3, 5)
    season = t.rng.choice(tuple(SEASON_SIGHTS))
    if form == 3:
        return p(f"[It is {season}. |{capital(season)} has come. |This is what {season} is like. |{capital(season)}\n\n|What is it like in {season}? |I like {season} best. ]{SEASON_SIGHTS[season]}")
    return p("[We live in a [village|town] called {town}.|{town} is a [small town|village] [by the sea|in the hills|on a river].] [There is {a}, {b} and {c}.|It has {a} and {b}.] [In the middle stands an old {tree}.|On {day} there is a market.|The streets are narrow.|Everybody knows everybody.] [Many people work as {x}s or {y}s.|Most people there have a garden.|] [In summer visitors come.|In winter it is very quiet.|The {z} is {number} hundred years old.]",
             a="a school", b="a church", c=p("[a mill|a library|a station|a bakery]"), x=p("[farmer|carpenter|weaver]"), y=p("[baker|sailor|miller]"), z=p("[church|bridge|school]"))


def diary(t: Telling) -> str:
    """One to three days of a diary."""
    p = t.phrases
    entry = (
        "[Today it was {weather}.|A {weather} day.|It has been {weather} since the morning.|I woke early.|I got up late today.]", "[In the morning|After breakfast|Before school] I {chore}[ with my {relative}|].", "At school we had {subject} and {subject}. [I knew all the answers.|{Subject} was hard.|Our teacher was pleased with us.|I sat beside {name1}.]", "In the afternoon {name1} and I {play}. [It was great fun.|We laughed a great deal.|Then it began to rain.|I fell once, but it did not hurt.]",
        "[On the way home|By the river|From the window] I saw {sight}.", "For supper we had {meal}. [I ate [two|three] plates of it.|It was very good.|I helped to cook it.]", "[I learned that {fact}.|{Relative} told me that {fact}.|In a book I read that {fact}.]", "[I am {feeling}.|Now I am {feeling} and {feeling}.|I was {feeling} all day.]", "[Tomorrow we will {play_now}.|I am looking forward to tomorrow.|Now I must sleep. Good night, diary.|I can hear the rain on the roof.]",
    )
    days = []
    start, gap = t.rng.randint(1, 24), t.rng.choice(("\n", "\n\n"))
    month = p("{month1}")
    form = t.rng.randrange(4)
    weekday = t.rng.randrange(7)
    for n in range(t.rng.choice((1, 1, 2, 3))):
        p.keep(fact=any_fact(t.rng).clause)
        head = ("Dear Diary,", f"{month} {start + n}", DAYS[(weekday + n) % 7], f"{DAYS[(weekday + n) % 7]}, {start + n} {month}")[form]
        chosen = sorted(t.rng.sample(range(len(entry)), t.rng.randint(3, 5)))
        days.append(f"{head}{gap}" + " ".join(p(entry[i]) for i in chosen))
    return "\n\n".join(days)


NEWS = (
    "{town}, {month} {n}. [On {day} morning|On {day}|Yesterday] [the new bridge over the river was opened|the new school was opened|the library opened its doors|the old mill began to turn again]. [Many people came to see it.|The children sang a song.|The mayor spoke for {number} minutes.] [Afterwards there was {meal} for everybody.|It had taken {small} years to build.|Everybody was pleased.]",
    "[Lost|Lost on {day}]: a {colour} {animal} called {petname}. It is [very tame|a little shy|friendly to children] and answers to its name. [Please bring it back|Whoever finds it is asked to bring it] to {name} {surname}, {street}, {town}. [There is a reward of {number} shillings.|We miss it very much.|It likes {food}.]",
    "[Found|Found near {place}]: [a {colour} scarf|a silver watch|a bag of marbles|a key with a {colour} ribbon|a basket of {fruit}]. [It may be fetched|The owner can fetch it] [at the school|from the baker|at {n} {street}] [every day before noon|on {day} afternoon].",
    "The [school|library|church] of {town} [will hold|is holding] a [fair|concert|feast] on {day}, {month} {n}, at {hour} o'clock. There will be [songs|music|games|a play|{sweet}] and [a race for children|a puppet show|a prize for the best cake]. [All are welcome.|Everybody is invited.|Children need not pay.]",
    "[For sale|To be sold]: [a boat, {number} years old|a bicycle with a new bell|a good stove|{number} hens and a cock|a piano|a box of books]. [It is in good order.|It has been well kept.|Price: {number} shillings.] Ask [Mr.|Mrs.] {surname} in {street}.",
    "The weather: [In the morning|On {day}] it will be {weather}, [in the afternoon|later] {weather}. [The wind comes from the [north|south|east|west].|In the night it will be cold.|Take an umbrella with you.]",
    "A {pet} [in {town}|near {town}] has [found its way home after {number} weeks|made friends with a duck|learned to open doors|saved a kitten from the rain]. \"[We had given up hope|We could hardly believe it|It is a clever animal],\" said [Mr.|Mrs.] {surname}, to whom it belongs. [Now it sleeps by the stove.|The children gave it {food}.|Many people have come to see it.]",
    "[Baker|Gardener|Teacher|Carpenter|Nurse] {name} {surname} of {town} is {age} years old today. [\"I have always liked my work,\" {name1} told us.|The whole street came with flowers.|The band played.] [We wish many happy years.|There was a cake with {age} candles.]",
    "The children of the {town} school have [planted {age} trees|collected {age} books for the library|cleaned the bank of the river|painted the walls of their schoolroom]. \"[It was hard work, but we laughed a great deal|Many hands make light work],\" said {name1}, who is {age} years old.",
)


def news(t: Telling) -> str:
    p = t.phrases
    body = p.pick(NEWS, n=str(t.rng.randint(1, 28)), age=str(t.rng.randint(60, 99)))
    head = p("[Notice\n\n|News from {town}\n\n|The {town} News\n\n|]") if t.maybe(0.4) else ""
    return head + body


def about_me(t: Telling) -> str:
    """ "My name is …": somebody tells about himself or herself."""
    p = t.phrases
    rest = (
        "I [have|have got] {small} [brothers|sisters][ and a {pet}|].", "I like {hobby}[ and {hobby}|].", "My favourite colour is {colour}.", "At school I like {subject} best[, because it is easy for me|, because our teacher is kind|].", "When I am grown up, I want to be a(n) {job}.", "My {relative} is a(n) {job}.", "My best friend is called {name2}. We often {play_now}.", "I like to eat {food} and {food}.", "I am afraid of [thunder|the dark|nothing|deep water], but [I do not tell anyone|not very much].", "My {pet} is called {petname}[ and is {colour}|].", "In summer we go to {place}.", "I know that {fact}.",
    )
    p.keep(fact=any_fact(t.rng).clause)
    start = p("[My name is {name1}|I am called {name1}|I am {name1}], and I am {age} years old. [I live in {town}.|I live in a {colour} house in {town}.|I come from {town}, a small town.|I go to school in {town}.] ")
    text = start + _some(t, rest, 2, 5)
    if t.maybe(0.15):
        text = p("[Tell me about yourself.|Who are you?|Please introduce yourself.]\n\n") + text
    return text


def animal_essay(t: Telling) -> str:
    """All that the tables know about one animal."""
    animal = t.rng.choice(sorted({row["animal"] for name in ("classes", "young", "animal food") for row in SUBJECTS[name].rows}))
    subjects = [SUBJECTS[name] for name in ("classes", "legs", "animal food", "homes", "sounds", "young", "gifts")]
    told = [(subject, rows) for subject in subjects if (rows := [row for row in subject.rows if row["animal"] == animal])]
    sentences = []
    for n, (subject, rows) in enumerate(told):
        row = t.rng.choice(rows)
        clause = subject.fact(t.rng, row).clause
        start = f"{_the(clause, animal)} "
        if n and clause.startswith(start) and t.maybe(0.7):
            clause = "it " + clause[len(start):]
        sentences.append(capital(clause) + ".")
    return t.phrases("[The {x}\n\n|About the {x}\n\n|||What do you know about the {x}? |Write about the {x}.\n\n|Tell me about the {x}. |The {x}: ]", x=animal) + " ".join(sentences)


def _the(clause: str, animal: str) -> str:
    for article in ("the", "a", "an"):
        if clause.startswith(f"{article} {animal} "):
            return f"{article} {animal}"
    return "\n"


KINDS = ((description, 8), (diary, 7), (news, 5), (about_me, 4), (animal_essay, 6))
