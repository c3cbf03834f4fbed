"""True facts about colours, shapes, materials, trades, the body, and words."""

from train.stories.facts.subject import Ask, Subject

COLOURS = Subject(
    "colours", "thing verb colour",
    """grass=is=green; snow=is=white; the sky on a fine day=is=blue; coal=is=black; a lemon=is=yellow; a ripe strawberry=is=red; a ripe tomato=is=red; a carrot=is=orange; chocolate=is=brown; an elephant=is=grey; milk=is=white
    a sunflower=is=yellow; a fir tree=is=green; the night sky=is=black; a buttercup=is=yellow; a swan=is=white; a crow=is=black; a frog=is=green; an orange=is=orange; a cucumber=is=green; salt=is=white; honey=is=golden yellow; rain clouds=are=grey; leaves in spring=are=green; ripe bananas=are=yellow; poppies=are=red; violets=are=purple; cherries=are=red""",
    (
        Ask("what colour {verb} {thing}?", "what colour {thing} {verb}", "{colour}"),
        Ask("which colour {verb} {thing}?", "which colour {thing} {verb}", "{colour}"),
        Ask("{thing}: what colour?", "what colour {thing} {verb}", "{colour}"),
    ),
    ("{thing} {verb} {colour}", "{thing} {verb} {colour}", "the colour of {thing} is {colour}"),
)

MIXING = Subject(
    "mixing", "one two mixed",
    "blue=yellow=green; yellow=blue=green; red=yellow=orange; yellow=red=orange; red=blue=purple; blue=red=purple; black=white=grey; white=black=grey; red=white=pink; white=red=pink; blue=white=light blue",
    (
        Ask("what colour do you get [if|when] you mix {one} and {two}?", "what colour one gets from {one} and {two}", "{mixed}"),
        Ask("what do {one} and {two} make?", "what {one} and {two} make", "{mixed}"),
        Ask("how can you make {mixed}?", "how to make {mixed}", "mix {one} and {two}"),
    ),
    ("{one} and {two} make {mixed}", "if you mix {one} paint with {two} paint, you get {mixed}", "{mixed} is made of {one} and {two}"),
    "do {one} and {two} make {mixed}?",
)

SHAPES = Subject(
    "shapes", "shape sides",
    "triangle=three; square=four; rectangle=four; pentagon=five; hexagon=six; octagon=eight",
    (
        Ask("how many sides does a(n) {shape} have?", "how many sides a(n) {shape} has", "{sides}"),
        Ask("how many sides has a(n) {shape}?", "how many sides a(n) {shape} has", "{sides} sides"),
    ),
    ("a(n) {shape} has {sides} sides", "the {shape} has {sides} sides", "a(n) {shape} has {sides} sides and {sides} corners"),
    "does a(n) {shape} have {sides} sides?",
)

CORNERS = Subject(
    "corners", "shape corners",
    "triangle=three; square=four; rectangle=four; pentagon=five; hexagon=six; octagon=eight; circle=no; cube=eight",
    (Ask("how many corners does a(n) {shape} have?", "how many corners a(n) {shape} has", "{corners} corners"),),
    ("a(n) {shape} has {corners} corners", "the {shape} has {corners} corners", "there are {corners} corners in a(n) {shape}"),
    "does a(n) {shape} have {corners} corners?",
)

FORMS = Subject(
    "forms", "thing form",
    "a coin=round; a wheel=round; a ball=round; a plate=round; a ring=round; the full moon=round; a dice=a cube; an egg=oval; a door=a rectangle; a sheet of paper=a rectangle; a chess board=a square; a slice of pie=a triangle; an ice cream cone=a cone; a tin can=a cylinder; a drum=a cylinder; an orange=round",
    (
        Ask("what is the shape of {thing}?", "what shape {thing} is", "{form}"),
        Ask("what shape has {thing}?", "what shape {thing} has", "it is {form}"),
    ),
    ("{thing} is {form}", "the shape of {thing} is like this: it is {form}"),
)

MADE_OF = Subject(
    "made", "thing material",
    """bread=flour, water and yeast; butter=cream; cheese=milk; paper=wood; glass=sand; a candle=wax; bricks=clay; jam=fruit and sugar; a woollen scarf=wool; shoes=leather; a book=paper; a window=glass; coins=metal; flour=grain; a cup=clay
    honey=nectar; a nail=iron; a snowman=snow; a sandcastle=sand; a wall=stones or bricks; a chair=wood; ropes=long fibres; a raincoat=cloth that keeps out water; chocolate=cocoa beans and sugar; an omelette=eggs; lemonade=lemons, water and sugar; a salad=vegetables; ice=frozen water; a pot=metal or clay; apple juice=apples; pancakes=flour, eggs and milk; a shirt=cotton""",
    (
        Ask("what [do we|can you] use to make {thing}?", "what people use to make {thing}", "{material}"),
        Ask("from what do people make {thing}?", "from what people make {thing}", "from {material}"),
        Ask("what do we need to make {thing}?", "what we need to make {thing}", "{material}"),
    ),
    ("people make {thing} from {material}", "we make {thing} out of {material}", "to make {thing} we need {material}"),
)

TRADES = Subject(
    "trades", "trade work",
    """baker=bakes bread; farmer=grows food and keeps animals; teacher=helps children to learn; doctor=makes sick people well; nurse=takes care of the sick; gardener=plants flowers and trees; carpenter=makes things out of wood; fisherman=catches fish
    tailor=makes clothes; shoemaker=makes and mends shoes; postman=brings letters; painter=paints walls and pictures; cook=makes meals; librarian=takes care of the books; builder=builds houses; blacksmith=shapes hot iron; shepherd=looks after sheep; miller=grinds grain into flour
    pilot=flies aeroplanes; sailor=works on a ship; dentist=takes care of our teeth; weaver=weaves cloth; potter=makes pots out of clay; beekeeper=looks after bees; astronomer=studies the stars; fireman=puts out fires; clockmaker=makes and mends clocks; author=writes books; glazier=puts glass into windows; musician=plays music""",
    (
        Ask("what does a(n) {trade} do?", "what a(n) {trade} does", "a(n) {trade} {work}"),
        Ask("what is the work of a(n) {trade}?", "what the work of a(n) {trade} is", "a(n) {trade} {work}"),
        Ask("who {work}?", "who {work}", "a(n) {trade}"),
        Ask("what do we call a person who {work}?", "what we call a person who {work}", "a(n) {trade}"),
    ),
    ("a(n) {trade} {work}", "a(n) {trade} is a person who {work}", "a person who {work} is called a(n) {trade}", "the {trade} {work}"),
)

TOOLS = Subject(
    "tools", "tool use trade",
    """a hammer=drive in nails=carpenter; a saw=cut wood=carpenter; a needle=sew=tailor; a spade=dig=gardener; a net=catch fish=fisherman; an oven=bake bread=baker; a plough=turn the earth=farmer; a brush=paint=painter
    a thermometer=measure how warm it is=doctor; a telescope=look at the stars=astronomer; an anvil=shape iron=blacksmith; chalk=write on the blackboard=teacher; a loom=weave cloth=weaver; a pan=fry food=cook; a ladder=reach high places=builder; a pair of scissors=cut cloth=tailor; a rake=gather leaves=gardener; a crook=lead the sheep=shepherd; a wheel=shape clay=potter""",
    (
        Ask("what is {tool} used for?", "what {tool} is used for", "to {use}"),
        Ask("what do we do with {tool}?", "what people do with {tool}", "we {use}"),
        Ask("what does a(n) {trade} need to {use}?", "what a(n) {trade} needs to {use}", "{tool}"),
    ),
    ("a(n) {trade} uses {tool} to {use}", "with {tool} a(n) {trade} can {use}", "{tool} is used to {use}", "to {use}, a(n) {trade} needs {tool}"),
)

USES = Subject(
    "uses", "thing use",
    """a knife=cut bread; a spoon=eat soup; a broom=sweep the floor; a lamp=see in the dark; an umbrella=stay dry in the rain; a clock=tell the time; a key=open a door; soap=wash our hands; a pen=write; a bed=sleep; a cup=drink; a kettle=boil water
    a map=find the way; a bell=call people; a towel=dry our hands; a comb=comb our hair; a ruler=draw straight lines; a boat=cross the water; a basket=carry things; a pot=cook soup; a book=read and learn; a stove=warm the room; a coat=keep warm; a toothbrush=clean our teeth; a bridge=cross a river; a calendar=know the date; a compass=find north; a stamp=send a letter; a mirror=see ourselves""",
    (
        Ask("what is {thing} for?", "what {thing} is for", "to {use}"),
        Ask("what do we use {thing} for?", "what we use {thing} for", "to {use}"),
        Ask("what do we need to {use}?", "what one needs to {use}", "{thing}"),
    ),
    ("we use {thing} to {use}", "with {thing} we can {use}", "{thing} helps us to {use}"),
)

BODY = Subject(
    "body", "part act",
    "eyes=see; ears=hear; nose=smell; tongue=taste; hands=hold things; legs=walk; teeth=chew; heart=send the blood round the body; lungs=breathe; brain=think; skin=feel; stomach=digest food; knees=bend our legs; fingers=pick up small things",
    (
        Ask("what do we do with our {part}?", "what we do with our {part}", "we {act}"),
        Ask("with what do we {act}?", "with what we {act}", "with our {part}"),
        Ask("which part of the body helps us to {act}?", "which part of the body helps us to {act}", "our {part}"),
    ),
    ("we {act} with our {part}", "with our {part} we {act}", "we need our {part} to {act}"),
)

KINDS = Subject(
    "kinds", "thing kind",
    """an apple=fruit; a pear=fruit; a plum=fruit; a banana=fruit; a carrot=vegetable; a potato=vegetable; an onion=vegetable; a cabbage=vegetable; a rose=flower; a tulip=flower; a daisy=flower; a violet=flower; an oak=tree; an elm=tree; a birch=tree; a willow=tree
    a hammer=tool; a saw=tool; a spade=tool; a violin=musical instrument; a drum=musical instrument; a flute=musical instrument; a piano=musical instrument; a chair=piece of furniture; a table=piece of furniture; a coat=piece of clothing; a hat=piece of clothing; a triangle=shape; a square=shape; green=colour; red=colour; Monday=day of the week; Friday=day of the week; July=month; May=month; chess=game; football=game; a ship=vehicle; a train=vehicle; a bicycle=vehicle""",
    (
        Ask("what is {thing}?", "what {thing} is", "a(n) {kind}"),
        Ask("what kind of thing is {thing}?", "what kind of thing {thing} is", "a(n) {kind}"),
    ),
    ("{thing} is a(n) {kind}", "{thing} is a(n) {kind}", "we call {thing} a(n) {kind}"),
    "is {thing} a(n) {kind}?",
)

OPPOSITES = Subject(
    "opposites", "word other",
    """big=small; hot=cold; day=night; old=young; long=short; high=low; fast=slow; light=dark; wet=dry; hard=soft; happy=sad; early=late; full=empty; rich=poor; loud=quiet; open=shut; good=bad; clean=dirty; strong=weak; near=far; thick=thin; heavy=light in weight; sweet=sour; first=last; black=white; up=down; in=out; yes=no; left=right; begin=end; come=go; give=take; laugh=cry; buy=sell; find=lose; remember=forget; push=pull; wide=narrow; deep=shallow; awake=asleep; summer=winter; morning=evening; question=answer; always=never; many=few; above=below; before=after; easy=difficult; true=false""",
    (
        Ask("what is the opposite of \"{word}\"?", "what the opposite of \"{word}\" is", "{other}"),
        Ask("what is the opposite of {word}?", "what the opposite of {word} is", "{other}"),
        Ask("[which|what] word means the opposite of {word}?", "which word means the opposite of {word}", "{other}"),
    ),
    ("the opposite of {word} is {other}", "{other} is the opposite of {word}", "{word} and {other} are opposites"),
)

PLURALS = Subject(
    "plurals", "one many",
    "child=children; mouse=mice; foot=feet; tooth=teeth; man=men; woman=women; goose=geese; leaf=leaves; knife=knives; sheep=sheep; fish=fish; loaf=loaves; shelf=shelves; wolf=wolves; ox=oxen; cat=cats; box=boxes; baby=babies; berry=berries; dish=dishes; half=halves; house=houses; potato=potatoes; city=cities; bus=buses; calf=calves; penny=pennies; story=stories; deer=deer",
    (
        Ask("what is the plural of \"{one}\"?", "what the plural of \"{one}\" is", "{many}"),
        Ask("one {one}, two what?", "what the plural of {one} is", "{many}"),
        Ask("[if there is more than one {one}, what do we say|what do we say for more than one {one}]?", "what we say for more than one {one}", "{many}"),
    ),
    ("the plural of {one} is {many}", "we say one {one}, but two {many}", "one {one}, two {many}"),
)

PASTS = Subject(
    "pasts", "now past",
    "go=went; see=saw; eat=ate; run=ran; come=came; give=gave; take=took; write=wrote; sing=sang; swim=swam; fly=flew; begin=began; find=found; bring=brought; think=thought; buy=bought; teach=taught; sleep=slept; make=made; fall=fell; know=knew; drink=drank; speak=spoke; play=played; walk=walked; say=said; have=had; sit=sat; stand=stood; build=built",
    (
        Ask("what is the past of \"{now}\"?", "what the past of \"{now}\" is", "{past}"),
        Ask("today I {now}. What did I do yesterday?", "what one says for \"I {now}\" when it was yesterday", "yesterday I {past}"),
    ),
    ("the past of {now} is {past}", "today I {now}, yesterday I {past}", "we say \"I {past}\" when it is over, and not \"I {now}\""),
)

RHYMES = Subject(
    "rhymes", "one two",
    "cat=hat; dog=log; mouse=house; bee=tree; star=far; moon=spoon; day=play; night=light; rain=train; sun=fun; bell=well; book=brook; cake=lake; fish=dish; goat=boat; hill=mill; king=ring; red=bed; rose=nose; snow=slow; hen=pen; sheep=sleep; fox=box; bear=pear; wall=ball; door=floor; sky=high; green=bean; pie=fly; seed=reed; wing=sing; stone=bone; tail=sail; hand=sand; bread=head; mice=ice; owl=howl; cook=look; frog=fog; ship=trip",
    (
        Ask("[which|what] word rhymes with \"{one}\"?", "which word rhymes with \"{one}\"", "{two}"),
        Ask("what rhymes with {one}?", "what rhymes with {one}", "{two}"),
        Ask("can you find a rhyme for {two}?", "what rhymes with {two}", "{one}"),
    ),
    ("{one} rhymes with {two}", "{two} rhymes with {one}", "a rhyme for {one} is {two}"),
)

LIKENESS = Subject(
    "likeness", "quality thing",
    "cold=ice; busy=a bee; white=snow; black=coal; light=a feather; quiet=a mouse; strong=an ox; sly=a fox; brave=a lion; sweet=honey; hard=stone; green=grass; slow=a snail; proud=a peacock; gentle=a lamb; wise=an owl; hungry=a bear; red=a rose; deep=the sea; old=the hills; clear=glass; sour=a lemon; warm=toast; bright=the sun; straight=an arrow; free=a bird",
    (
        Ask("[finish|complete] this saying: as {quality} as what?", "how the saying \"as {quality} as\" goes on", "as {quality} as {thing}"),
        Ask("what is {quality}?", "what is said to be {quality}", "{thing}"),
        Ask("how does the saying \"as {quality} as\" go on?", "how the saying \"as {quality} as\" goes on", "as {quality} as {thing}"),
    ),
    ("we say \"as {quality} as {thing}\"", "people say: as {quality} as {thing}", "the saying is \"as {quality} as {thing}\""),
)

SUBJECTS = (COLOURS, MIXING, SHAPES, CORNERS, FORMS, MADE_OF, TRADES, TOOLS, USES, BODY, KINDS, OPPOSITES, PLURALS, PASTS, RHYMES, LIKENESS)
