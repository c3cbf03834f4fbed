"""Lists, recipes, instructions, rules, timetables, counting, and a little of what looks like a program."""

from train.stories.facts.days import DAYS, MONTHS, NUMBERS, ORDINALS, spelled
from train.stories.phrases import capital, joined
from train.stories.scenes import Telling
from train.stories.slots import SLOTS, split

MARKS = ("- {}", "- {}", "* {}", "{n}. {}", "{n}. {}", "{n}) {}", "{}")

THINGS_TO: dict[str, tuple[str, ...]] = {
    "[Shopping list|To buy|What we need from the shop|Shopping for {day}]": split("bread; milk; butter; eggs; cheese; flour; sugar; salt; tea; honey; rice; apples; pears; carrots; potatoes; onions; jam; soap; candles; matches; a new broom; stamps; ink; a loaf of rye bread; two lemons; a bag of nuts; beans; oats; a bunch of {flower}; cocoa; paper; thread; a ball of string"),
    "[Things to pack|Packing list|What to take to the sea|What we take on the journey|In my bag]": split("two shirts; three pairs of socks; a warm coat; a hat; a toothbrush; soap; a towel; a book; a map; a blanket; some apples; a bottle of water; bread and cheese; a lamp; a pencil and paper; boots; a pocket knife; a ball; a raincoat; a scarf; a comb; sandals; a letter for {relative}; a tent; a rope; a compass"),
    "[Things to do today|To do|What I must do on {day}|Jobs for {name}|Work for the week]": split("feed the hens; sweep the floor; write to Grandmother; buy bread; water the {flower}; mend the fence; bake a cake; tidy my room; learn the poem; bring back the books; wash the windows; carry in the wood; practise {instrument}; pick {fruit}; call {name}; go to the post office; sew on a button; clean the shoes; give the {pet} fresh water; do my sums"),
    "[Rules of the class|Our rules|Rules for the school|How we behave|Good manners]": split("Be kind to each other.; Listen when somebody speaks.; Put up your hand before you speak.; Come on time.; Help those who need help.; Say please and thank you.; Tell the truth.; Put things back in their place.; Wash your hands before you eat.; Do not run on the stairs.; Share what you have.; Say sorry when you have done wrong.; Let everyone play.; Do not laugh when somebody makes a mistake.; Keep your place clean.; Try again when something goes wrong.; Wait for your turn.; Take care of the books."),
    "[Things that are round|Round things]": split("a ball; a wheel; a coin; the sun; the full moon; an orange; a plate; a button; a ring; a pea; a marble; the earth; a hoop"),
    "[Things that are red|Red things]": split("a ripe strawberry; a ripe tomato; a poppy; a ripe cherry; a ladybird; a fire engine; a ruby; a brick; a radish"),
    "[Things that are cold|Cold things]": split("ice; snow; a stone in winter; the north wind; a deep well; a frozen pond; frost; a cellar"),
    "[Things that can fly|What flies]": split("a bird; a bee; a butterfly; a kite; an aeroplane; a bat; a balloon; a feather in the wind; an owl; a beetle; a moth"),
    "[Things that swim|What lives in the water]": split("a fish; a duck; a whale; an otter; a frog; a swan; a seal; a crab; a dolphin; a shark; an eel"),
    "[Things in the kitchen|In our kitchen there are]": split("a stove; a table; four chairs; pots and pans; a kettle; plates and cups; spoons; a sink; a bread bin; a clock; a broom; a jar of flour"),
    "[Things in the schoolroom|In the schoolroom there are]": split("desks and benches; a blackboard; chalk; a map of the world; books; a globe; a clock; a bell; pencils; pictures of animals; a window"),
    "[What makes me happy|Things I like|Good things]": split("the smell of bread; a letter from a friend; the first snow; a new book; a walk in the wood; singing together; warm soup on a cold day; the sea; {hobby}; playing with my {pet}; the last day of school; a clear night with many stars; a kind word; Sunday morning; rain on the roof"),
    "[Animals on the farm|Farm animals]": split("a cow; a horse; a pig; a hen; a goat; a sheep; a duck; a goose; a dog; a cat; a donkey; a cock"),
    "[Animals of the wood|Animals in the forest]": split("a fox; a deer; a squirrel; an owl; a badger; a hare; a hedgehog; a mouse; a woodpecker; a boar; an ant"),
    "[Fruits|Kinds of fruit|Fruit that I like]": split("apples; pears; plums; cherries; grapes; oranges; bananas; lemons; peaches; strawberries; raspberries"),
    "[Vegetables|Kinds of vegetables|In the vegetable garden]": split("carrots; potatoes; beans; peas; onions; cabbages; leeks; beets; radishes; pumpkins; turnips"),
    "[Trees|Kinds of trees|Trees that I know]": split("the oak; the elm; the beech; the birch; the pine; the fir; the willow; the ash; the lime; the chestnut"),
    "[Trades|What people work as]": split("a baker; a teacher; a farmer; a doctor; a carpenter; a tailor; a cook; a sailor; a gardener; a postman; a painter; a nurse"),
    "[Words that rhyme|Rhymes]": split("cat and hat; mouse and house; bee and tree; star and far; moon and spoon; day and play; night and light; rain and train; sun and fun; cake and lake; king and ring; goat and boat"),
}


def a_list(t: Telling) -> str:
    """A heading and things below it, or a sentence that names them."""
    p = t.phrases
    head = t.rng.choice(tuple(THINGS_TO))
    items = [p(item) for item in t.rng.sample(THINGS_TO[head], t.rng.randint(3, min(8, len(THINGS_TO[head]))))]
    if t.maybe(0.2) and "." not in items[0]:
        return f"{p(head)}: {joined(items)}."
    mark = t.rng.choice(MARKS)
    rows = [mark.replace("{n}", str(n)).replace("{}", item) for n, item in enumerate(items, 1)]
    return f"{p(head)}{t.phrases('[:|:|]')}\n{t.phrases('[|' + chr(10) + ']')}" + "\n".join(rows)


# what, what one needs, and the steps in their order
RECIPES: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("bread", "flour; warm water; salt; yeast", ("[Put|Pour] the flour into a [big|large] bowl.", "Add the salt and the yeast.", "[Pour in|Add] the warm water.", "Knead the dough [for ten minutes|until it is smooth].", "Cover it with a cloth and let it rest for an hour.", "Shape it into a loaf.", "Bake it in a hot oven [for forty minutes|until it is brown].", "Let it cool before you cut it.")),
    ("pancakes", "flour; {small} eggs; milk; a little salt; butter", ("Beat the eggs in a bowl.", "Stir in the flour, the milk and the salt.", "Let the batter rest for a while.", "Melt a little butter in a pan.", "Pour in a thin layer of batter.", "Turn the pancake when it is golden.", "Eat it warm, with [jam|honey|sugar|apples].")),
    ("vegetable soup", "carrots; potatoes; an onion; a leek; water; salt", ("Wash the vegetables [well|].", "Cut them into small pieces.", "Put them into a pot of water.", "Add some salt.", "Let the soup boil gently for half an hour.", "Taste it, and add salt if you like.", "Serve it [hot|with fresh bread].")),
    ("an apple cake", "flour; butter; sugar; {small} eggs; {number} apples", ("Stir the butter and the sugar until they are light.", "Add the eggs, one after the other.", "Mix in the flour.", "Put the dough into a round tin.", "Peel the apples, cut them, and lay them on top.", "Bake the cake for three quarters of an hour.", "Let it cool[, and share it with your friends|].")),
    ("porridge", "oats; milk or water; a little salt; honey", ("Put a cup of oats into a pot.", "Add two cups of milk or water and a little salt.", "Stir it over a small fire.", "Let it boil for five minutes.", "Pour it into a bowl.", "Put some honey [or fruit |]on top.")),
    ("lemonade", "{small} lemons; sugar; cold water", ("Cut the lemons in two.", "Press out the juice.", "Stir the sugar into a little warm water.", "Add the juice and the cold water.", "Put it in a cool place.", "Drink it on a hot day.")),
    ("fruit salad", "apples; pears; grapes; an orange; a little honey", ("Wash the fruit.", "Peel the orange.", "Cut everything into small pieces.", "Put it into a bowl.", "Stir in the honey.", "Let it stand for a while, and then share it.")),
    ("jam", "ripe {fruit}; sugar", ("Wash the {fruit1} and take away the stones and stalks.", "Put them into a big pot with the sugar.", "Let them boil while you stir.", "When the jam grows thick, fill it into clean jars.", "Close the jars well.", "Write on each what is in it.")),
    ("tea", "tea; water; a pot", ("Boil fresh water.", "Warm the pot.", "Put in a spoonful of tea for each person.", "Pour the water over it.", "Wait [four|five] minutes.", "Pour it into the cups.")),
    ("a boiled egg", "an egg; water", ("Bring some water to the boil.", "Lay the egg carefully in the water.", "Wait four minutes for a soft egg, or eight for a hard one.", "Take it out with a spoon.", "Hold it under cold water.", "Eat it with a little salt.")),
)
TASKS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("plant a seed", ("Fill a pot with earth.", "Make a small hole with your finger.", "Put the seed into the hole.", "Cover it with earth.", "Give it a little water.", "Put the pot in a [warm and light|sunny] place.", "Water it every day, and wait.", "After some days a little green [leaf|stem] will come up.")),
    ("plant a tree", ("Dig a deep hole.", "Set the young tree into it, [straight|quite straight].", "Fill the hole with earth.", "Press the earth down with your feet.", "Give the tree [a bucket|two buckets] of water.", "Tie it to a stake, so that the wind cannot harm it.")),
    ("make a paper boat", ("Take a sheet of paper.", "Fold it in the middle.", "Fold the upper corners to the middle.", "Turn up the edges at the bottom.", "Open it and press it flat the other way.", "Pull the corners apart[.|, and the boat is done.]")),
    ("build a snowman", ("Make a small ball of snow.", "Roll it through the snow until it is big.", "Make a second ball and set it on the first.", "Make a third, small one for the head.", "Use a carrot for the nose and [stones|buttons] for the eyes.", "Give him a hat and a scarf.")),
    ("wash your hands", ("Turn on the water.", "Make your hands wet.", "Take some soap.", "Rub your hands together, the fingers too, while you count to twenty.", "Rinse off the soap.", "Dry your hands with a clean towel.")),
    ("brush your teeth", ("Put a little paste on the brush.", "Brush the outside of your teeth.", "Brush the inside as well.", "Do not forget the teeth at the back.", "Rinse your mouth with water.", "Wash the brush.")),
    ("make a kite", ("Tie two sticks into a cross.", "Run a string round the four ends.", "Cut paper in the same shape, a little larger.", "Glue the paper round the string.", "Make a tail of string and bits of cloth.", "Tie a long line to the middle.", "Go out on a windy day, and run!")),
    ("make a bed", ("Take off the pillow and the blanket.", "Smooth the sheet.", "Shake the pillow.", "Lay the blanket on the bed [again|] and pull it straight.", "Put the pillow in its place.")),
    ("write a letter", ("Take a sheet of paper and a pen.", "Write the place and the day at the top.", "Begin with \"Dear\" and the name.", "Tell your news.", "Ask how the other one is.", "Write your name at the end.", "Put the letter into an envelope, with a stamp on it.", "Take it to the post.")),
    ("feed the birds in winter", ("Choose a place that cats cannot reach.", "Sweep away the snow.", "Put out seeds and nuts, but no salt.", "Set a bowl of water beside them.", "Go away softly, and watch from the window.", "Do it every day until spring.")),
    ("cross the street", ("Stop at the edge of the street.", "Look to one side, then to the other, and once more to the first.", "Listen.", "Wait until no car comes.", "Walk across, and do not run.")),
    ("light a lantern", ("Ask a grown-up to help you.", "Open the little door of the lantern.", "Set a candle in it.", "Let the grown-up light the candle.", "Close the door.", "Hold the lantern by its handle.")),
    ("learn a poem", ("Read the whole poem aloud.", "Read the first line again and say it without looking.", "Add the second line.", "Go on like this to the end.", "Say it once more before you go to sleep.", "The next morning you will know it.")),
    ("clean a room", ("Open the window.", "Put all things in their places.", "Wipe the dust from the table and the shelves.", "Sweep the floor.", "Take out the rubbish.", "Put some {flower} on the table.")),
    ("care for a {pet}", ("Give it fresh water every day.", "Feed it at the same hour.", "Keep the place where it sleeps clean.", "Be gentle with it.", "Play with it, and let it rest when it is tired.", "Go to the animal doctor when it is ill.")),
)
LINKS = ("First, ", "Then ", "Next, ", "After that, ", "Now ", "Finally, ")


def _steps(t: Telling, steps: list[str], lines: bool = True) -> str:
    """Numbered, as lines, or linked to a paragraph."""
    form = t.rng.randrange(4) if lines else t.rng.choice((2, 3))
    if form == 0:
        return "\n".join(f"{n}. {step}" for n, step in enumerate(steps, 1))
    if form == 1:
        return "\n".join(f"Step {n}: {step}" for n, step in enumerate(steps, 1))
    if form == 2:
        return " ".join(steps)
    linked = [LINKS[0] + _small(steps[0])]
    for step in steps[1:-1]:
        linked.append(t.rng.choice(LINKS[1:5]) + _small(step) if t.maybe(0.5) and not step.startswith(("When", "After")) else step)
    last = steps[-1]
    linked.append(LINKS[-1] + _small(last) if t.maybe(0.5) and not last.startswith(("The", "After", "When")) else last)
    return " ".join(linked)


def _small(step: str) -> str:
    return step[0].lower() + step[1:]


def recipe(t: Telling) -> str:
    p = t.phrases
    what, needs, steps = t.rng.choice(RECIPES)
    things = [p(thing) for thing in split(needs)]
    told = [p(step) for step in steps]
    bare = what.removeprefix("a ").removeprefix("an ")
    form = t.rng.randrange(4)
    if form == 0:
        return f"{capital(bare)}\n\nYou need:\n" + "\n".join(f"- {thing}" for thing in things) + "\n\n" + _steps(t, told)
    if form == 1:
        return p("[How to make {w}|A recipe for {b}|Recipe: {b}]\n\n[You need|Take|We need] {things}.\n\n", w=what, b=bare, things=joined(things)) + _steps(t, told)
    if form == 2:
        return p("How do you make {w}? [You need|First of all you need] {things}. ", w=what, things=joined(things)) + _steps(t, told, lines=False)
    return p('["How do you make {w}?"|"Can you teach me to make {w}?"] asked {name1}. "[It is easy|That is not hard|I will tell you]," said {x} {relative}. "You need {things}. ', w=what, things=joined(things), x="the") + " ".join(told) + '"'


def instruction(t: Telling) -> str:
    p = t.phrases
    what, steps = t.rng.choice(TASKS)
    what = p(what)
    told = [p(step) for step in steps]
    lines = t.maybe(0.6)
    gap = t.rng.choice(("\n", "\n\n")) if lines else t.rng.choice((" ", "\n\n"))
    head = p("[How to {w}:|How do you {w}?|How does one {w}?|This is how to {w}.|If you want to {w}, [this is what to do|do it like this].|Tell me how to {w}.|Can you tell me how to {w}?|Instructions: how to {w}.|It is not hard to {w}.]", w=what)
    return head + gap + _steps(t, told, lines)


def timetable(t: Telling) -> str:
    """Days with what happens on them, or the hours of a day."""
    p = t.phrases
    if t.maybe(0.5):
        days = DAYS[: t.rng.choice((5, 7))]
        return p("[My week|The week of {name}|Timetable|What we do in the week|Menu for the week]\n\n") + "\n".join(f"{day}: {p.pick(('{subject} and {subject}', '{hobby}', '{meal}', '{chore_now}', '{play_now}'))}" for day in days)
    hours = ((7, "get up"), (8, "breakfast"), (9, "{subject}"), (10, "{subject}"), (11, "play in the yard"), (12, "dinner"), (14, "{hobby}"), (16, "{chore_now}"), (18, "supper"), (19, "a story"), (20, "bed"))
    return p("[My day|A day at school|The day of {name}|Plan for {day}]\n\n") + "\n".join(f"{hour}.00 {p(what)}" for hour, what in hours if t.maybe(0.85))


def counting(t: Telling) -> str:
    """Numbers, days, months, letters in their order, and tables of multiplication."""
    p, rng = t.phrases, t.rng
    form = rng.randrange(9)
    if form == 0:
        start = rng.randint(0, 80)
        step = rng.choice((1, 1, 1, 2, 5, 10))
        values = [start * (1 if step == 1 else 0) + step * n for n in range(1, 11)]
        words = rng.random() < 0.6 and values[-1] <= 100
        return p("[Count with me: |Let us count: |||{name} counted: ]") + ", ".join((spelled(v) if words else str(v)) for v in values).capitalize() + "."
    if form == 1:
        return p("[The days of the week are|There are seven days in a week:|These are the days of the week:] ") + joined(list(DAYS)) + "."
    if form == 2:
        return p("[The months of the year are|There are twelve months in a year:|These are the months:] ") + joined(list(MONTHS)) + "."
    if form == 3:
        n = rng.randint(2, 10)
        words = rng.random() < 0.5
        return "\n".join(f"{capital(spelled(i))} times {spelled(n)} is {spelled(i * n)}." if words else f"{i} x {n} = {i * n}" for i in range(1, 11))
    if form == 4:
        return p("[The four seasons are spring, summer, autumn and winter.|Spring, summer, autumn, winter: these are the seasons.|There are four seasons: spring, summer, autumn and winter.]")
    if form == 5:
        return p("[The alphabet|The letters of the alphabet are|Say the alphabet]: A, B, C, D, E, F, G, H, I, J, K, L, M, N, O, P, Q, R, S, T, U, V, W, X, Y, Z.")
    if form == 6:
        count = rng.randint(4, 10)
        animal = rng.choice(("sheep", "ducks", "birds", "cows", "hens", "fish", "stars", "apples", "ships", "children"))
        return p("[How many {x} are there? ||{name} counted the {x}. ]", x=animal) + " ".join(f"{capital(NUMBERS[n])}{'!' if n == count else ','}" if n == 1 or n == count else f"{NUMBERS[n]}," for n in range(1, count + 1)).replace(f", {capital(NUMBERS[count])}!", f", {NUMBERS[count]}!") + f" There are {NUMBERS[count]} {animal}."
    if form == 7:
        top = rng.randint(5, 10)
        return ", ".join(NUMBERS[n] for n in range(top, 0, -1)).capitalize() + p("[, and off we go!|, zero!|, here I come!|. Now I am coming!]")
    names = [p("{name}") for _ in range(rng.randint(3, 6))]
    return p("[The race|Who came in first?|Prizes]\n\n") + "\n".join(f"{capital(ORDINALS[n])}: {name}" for n, name in enumerate(dict.fromkeys(names)))


def abc(t: Telling) -> str:
    """A is for apple."""
    words = dict(zip("ABCDEFGHIJKLMNOPRSTUVWYZ", split("apple; ball; cat; dog; egg; fish; goat; hat; ice; jam; kite; lamp; moon; nest; owl; pear; rain; sun; tree; umbrella; violin; water; yard; zebra"), strict=True))
    other = dict(zip("ABCDEFGHIJKLMNOPRSTUVWYZ", split("ant; bear; cow; duck; elephant; fox; goose; hen; island; jar; king; lion; mouse; nut; orange; pig; rose; ship; table; uncle; village; wolf; yarn; zoo"), strict=True))
    start = t.rng.randrange(0, 18)
    letters = sorted(words)[start : start + t.rng.randint(4, 8)]
    form, stop = t.phrases("[is for|is for|stands for]"), t.rng.choice((".", ""))
    return "\n".join(f"{letter} {form} {t.rng.choice((words, other))[letter]}{stop}" for letter in letters)


def program(t: Telling) -> str:
    """Short programs, tables and forms: text that is built like them."""
    p, rng = t.phrases, t.rng
    a, b = rng.randint(1, 9), rng.randint(1, 9)
    x, y, z = rng.choice((("a", "b", "c"), ("x", "y", "z"), ("first", "second", "total"), ("apples", "pears", "fruit"), ("left", "right", "sum")))
    name = p("{name1}")
    things = rng.sample(SLOTS["fruit"], 3)
    return rng.choice((
        f"{x} = {a}\n{y} = {b}\n{z} = {x} + {y}\nprint({z})\n\nThe program prints {a + b}.",
        f"def add({x}, {y}):\n    return {x} + {y}\n\nprint(add({a}, {b}))\n\nThis prints {a + b}.",
        f"def double(n):\n    return 2 * n\n\nprint(double({a}))\n\nThis prints {2 * a}.",
        f'def greet(name):\n    print("Hello, " + name)\n\ngreet("{name}")\n\nThis prints: Hello, {name}',
        f"for n in range({a}):\n    print(n)\n\nThis counts from 0 to {a - 1}.",
        f'for name in ["{name}", "{p("{name2}")}", "{p("{name3}")}"]:\n    print("Good morning, " + name)',
        f'if {x} > {y}:\n    print("{x} is greater")\nelse:\n    print("{x} is not greater")',
        "\n".join(f"{thing}: {rng.randint(1, 20)}" for thing in things),
        f"Name: {name} {p('{surname}')}\nAge: {rng.randint(6, 12)}\nTown: {p('{town}')}\nLikes: {p('{hobby}')}\nPet: {p('{pet}')}",
        f"Name | Age | Town\n{name} | {rng.randint(6, 12)} | {p('{town}')}\n{p('{name2}')} | {rng.randint(6, 12)} | {p('{town}')}\n{p('{name3}')} | {rng.randint(6, 12)} | {p('{town}')}",
        f'{{"name": "{name}", "age": {rng.randint(6, 12)}, "likes": ["{p("{hobby}")}", "{p("{hobby}")}"]}}',
        f"{a} + {b} = {a + b}\n{b} + {a} = {a + b}\n{a + b} - {a} = {b}\n{a + b} - {b} = {a}",
    ))


KINDS = ((a_list, 7), (recipe, 5), (instruction, 6), (timetable, 2), (counting, 3), (abc, 1), (program, 2))
