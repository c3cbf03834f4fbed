"""The small vocabulary of the stories: who there is, where they live, what they own, and how they are."""

GIRLS = ["Lily", "Anna", "Rose", "Mary", "Daisy", "Nell", "Clara", "Ruth", "Molly", "Ivy", "Betty", "Elsie", "Jane", "Kate", "Lucy", "Emma", "Alice", "Hetty", "Polly", "Grace", "Susan", "Dora", "Nora", "Ella", "Peggy", "Martha", "Tess", "Minna", "Greta", "Wendy"]
BOYS = ["Tom", "Ben", "Jack", "Will", "Sam", "Harry", "Ned", "Peter", "Hans", "Robin", "Arthur", "Fred", "Dick", "Oliver", "George", "Henry", "Max", "Toby", "Hugh", "Walter", "Jim", "Frank", "Edwin", "Martin", "Philip", "Leo", "Rolf", "Colin", "Davy", "Giles"]

# (kind, child's word for its home, what it is good at)
ANIMALS = (
    ("fox", "den", "running quietly"), ("hare", "nest in the grass", "running fast"), ("bear", "cave", "lifting heavy things"),
    ("mouse", "hole under the wall", "creeping through small holes"), ("owl", "hollow tree", "seeing in the dark"),
    ("squirrel", "nest in the oak", "climbing trees"), ("hedgehog", "heap of leaves", "keeping still"),
    ("duck", "nest by the pond", "swimming"), ("frog", "pond", "jumping"), ("badger", "hole under the hill", "digging"),
    ("crow", "nest in the elm", "flying high"), ("goose", "yard", "making a great noise"), ("cat", "basket by the stove", "walking softly"),
    ("dog", "little house", "following a smell"), ("goat", "shed", "climbing rocks"), ("mole", "tunnel", "digging in the dark"),
    ("robin", "nest in the hedge", "singing"), ("rabbit", "burrow", "hearing small sounds"), ("otter", "house by the river", "swimming"),
    ("donkey", "stable", "carrying loads"),
)

GROWN_UPS = (
    ("the old woman", "she"), ("the miller", "he"), ("the baker", "he"), ("the farmer", "he"), ("the fisherman", "he"),
    ("the shepherd", "he"), ("the old man", "he"), ("the gardener", "he"), ("the teacher", "she"), ("the washerwoman", "she"),
    ("the blacksmith", "he"), ("the widow", "she"), ("the shoemaker", "he"), ("the woodcutter", "he"), ("the queen", "she"),
    ("the king", "he"), ("the carpenter", "he"), ("the milkmaid", "she"), ("the tailor", "he"), ("the captain", "he"),
)

# noun → adjectives that suit it
THINGS = {
    "ball": ("red", "round", "blue", "new"), "kite": ("yellow", "paper", "big", "red"), "doll": ("little", "wooden", "old", "pretty"),
    "hat": ("straw", "green", "soft", "tall"), "basket": ("large", "brown", "little", "round"), "key": ("golden", "small", "rusty", "silver"),
    "bell": ("silver", "little", "bright", "brass"), "book": ("thick", "old", "blue", "beautiful"), "lamp": ("small", "brass", "bright", "old"),
    "boat": ("toy", "little", "white", "wooden"), "whistle": ("tin", "loud", "wooden", "little"), "cup": ("blue", "china", "silver", "tin"),
    "ring": ("gold", "plain", "shining", "thin"), "spoon": ("silver", "wooden", "long", "bent"), "box": ("green", "tin", "little", "heavy"),
    "drum": ("red", "big", "toy", "loud"), "scarf": ("warm", "woollen", "long", "red"), "coin": ("gold", "bright", "silver", "old"),
    "stone": ("smooth", "white", "round", "shining"), "feather": ("blue", "long", "white", "soft"), "button": ("brass", "round", "black", "pearl"),
    "shell": ("pink", "curly", "large", "white"), "blanket": ("thick", "warm", "grey", "soft"), "flute": ("wooden", "thin", "silver", "old"),
    "lantern": ("bright", "little", "iron", "red"), "cap": ("blue", "woollen", "old", "red"), "pot": ("copper", "big", "black", "clay"),
    "watch": ("gold", "fat", "silver", "old"), "top": ("painted", "little", "red", "humming"), "rope": ("long", "strong", "thick", "new"),
}

FOODS = (
    "a loaf of bread", "a pot of honey", "a basket of apples", "a piece of cheese", "a plum cake", "a bowl of soup", "a bag of nuts",
    "a jug of milk", "a dish of berries", "a warm pie", "some ginger biscuits", "a sack of potatoes", "a handful of cherries",
)

# place → (a preposition phrase, things seen there)
PLACES = {
    "the wood": ("in the wood", "tall trees", "ferns and moss", "a path of brown leaves"),
    "the garden": ("in the garden", "beds of roses", "rows of beans", "a green gate"),
    "the river": ("by the river", "smooth stones", "a row of willows", "a wooden bridge"),
    "the village": ("in the village", "white cottages", "a stone well", "a baker's shop"),
    "the hill": ("on the hill", "long grass", "a few grey sheep", "a ruined tower"),
    "the farm": ("on the farm", "a red barn", "a yard full of hens", "a cart without wheels"),
    "the shore": ("on the shore", "wet sand", "an old boat", "little pools of water"),
    "the meadow": ("in the meadow", "yellow flowers", "a slow brook", "a ring of mushrooms"),
    "the mill": ("at the mill", "a great wheel", "sacks of flour", "a loft full of straw"),
    "the market": ("at the market", "baskets of fruit", "a man with ribbons", "a row of stalls"),
    "the pond": ("by the pond", "green reeds", "white lilies", "a flat rock"),
    "the orchard": ("in the orchard", "apple trees", "a broken ladder", "a swing on a branch"),
    "the castle": ("in the castle", "a long stair", "a hall with a fire", "a window of coloured glass"),
    "the barn": ("in the barn", "heaps of hay", "an old ladder", "a swallow's nest"),
}

HIDING = {
    "the wood": ("under a fern", "behind a fallen tree", "in a hollow log"), "the garden": ("under the rose bush", "behind the gate", "among the beans"),
    "the river": ("between two stones", "under the bridge", "among the roots of a willow"), "the village": ("beside the well", "under a bench", "on a doorstep"),
    "the hill": ("in the long grass", "under the wall of the tower", "beside a grey rock"), "the farm": ("behind the barn", "under the cart", "in the hen-house"),
    "the shore": ("in a little pool", "under the old boat", "half buried in the sand"), "the meadow": ("beside the brook", "in the ring of mushrooms", "among the yellow flowers"),
    "the mill": ("behind a sack of flour", "in the straw", "under the stairs"), "the market": ("under a stall", "among the apples", "beside a barrel"),
    "the pond": ("among the reeds", "on the flat rock", "under a lily leaf"), "the orchard": ("under an apple tree", "beside the ladder", "in the fork of a tree"),
    "the castle": ("under the stair", "behind a curtain", "on the window-sill"), "the barn": ("in the hay", "under the ladder", "behind a beam"),
}

WEATHER = (
    "the sun was shining", "a soft rain was falling", "the wind was cold", "snow lay on the ground", "the air was warm and still",
    "white clouds sailed across the sky", "the leaves were turning brown", "the birds were singing", "there was frost on the grass",
    "a mist hung over the fields", "the first flowers were out", "the sky was as blue as could be",
)

SKILLS = (
    "finding things", "telling stories", "climbing trees", "making things out of wood", "singing", "asking questions", "running",
    "remembering names", "whistling", "drawing pictures", "catching fish", "keeping secrets", "counting",
)

GOOD = ("kind", "gentle", "cheerful", "patient", "brave", "honest", "thoughtful", "clever")

MORALS = {
    "kind": ("A kind deed is never lost.", "Those who help others will find help themselves.", "Kindness costs little and is worth much."),
    "honest": ("It is best to tell the truth, even when it is hard.", "A lie runs fast, but the truth comes after it.", "One honest word is better than ten clever excuses."),
    "share": ("Half a cake with a friend is better than a whole one alone.", "What we share grows larger.", "Nobody is poor who has a friend to share with."),
    "patient": ("Slow and steady work brings its reward.", "Good things take time.", "He who goes on trying gets there in the end."),
    "proud": ("It is foolish to boast.", "Pride makes a poor friend.", "The loudest voice is not always the wisest."),
    "brave": ("To be brave is to be afraid and to go on.", "The dark is not so dark when we go together.", "A small heart may be a brave one."),
    "careful": ("We should take care of what we have.", "It is well to look before one leaps.", "Haste makes more work."),
    "content": ("Home is the best place after all.", "Enough is as good as a feast.", "We often have what we want, and do not know it."),
}
