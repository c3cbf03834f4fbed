"""True facts about animals and plants."""

from train.stories.facts.subject import Ask, Subject

YOUNG = Subject(
    "young", "animal young",
    "cow=calf; dog=puppy; cat=kitten; sheep=lamb; horse=foal; pig=piglet; hen=chick; duck=duckling; goose=gosling; goat=kid; bear=cub; lion=cub; fox=cub; deer=fawn; swan=cygnet; frog=tadpole; kangaroo=joey; rabbit=kitten; owl=owlet; eagle=eaglet; elephant=calf; whale=calf; hare=leveret; butterfly=caterpillar; wolf=cub; seal=pup; tiger=cub; donkey=foal",
    (
        Ask("what is a young {animal} called?", "what a young {animal} is called", "a(n) {young}"),
        Ask("what do we call a [baby|young|little] {animal}?", "what we call a young {animal}", "a(n) {young}"),
        Ask("what is the young of a(n) {animal} called?", "what the young of a(n) {animal} is called", "a(n) {young}"),
    ),
    ("a [young|baby] {animal} is called a(n) {young}", "a(n) {young} is a young {animal}", "the young of a(n) {animal} is called a(n) {young}", "we call a [baby|young] {animal} a(n) {young}"),
    "is a young {animal} called a(n) {young}?",
)

SOUNDS = Subject(
    "sounds", "animal does sound",
    """cow=moos=moo; dog=barks=woof; cat=mews=mew; sheep=bleats=baa; horse=neighs=neigh; pig=grunts=oink; duck=quacks=quack; hen=clucks=cluck; cock=crows=cock-a-doodle-doo; lion=roars=roar; wolf=howls=howl
    bee=buzzes=buzz; frog=croaks=croak; owl=hoots=hoot; mouse=squeaks=squeak; snake=hisses=hiss; donkey=brays=hee-haw; dove=coos=coo; crow=caws=caw; bear=growls=growl; cricket=chirps=chirp; turkey=gobbles=gobble; goose=honks=honk""",
    (
        Ask("what sound does a(n) {animal} make?", "what sound a(n) {animal} makes", "{sound}", ('the {animal} says "{sound}"', 'the sound that a(n) {animal} makes is "{sound}"', 'a(n) {animal} {does}, and it sounds like "{sound}"')),
        Ask("what does a(n) {animal} say?", "what a(n) {animal} says", "{sound}", ('the {animal} says "{sound}"', 'a(n) {animal} says "{sound}"')),
        Ask("which animal {does}?", "which animal {does}", "the {animal}", ("a(n) {animal} {does}", "the {animal} {does}")),
        Ask("which animal says \"{sound}\"?", "which animal says \"{sound}\"", "the {animal}", ('the {animal} says "{sound}"',)),
    ),
    ("a(n) {animal} {does}", "the {animal} {does}", "the {animal} says \"{sound}\"", "the sound that a(n) {animal} makes is \"{sound}\""),
)

FOOD = Subject(
    "animal food", "animal food",
    """cow=grass; horse=grass and oats; rabbit=grass and carrots; sheep=grass; hen=grain; squirrel=nuts; bear=berries, fish and honey; panda=bamboo; giraffe=leaves; monkey=fruit; owl=mice; hedgehog=worms and beetles
    robin=worms; duck=water plants and snails; bee=nectar; goat=leaves and grass; otter=fish; heron=fish; caterpillar=leaves; mole=worms; cat=mice and fish; koala=leaves; seal=fish; penguin=fish; butterfly=nectar; elephant=grass and leaves; donkey=grass and hay; frog=flies; spider=flies""",
    (
        Ask("what does a(n) {animal} eat?", "what a(n) {animal} eats", "{food}"),
        Ask("what is the food of a(n) {animal}?", "what the food of a(n) {animal} is", "{food}"),
        Ask("what does a(n) {animal} like to eat?", "what a(n) {animal} likes to eat", "{food}"),
    ),
    ("a(n) {animal} eats {food}", "the {animal} eats {food}", "{food} is what a(n) {animal} eats", "a(n) {animal} lives on {food}", "the {animal} likes to eat {food}"),
)

HOMES = Subject(
    "homes", "animal home",
    "bird=nest; bee=hive; fox=den; rabbit=burrow; dog=kennel; horse=stable; pig=sty; spider=web; hen=hen-house; lion=den; beaver=lodge; snail=shell; cow=cow-shed; badger=sett; squirrel=drey; wolf=den; dove=dovecot; mole=tunnel",
    (
        Ask("where does a(n) {animal} live?", "where a(n) {animal} lives", "in a(n) {home}"),
        Ask("what is the home of a(n) {animal} called?", "what the home of a(n) {animal} is called", "a(n) {home}"),
        Ask("in what kind of home does a(n) {animal} live?", "in what kind of home a(n) {animal} lives", "in a(n) {home}"),
    ),
    ("a(n) {animal} lives in a(n) {home}", "the home of a(n) {animal} is called a(n) {home}", "the {animal} has its home in a(n) {home}"),
)

CLASSES = Subject(
    "classes", "animal class",
    """robin=bird; owl=bird; duck=bird; hen=bird; eagle=bird; swan=bird; penguin=bird; crow=bird; ostrich=bird
    salmon=fish; trout=fish; shark=fish; herring=fish; carp=fish; eel=fish
    bee=insect; ant=insect; butterfly=insect; beetle=insect; fly=insect; grasshopper=insect; ladybird=insect
    snake=reptile; lizard=reptile; tortoise=reptile; crocodile=reptile; frog=amphibian; toad=amphibian; newt=amphibian
    cow=mammal; dog=mammal; cat=mammal; horse=mammal; whale=mammal; bat=mammal; mouse=mammal; lion=mammal; elephant=mammal; dolphin=mammal; bear=mammal""",
    (
        Ask("what kind of animal is a(n) {animal}?", "what kind of animal a(n) {animal} is", "a(n) {class}"),
        Ask("is a(n) {animal} a bird, a fish, an insect, a reptile, an amphibian or a mammal?", "to which class of animals the {animal} belongs", "a(n) {class}"),
        Ask("what is a(n) {animal}?", "what a(n) {animal} is", "a(n) {class}"),
    ),
    ("a(n) {animal} is a(n) {class}", "the {animal} is a(n) {class}", "the {animal} is a kind of {class}"),
    "is a(n) {animal} a(n) {class}?",
)

LEGS = Subject(
    "legs", "animal legs",
    "cow=four; dog=four; cat=four; horse=four; sheep=four; frog=four; mouse=four; lion=four; hen=two; duck=two; robin=two; owl=two; spider=eight; ant=six; bee=six; beetle=six; butterfly=six; fly=six; crab=ten; elephant=four; pig=four",
    (
        Ask("how many legs does a(n) {animal} have?", "how many legs a(n) {animal} has", "{legs}"),
        Ask("how many legs has a(n) {animal}?", "how many legs a(n) {animal} has", "{legs} legs"),
        Ask("on how many legs does a(n) {animal} walk?", "on how many legs a(n) {animal} walks", "on {legs}"),
    ),
    ("a(n) {animal} has {legs} legs", "the {animal} has {legs} legs", "the {animal} walks on {legs} legs", "a(n) {animal} walks on {legs} legs"),
    "does a(n) {animal} have {legs} legs?",
)

GIFTS = Subject(
    "gifts", "animal plural gift",
    "cow=cows=milk; sheep=sheep=wool; hen=hens=eggs; bee=bees=honey; goat=goats=milk; duck=ducks=eggs; silkworm=silkworms=silk; goose=geese=feathers",
    (
        Ask("what does a(n) {animal} give us?", "what a(n) {animal} gives us", "{gift}"),
        Ask("what do we get from [{plural}|the {animal}]?", "what we get from {plural}", "{gift}"),
        Ask("what do {plural} give us?", "what {plural} give us", "{gift}"),
    ),
    ("a(n) {animal} gives us {gift}", "{plural} give us {gift}", "we get {gift} from {plural}"),
)

COATS = Subject(
    "coats", "animal coat",
    "bird=feathers; fish=scales; sheep=wool; cat=fur; dog=fur; bear=thick fur; rabbit=soft fur; snake=scales; duck=feathers; hedgehog=spines; owl=soft feathers; fox=red fur; tortoise=a hard shell; snail=a shell; crab=a hard shell; mole=black fur; lizard=scales",
    (
        Ask("what covers the body of a(n) {animal}?", "what covers the body of a(n) {animal}", "{coat}"),
        Ask("what does a(n) {animal} wear instead of clothes?", "what a(n) {animal} wears instead of clothes", "{coat}"),
    ),
    ("a(n) {animal} has {coat}", "the {animal} is covered with {coat}", "the body of a(n) {animal} is covered with {coat}"),
)

GROUPS = Subject(
    "groups", "animals group",
    "sheep=flock; birds=flock; cows=herd; elephants=herd; deer=herd; wolves=pack; bees=swarm; fish=school; lions=pride; geese=gaggle; puppies=litter; kittens=litter; ants=colony; whales=pod; dolphins=pod; locusts=swarm",
    (
        Ask("what is a group of {animals} called?", "what a group of {animals} is called", "a(n) {group}"),
        Ask("what do we call many {animals} together?", "what many {animals} together are called", "a(n) {group}"),
    ),
    ("a group of {animals} is called a {group}", "many {animals} together are called a {group}", "we say a {group} of {animals}"),
)

PAIRS = Subject(
    "pairs", "kind he she",
    "cattle=bull=cow; sheep=ram=ewe; chickens=cock=hen; horses=stallion=mare; deer=stag=doe; ducks=drake=duck; geese=gander=goose; lions=lion=lioness; foxes=fox=vixen; tigers=tiger=tigress",
    (
        Ask("among {kind}, what is the father called?", "what the father is called among {kind}", "the {he}"),
        Ask("among {kind}, what is the mother called?", "what the mother is called among {kind}", "the {she}"),
    ),
    ("among {kind} the father is called the {he} and the mother the {she}", "the {she} is the mother and the {he} is the father among {kind}"),
)

MOVES = Subject(
    "moves", "animal move how",
    "bird=flies=with its wings; fish=swims=with its fins; snake=creeps=on its belly; kangaroo=jumps=on its strong back legs; frog=hops=with its long back legs; duck=swims=with its webbed feet; bat=flies=with wings of skin; horse=gallops=on four hoofs; snail=creeps=on one soft foot; mole=digs=with its broad front feet; monkey=climbs=with its hands and feet; butterfly=flies=with four thin wings; squirrel=climbs=with its sharp claws",
    (
        Ask("how does a(n) {animal} move?", "how a(n) {animal} moves", "it {move} {how}"),
        Ask("in what way does a(n) {animal} get about?", "in what way a(n) {animal} gets about", "it {move} {how}"),
    ),
    ("a(n) {animal} {move} {how}", "the {animal} {move} {how}"),
)

SEEDS = Subject(
    "seeds", "from to",
    "an acorn=an oak; an apple seed=an apple tree; a grain of wheat=a stalk of wheat; a chestnut=a chestnut tree; a cherry stone=a cherry tree; a bean=a bean plant; a sunflower seed=a sunflower; a tulip bulb=a tulip; a pine seed=a pine tree; a pumpkin seed=a pumpkin plant; a caterpillar=a butterfly; a tadpole=a frog; a foal=a horse; a kitten=a cat; a puppy=a dog; a lamb=a sheep; a chick=a hen; a calf=a cow; a child=a grown-up",
    (
        Ask("what does {from} become?", "what {from} becomes", "{to}"),
        Ask("what will {from} [be|become] one day?", "what {from} will become one day", "{to}"),
        Ask("what does {from} grow into?", "what {from} grows into", "{to}"),
    ),
    ("{from} becomes {to}", "{from} grows into {to}", "one day {from} will be {to}", "{from} will become {to} when it grows"),
)

GROWS = Subject(
    "grows", "plants where",
    "apples=on trees; pears=on trees; cherries=on trees; potatoes=under the ground; carrots=under the ground; grapes=on vines; strawberries=on low plants near the ground; onions=in the ground; beans=on climbing plants; plums=on trees; oranges=on trees in warm countries; bananas=in hot countries; raspberries=on bushes; water lilies=on ponds; mushrooms=in damp woods; blackberries=on bushes with thorns; oats=in fields; coconuts=on palm trees; beets=under the ground; nuts=on trees and bushes",
    (
        Ask("where do {plants} grow?", "where {plants} grow", "{where}"),
        Ask("where should we look for {plants}?", "where {plants} grow", "{where}"),
    ),
    ("{plants} grow {where}", "you can see {plants} growing {where}"),
)

PARTS = Subject(
    "plants", "part does",
    "the roots=drink water from the ground; the leaves=catch the sunlight; the flowers=make the seeds; the stem=carries water up to the leaves; the seeds=grow into new plants",
    (
        Ask("what does a plant need {part} for?", "what a plant needs {part} for", "{part} {does}"),
        Ask("what is the work of {part}?", "what the work of {part} is", "{part} {does}"),
    ),
    ("{part} {does}", "in a plant, {part} {does}"),
)

SUBJECTS = (YOUNG, SOUNDS, FOOD, HOMES, CLASSES, LEGS, GIFTS, COATS, GROUPS, PAIRS, MOVES, SEEDS, GROWS, PARTS)
