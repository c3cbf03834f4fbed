"""Words that templates ask for by name: ``{food}``, ``{animal}``, ``{colour}``, …"""

from train.stories import words


def split(text: str) -> tuple[str, ...]:
    """ "a pot; a pan" → ("a pot", "a pan"): the form in which the tables are written."""
    return tuple(part.strip() for part in text.split(";") if part.strip())


SLOTS: dict[str, tuple[str, ...]] = {
    "girl": tuple(words.GIRLS),
    "boy": tuple(words.BOYS),
    "name": (*words.GIRLS, *words.BOYS),
    "surname": split("Green; Brown; Miller; Baker; Hill; Wood; Carter; Fisher; Cook; Taylor; Smith; Field; Lane; Stone; Bell; Marsh; Brook; Page; Reed; Young; Winter; Gardner; Shepherd; Cooper; Archer; Dale; Hart; Rivers; Mason; Webb"),
    "title": split("Mr.; Mrs.; Miss"),
    "town": split("Ashford; Millbrook; Greenfield; Oakham; Riverton; Stonebridge; Appleby; Winford; Hillcombe; Fairview; Brookside; Maplewood; Lakeside; Eastbury; Westbury; Northam; Elmwood; Honeyfield; Sandbay; Thornby"),
    "street": split("Mill Street; Church Lane; River Road; Garden Street; Station Road; Market Street; Oak Lane; School Road; Rose Street; High Street; Bridge Street; Orchard Lane"),
    "number": split("two; three; four; five; six; seven; eight; nine; ten"),
    "small": split("two; three; four; five; six"),
    "colour": split("red; blue; green; yellow; brown; white; grey; pink; purple; orange; black"),
    "day": split("Monday; Tuesday; Wednesday; Thursday; Friday; Saturday; Sunday"),
    "month": split("January; February; March; April; May; June; July; August; September; October; November; December"),
    "season": split("spring; summer; autumn; winter"),
    "age": split("six; seven; eight; nine; ten; eleven; twelve"),
    "hour": split("one; two; three; four; five; six; seven; eight; nine; ten; eleven; twelve"),
    "animal": split("dog; cat; horse; cow; sheep; goat; pig; hen; duck; goose; rabbit; mouse; fox; hare; bear; squirrel; hedgehog; owl; crow; robin; frog; donkey; badger; otter; mole; pony; lamb; swan"),
    "pet": split("dog; cat; rabbit; pony; kitten; puppy; hen; goat; duck; canary; hamster; tortoise"),
    "petname": split("Bella; Spot; Whiskers; Snow; Rusty; Biscuit; Bramble; Daisy; Pepper; Dusty; Clover; Patch; Ginger; Hazel; Misty; Toffee"),
    "fruit": split("apples; pears; plums; cherries; strawberries; grapes; oranges; lemons; bananas; peaches; raspberries; blackberries"),
    "vegetable": split("carrots; potatoes; beans; peas; onions; cabbages; tomatoes; leeks; beets; turnips; radishes; pumpkins"),
    "flower": split("roses; daisies; tulips; violets; lilies; poppies; sunflowers; primroses; buttercups; bluebells; snowdrops; daffodils"),
    "tree": split("oak; elm; apple tree; beech; willow; birch; pine; chestnut tree; cherry tree; lime tree; fir; ash"),
    "drink": split("milk; water; tea; cocoa; apple juice; lemonade; warm milk"),
    "meal": split("bread and butter; soup; porridge; eggs; pancakes; fish and potatoes; bread and cheese; a warm pie; rice pudding; apple cake; vegetable stew; toast and honey"),
    "food": split("bread; cheese; butter; honey; eggs; soup; jam; cake; porridge; pancakes; fish; rice; nuts; biscuits; apples; pears; plums; carrots; potatoes"),
    "sweet": split("ginger biscuits; a plum cake; an apple tart; a honey cake; a bag of sweets; a jar of jam; a chocolate cake; a cherry pie"),
    "toy": split("a ball; a kite; a doll; a drum; a wooden horse; a top; a toy boat; a box of bricks; a teddy bear; a train; a puzzle; a skipping rope; a set of paints"),
    "gift": split("a book; a scarf; a pair of mittens; a box of paints; a kite; a little clock; a woollen hat; a puzzle; a pencil box; a wooden boat; a music box; a jar of honey; a picture of a ship; a warm blanket; a ball; a set of coloured pencils"),
    "clothing": split("a coat; a hat; a scarf; a shirt; a pair of boots; a pair of socks; a jacket; a pair of gloves; a jumper; a nightgown; a raincoat; an apron"),
    "hobby": split("drawing; reading; singing; swimming; skating; baking; fishing; painting; sewing; climbing trees; collecting stones; flying a kite; playing chess; playing the piano; looking at the stars; planting flowers; riding a bicycle; watching birds"),
    "subject": split("reading; writing; arithmetic; drawing; music; history; geography; science; gardening; spelling"),
    "game": split("hide and seek; tag; marbles; leap-frog; chess; draughts; dominoes; catch; blind man's buff; skipping; I spy"),
    "job": split("baker; farmer; teacher; doctor; nurse; gardener; carpenter; sailor; tailor; shoemaker; painter; cook; driver; librarian; builder; blacksmith; shepherd; clockmaker; weaver; miller"),
    "relative": split("grandmother; grandfather; aunt; uncle; cousin; mother; father; brother; sister"),
    "room": split("kitchen; bedroom; garden; attic; hall; cellar; schoolroom; library; workshop"),
    "place": split("the wood; the garden; the river; the village; the hill; the farm; the shore; the meadow; the mill; the market; the pond; the orchard; the park; the library; the school; the station; the lake"),
    "weather": split("sunny; rainy; windy; cloudy; warm; cold; snowy; misty; frosty; fine; stormy"),
    "good": split("kind; gentle; cheerful; patient; brave; honest; thoughtful; clever; friendly; helpful; polite; merry"),
    "feeling": split("happy; glad; tired; proud; surprised; hungry; sleepy; excited; merry; thankful"),
    "hair": split("brown; black; red; fair; grey; white; golden; dark; curly; short; long"),
    "instrument": split("the piano; the violin; the flute; the drum; the guitar; the trumpet; the harp; the cello"),
    "tool": split("a hammer; a saw; a spade; a rake; a needle; a brush; a ladder; a bucket; a pair of scissors; a broom"),
    "school_thing": split("a pencil; a pen; a ruler; a book; a rubber; an exercise book; a box of paints; a lunch box; a bag; a piece of chalk"),
    "kitchen_thing": split("a pot; a pan; a spoon; a kettle; a bowl; a plate; a jug; a knife and fork; a cup; a rolling pin"),
    "adverb": split("quietly; kindly; softly; gladly; quickly; gently; cheerfully; politely"),
    "sight": split("a rainbow; a heron by the water; a nest with {small} eggs; a hedgehog; a red balloon; a deer; a field of {flower}; a steam train; an old mill; a family of ducks; a shooting star; a kite in the sky; a snail on the wall; a white butterfly"),
    "chore": split("fed the hens; swept the floor; watered the {flower}; carried in the wood; washed the cups; picked {fruit}; made the beds; dug in the garden; mended a fence; shelled the peas; baked bread; hung up the washing"),
    "chore_now": split("feed the hens; sweep the floor; water the {flower}; carry in the wood; wash the cups; pick {fruit}; make the beds; dig in the garden; mend the fence; shell the peas; bake bread; hang up the washing"),
    "play": split("played {game}; flew a kite; built a house of branches; drew pictures; read a book; sang songs; climbed the {tree}; swam in the lake; looked for shells; made a boat out of bark; fed the ducks; picked {flower}"),
    "play_now": split("play {game}; fly a kite; build a house of branches; draw pictures; read a book; sing songs; climb the {tree}; swim in the lake; look for shells; make a boat out of bark; feed the ducks; pick {flower}"),
}
