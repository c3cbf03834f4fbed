"""True facts about days, months, seasons, weather, the sky, measures and numbers."""

from train.stories.facts.subject import Ask, Subject
from train.stories.slots import split

NUMBERS = split("zero; one; two; three; four; five; six; seven; eight; nine; ten; eleven; twelve; thirteen; fourteen; fifteen; sixteen; seventeen; eighteen; nineteen; twenty")
TENS = ("", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
ORDINALS = split("first; second; third; fourth; fifth; sixth; seventh; eighth; ninth; tenth; eleventh; twelfth")
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
MONTHS = ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December")
MONTH_DAYS = ("31", "28", "31", "30", "31", "30", "31", "31", "30", "31", "30", "31")
PLANETS = ("Mercury", "Venus", "Earth", "Mars", "Jupiter", "Saturn", "Uranus", "Neptune")
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def spelled(number: int) -> str:
    """42 → "forty-two", up to a hundred."""
    if number <= 20:
        return NUMBERS[number]
    if number == 100:
        return "a hundred"
    tens, ones = divmod(number, 10)
    return TENS[tens] + (f"-{NUMBERS[ones]}" if ones else "")


def rows(*lines: tuple[str, ...]) -> str:
    return "\n".join("=".join(line) for line in lines)


DAY_ORDER = Subject(
    "days", "day next",
    rows(*((day, DAYS[(i + 1) % 7]) for i, day in enumerate(DAYS))),
    (
        Ask("[what|which] day comes after {day}?", "which day comes after {day}", "{next}"),
        Ask("[what|which] day comes before {next}?", "which day comes before {next}", "{day}"),
        Ask("if today is {day}, what day is tomorrow?", "what day comes after {day}", "{next}"),
        Ask("if today is {next}, what day was yesterday?", "what day comes before {next}", "{day}"),
    ),
    ("{next} comes after {day}", "{day} comes before {next}", "the day after {day} is {next}", "the day before {next} is {day}"),
    "is the day after {day} called {next}?",
)

MONTH_ORDER = Subject(
    "months", "month next",
    rows(*((month, MONTHS[(i + 1) % 12]) for i, month in enumerate(MONTHS))),
    (
        Ask("[what|which] month comes after {month}?", "which month comes after {month}", "{next}"),
        Ask("[what|which] month comes before {next}?", "which month comes before {next}", "{month}"),
    ),
    ("{next} comes after {month}", "{month} comes before {next}", "the month after {month} is {next}", "after {month} comes {next}"),
    "does {next} come after {month}?",
)

MONTH_PLACES = Subject(
    "month places", "month place",
    rows(*zip(MONTHS, ORDINALS, strict=True)),
    (
        Ask("which month is the {place} of the year?", "which month is the {place} of the year", "{month}"),
        Ask("what is the {place} month of the year?", "what the {place} month of the year is", "{month}"),
    ),
    ("{month} is the {place} month of the year", "the {place} month of the year is {month}"),
    "is {month} the {place} month of the year?",
)

MONTH_LENGTHS = Subject(
    "month lengths", "month days",
    rows(*zip(MONTHS, MONTH_DAYS, strict=True)),
    (
        Ask("how many days has {month}?", "how many days {month} has", "{days}"),
        Ask("how many days are there in {month}?", "how many days there are in {month}", "{days}"),
    ),
    ("{month} has {days} days", "there are {days} days in {month}"),
)

MONTH_SEASONS = Subject(
    "month seasons", "month season",
    rows(*zip(MONTHS, ("winter", "winter", *["spring"] * 3, *["summer"] * 3, *["autumn"] * 3, "winter"), strict=True)),
    (
        Ask("in which season is {month}, in Europe?", "in which season {month} is in Europe", "in {season}"),
        Ask("to which season does {month} belong in Europe?", "to which season {month} belongs in Europe", "to {season}"),
    ),
    ("in Europe {month} is in {season}", "in Europe {month} belongs to {season}"),
)

SEASON_ORDER = Subject(
    "seasons", "season next",
    "spring=summer; summer=autumn; autumn=winter; winter=spring",
    (
        Ask("[what|which] season comes after {season}?", "which season comes after {season}", "{next}"),
        Ask("[what|which] season comes before {next}?", "which season comes before {next}", "{season}"),
    ),
    ("after {season} comes {next}", "{season} comes before {next}"),
    "does {next} come after {season}?",
)

SEASON_SIGNS = Subject(
    "season signs", "season sign",
    "spring=the first flowers come out; spring=the birds build their nests; summer=the days are long and warm; summer=the cherries are ripe; autumn=the leaves turn yellow and fall; autumn=the apples are picked; winter=it is cold and snow may fall; winter=the ponds freeze; spring=the lambs are born; autumn=many birds fly south; winter=the days are short and the nights are long; summer=the wheat grows ripe",
    (
        Ask("what happens in {season}?", "what happens in {season}", "{sign}"),
        Ask("what is it like in {season}?", "what it is like in {season}", "{sign}"),
        Ask("in what part of the year can we say that {sign}?", "in what part of the year one can say that {sign}", "in {season}"),
    ),
    ("in {season} {sign}", "{sign} in {season}"),
)

MEASURES = Subject(
    "measures", "things whole number",
    """days=a week=seven; months=a year=twelve; hours=a day=twenty-four; minutes=an hour=sixty; seconds=a minute=sixty; weeks=a year=fifty-two; seasons=a year=four; letters=the English alphabet=twenty-six; years=a century=a hundred; things=a dozen=twelve; centimetres=a metre=a hundred; metres=a kilometre=a thousand; grams=a kilogram=a thousand; days=a common year=three hundred and sixty-five; days=a leap year=three hundred and sixty-six; planets=the family of the sun=eight; colours=the rainbow=seven; millimetres=a centimetre=ten; minutes=half an hour=thirty; minutes=a quarter of an hour=fifteen; vowels=the English alphabet=five; years=ten decades=a hundred; months=half a year=six; minutes=a football match=ninety""",
    (
        Ask("how many {things} are there in {whole}?", "how many {things} there are in {whole}", "{number}"),
        Ask("how many {things} are in {whole}?", "how many {things} are in {whole}", "{number}"),
        Ask("how many {things} does one count in {whole}?", "how many {things} one counts in {whole}", "{number} {things}"),
    ),
    ("there are {number} {things} in {whole}", "in {whole} there are {number} {things}"),
)

COUNTS = Subject(
    "counts", "things owner number",
    "fingers=a hand=five; toes=a foot=five; wheels=a bicycle=two; wheels=a cart=four; legs=a chair=four; eyes=a face=two; strings=a violin=four; points=a compass=four; sides=a coin=two; hands=a clock=two; wheels=a wheelbarrow=one; wings=a butterfly=four; arms=an octopus=eight; wings=a bird=two; wheels=a tricycle=three; horns=a goat=two",
    (
        Ask("how many {things} has {owner}?", "how many {things} {owner} has", "{number}"),
        Ask("how many {things} does {owner} have?", "how many {things} {owner} has", "{number}"),
    ),
    ("{owner} has {number} {things}", "{number} {things}: that is what {owner} has"),
)

PLANET_ORDER = Subject(
    "planets", "planet next",
    rows(*((planet, PLANETS[i + 1]) for i, planet in enumerate(PLANETS[:-1]))),
    (
        Ask("which planet comes after {planet}, counted from the sun?", "which planet comes after {planet}, counted from the sun", "{next}"),
        Ask("which planet comes before {next}, counted from the sun?", "which planet comes before {next}, counted from the sun", "{planet}"),
    ),
    ("after {planet} comes {next}, if we count from the sun", "{next} is the next planet after {planet}"),
)

PLANET_PLACES = Subject(
    "planet places", "planet place",
    rows(*zip(PLANETS, ORDINALS, strict=False)),
    (
        Ask("which is the {place} planet from the sun?", "which is the {place} planet from the sun", "{planet}"),
        Ask("what is the {place} planet from the sun called?", "what the {place} planet from the sun is called", "{planet}"),
    ),
    ("{planet} is the {place} planet from the sun", "the {place} planet from the sun is {planet}"),
    "is {planet} the {place} planet from the sun?",
)

PLANET_FACTS = Subject(
    "planet facts", "planet fact",
    "Mercury=is the smallest planet; Venus=is the hottest planet; Earth=is the planet we live on; Mars=is called the red planet; Jupiter=is the largest planet; Saturn=has bright rings; Uranus=lies on its side as it goes round the sun; Neptune=is the farthest planet from the sun",
    (
        Ask("which planet {fact}?", "which planet {fact}", "{planet}"),
        Ask("what do you know about {planet}?", "what people know about {planet}", "it {fact}"),
    ),
    ("{planet} {fact}", "{planet} {fact}", "the planet that {fact} is {planet}"),
)

SKY = Subject(
    "sky", "body what",
    """the sun=a star; the moon=a ball of rock that goes round the earth; the earth=a planet; Mars=a planet; Venus=a planet; a comet=a ball of ice and dust that goes round the sun; a shooting star=a little piece of stone that burns up high in the air; a rainbow=sunlight in drops of rain; a cloud=very small drops of water in the air; the Milky Way=a band of countless far stars
    snow=frozen water that falls from the clouds; ice=frozen water; fog=a cloud that lies on the ground; steam=water that has become hot and gone into the air; wind=moving air; dew=small drops of water on the grass in the morning; hail=little balls of ice that fall from the clouds; frost=thin ice on cold things; thunder=the sound of lightning; lightning=a great spark in the sky; rain=water that falls from the clouds; an island=land with water all round it; a desert=a dry place where little grows; a river=water that flows through the land to the sea; a lake=water with land all round it; a volcano=a mountain from which hot melted rock comes; a valley=low land between hills; a forest=land with many trees; a map=a picture of the land from above; a globe=a round model of the earth; an echo=a sound that comes back; a shadow=a dark place where light does not come; an orchard=a garden of fruit trees; a library=a house full of books; a harbour=a safe place for ships; a bakery=a place where bread is made; a dictionary=a book that tells what words mean""",
    (
        Ask("what is {body}?", "what {body} is", "{what}"),
        Ask("[do you know|can you tell me] what {body} is?", "what {body} is", "{what}"),
    ),
    ("{body} is {what}", "{body} is {what}", "we know that {body} is {what}"),
)

TEMPERATURE = Subject(
    "temperature", "what does degrees",
    "water=freezes=0; water=boils=100",
    (
        Ask("at how many degrees do we find that {what} {does}?", "at what temperature {what} {does}", "at {degrees} degrees"),
        Ask("how cold or warm must it be before {what} {does}?", "how warm it is when {what} {does}", "{degrees} degrees"),
    ),
    ("{what} {does} at {degrees} degrees", "at {degrees} degrees {what} {does}"),
)

LETTER_ORDER = Subject(
    "letters", "letter next",
    rows(*((letter, LETTERS[i + 1]) for i, letter in enumerate(LETTERS[:-1]))),
    (
        Ask("[which|what] letter comes after {letter}?", "which letter comes after {letter}", "{next}"),
        Ask("[which|what] letter comes before {next}?", "which letter comes before {next}", "{letter}"),
    ),
    ("{next} comes after {letter}", "{letter} comes before {next}", "after {letter} comes {next}"),
)

FEASTS = Subject(
    "feasts", "event when",
    "Christmas Day=on the 25th of December; New Year's Day=on the 1st of January; Christmas Eve=on the 24th of December; New Year's Eve=on the 31st of December; midsummer in Europe=in June; the longest night in Europe=in December; April Fools' Day=on the 1st of April; Saint Valentine's Day=on the 14th of February; noon=at twelve o'clock in the day; midnight=at twelve o'clock at night; the harvest in Europe=in late summer and autumn",
    (Ask("when is {event}?", "when {event} is", "{when}"), Ask("[can you tell me|do you know] when {event} is?", "when {event} is", "{when}")),
    ("{event} is {when}", "{event} comes {when}"),
)

SUBJECTS = (
    DAY_ORDER, MONTH_ORDER, MONTH_PLACES, MONTH_LENGTHS, MONTH_SEASONS, SEASON_ORDER, SEASON_SIGNS, MEASURES, COUNTS,
    PLANET_ORDER, PLANET_PLACES, PLANET_FACTS, SKY, TEMPERATURE, LETTER_ORDER, FEASTS,
)  # fmt: skip
