"""Poems of simple rhymed lines: couplets that suit a subject, put together anew each time."""

from train.stories.phrases import capital
from train.stories.scenes import Telling

# subject → couplets, a slash between their lines
COUPLETS: dict[str, tuple[str, ...]] = {
    "[The Moon|To the Moon|Moonlight]": ("The moon is [high|white], the moon is bright, / It looks into my room at night.", "It shines upon the sleeping town, / And on the hills it looks right down.", "O moon, so quiet and so far, / You walk beside the evening star.", "The owl is calling in the tree, / The moon looks in and smiles at me.", "And when the morning comes, you go, / But where you sleep I do not know.", "Good night, good night, you silver light, / You watch the world until it's bright."),
    "[The Rain|Rain|Rainy Day]": ("The rain is falling all the day, / It washes all the dust away.", "It drums upon the roof and pane, / How good it is to hear the rain!", "The ducks are glad, the frogs are too, / The flowers drink, as flowers do.", "I wear my boots, I wear my hat, / But not so happy is the cat.", "And when the sun comes out again, / A rainbow stands above the plain.", "Drip, drop, drip, drop, it will not cease, / It falls upon the backs of geese."),
    "[Winter|Snow|The First Snow]": ("The snow comes down so soft and slow, / The fields are white, the north winds blow.", "The pond is frozen hard as stone, / The little bird sits all alone.", "We make a man with coal for eyes, / And of a hat of wondrous size.", "Come in, come in, and shut the door, / And dance with me upon the floor.", "The fire is warm, the soup is hot, / And snow may fall, it hurts us not.", "The roofs are white, the streets are still, / The children slide down every hill."),
    "[Spring|Spring is Here|A Song of Spring]": ("The snow has gone, the sky is blue, / The grass is green, the leaves are new.", "The lambs are jumping up and down, / The birds come back to wood and town.", "The bee is humming in the sun, / The winter days are over and done.", "O come and see, O come and sing, / For all the world is glad of spring.", "The primrose opens by the wall, / And there is room and light for all.", "I found a nest, I let it be, / Five small blue eggs were there to see."),
    "[Summer|A Summer Day|In Summer]": ("The sun is high, the sky is clear, / The best of days in all the year.", "We swim and splash, we run and play, / We stay outdoors the livelong day.", "The cherries ripen on the tree, / There's some for you and some for me.", "The bees are busy in the clover, / And no one wants this day over.", "We lie beneath the apple tree / And hear the humming of the bee.", "At night the air is warm and mild, / The stars look down on every child."),
    "[Autumn|The Leaves|Falling Leaves]": ("The leaves are yellow, brown and red, / They make a carpet where we tread.", "The swallows gather, off they fly, / We wave our hands and say good-bye.", "The apples lie in every tray, / The squirrel hides his nuts away.", "The wind goes whistling round the house, / And in her hole sits Mrs. Mouse.", "The kites fly high, the clouds fly fast, / And soon the autumn will be past.", "One leaf, two leaves, then three and four, / The wind has brought them to my door."),
    "[My Cat|The Cat|Puss]": ("I have a cat, her fur is grey, / She sleeps on cushions all the day.", "She likes her milk, she likes her fish, / She licks the bottom of the dish.", "At night she walks upon the wall, / And never falls, and knows it all.", "She purrs when she sits on my knee, / I like my cat, and she likes me.", "She will not come when she is called, / She sits in state upon the wall.", "The mouse has gone into its hole, / And puss must eat what's in her bowl."),
    "[My Dog|The Dog|A Friend]": ("My dog is brown, my dog is small, / He runs to me when I do call.", "He brings the stick, he brings the ball, / He is the gladdest dog of all.", "He wags his tail, he jumps about, / He pulls me when we both go out.", "And when the day comes to its end, / He sleeps beside me, my good friend.", "He barks at cats, he barks at bees, / He barks at squirrels in the trees."),
    "[The Farm|On the Farm|In the Yard]": ("The cow says moo, the sheep says baa, / The donkey cries a loud hee-haw.", "The hen has laid an egg today, / She tells it all across the hay.", "The cock gets up before the sun / And wakes the farmers, every one.", "The pig is happy in the mud, / The cow lies down and chews her cud.", "The ducks go swimming in a row, / First fast, then faster, then quite slow.", "The horse is strong and pulls the cart, / And everybody does his part."),
    "[The Sea|By the Sea|The Ship]": ("The sea is wide, the sea is deep, / The sea is never quite asleep.", "I found a shell upon the sand, / It sang to me when in my hand.", "A ship sails out, so far, so far, / And finds her way by moon and star.", "The gulls are crying in the wind, / They leave the quiet land behind.", "The waves come in, the waves go out, / And children run and splash and shout.", "The lighthouse shines across the bay / And shows the ships the safest way."),
    "[Bedtime|Good Night|A Lullaby|Sleep]": ("The day is done, the lamp is low, / The birds went home an hour ago.", "Now close your eyes and sleep, my dear, / The moon is up, and I am here.", "The sheep are sleeping in the fold, / The hills are dark, the stars are gold.", "The wind has nothing more to say, / It sleeps until another day.", "So sleep, and dream of ships and sails, / Of talking birds and friendly whales.", "Good night to you, good night to me, / Good night to bird and flower and tree."),
    "[Friends|My Friend|You and I]": ("I have a friend, we laugh and play, / We walk to school the selfsame way.", "If you are sad, I sit with you, / If I am sad, you do so too.", "We share our bread, we share our cake, / And half of it each one may take.", "A friend is like a lamp at night, / That makes the dark and narrow bright.", "And if we quarrel, it is clear / We make it up when evening's near."),
    "[Counting Rhyme|One, Two|Numbers]": ("One, two, / I see you.", "Three, four, / Open the door.", "Five, six, / Pick up sticks.", "Seven, eight, / Do not be late.", "Nine, ten, / Begin again."),
    "[Morning|Good Morning|The Day Begins]": ("The sun looks in, the night is past, / The morning has come round at last.", "The cock has crowed, the birds all sing, / Let's see what this new day will bring.", "The bread is warm, the milk is white, / I slept so well the whole long night.", "I wash my face, I comb my hair, / And breakfast stands already there.", "Good morning, sun, good morning, tree, / Good morning, all the world and me."),
    "[The Garden|In My Garden|Flowers]": ("I put a seed into the ground, / And waited long without a sound.", "The rain came down, the sun shone bright, / A small green leaf came to the light.", "And now a flower, white and red, / Looks up at me and nods its head.", "The snail goes slowly down the lane, / He comes out only in the rain.", "The roses climb along the wall, / The sunflower is above them all.", "The bees come in, the bees go out, / They carry golden dust about."),
    "[The Train|A Journey|Going Away]": ("The train runs fast along the track, / It takes us there and brings us back.", "The trees fly by, the houses too, / The sky alone goes on with you.", "It goes through tunnels dark and long, / And sings a clanking, rattling song.", "We see the hills, we see the sea, / And Grandma waits for you and me."),
    "[The Star|Stars|The Sky at Night]": ("How many stars are in the sky? / I cannot count them, though I try.", "They shine above the quiet town, / Like little lamps they all look down.", "They showed the sailors where to go, / When all was dark and lights were low.", "And when the sun gets up, they fade, / But of the day they're not afraid.", "One star for you, and one for me, / And one for those across the sea."),
}


def poem(t: Telling) -> str:
    """Two to five couplets under a title, or without."""
    head = t.rng.choice(tuple(COUPLETS))
    couplets = COUPLETS[head]
    counted = couplets[0].startswith("One, two")
    count = t.rng.randint(2, len(couplets))
    chosen = couplets[:count] if counted else t.rng.sample(couplets, count)
    verses = [t.phrases(couplet).replace(" / ", "\n") for couplet in chosen]
    per = t.rng.choice((1, 2, 2, 6))
    text = "\n\n".join("\n".join(verses[i : i + per]) for i in range(0, len(verses), per))
    title = t.phrases(head)
    lead = t.rng.choice((f"{title}\n\n", f"{title}\n\n", "", f"A poem about {_about(title)}\n\n", f"{title}\n\nby {t.phrases('{name} {surname}')}\n\n"))
    return lead + text


def _about(title: str) -> str:
    return {"To the Moon": "the moon", "Spring is Here": "spring", "A Song of Spring": "spring", "In Summer": "summer", "On the Farm": "the farm", "In the Yard": "the farm", "By the Sea": "the sea", "Going Away": "a journey", "You and I": "friends", "In My Garden": "a garden",
            "The Day Begins": "the morning", "Good Morning": "the morning", "Good Night": "the night", "One, Two": "numbers", "Rainy Day": "the rain", "My Cat": "a cat", "My Dog": "a dog", "Puss": "a cat", "A Friend": "a dog", "Numbers": "numbers", "Counting Rhyme": "numbers", "My Friend": "friends"}.get(title, title[0].lower() + title[1:])


def nursery(t: Telling) -> str:
    """Short rhymes whose names and things change."""
    p = t.phrases
    first, second = t.rng.choice((("cat", "hat"), ("mouse", "house"), ("fox", "box"), ("goat", "boat"), ("bear", "chair"), ("hen", "pen"), ("dog", "log"), ("bee", "tree"), ("frog", "fog"), ("sheep", "heap"), ("snake", "lake"), ("fly", "pie"), ("duck", "truck"), ("goose", "moose"), ("mole", "hole"), ("crow", "snow")))
    third, fourth = t.rng.choice((("day", "away"), ("night", "light"), ("sun", "run"), ("sea", "me"), ("hill", "still"), ("rain", "again"), ("town", "down"), ("tree", "see"), ("well", "tell")))
    line = {"away": "And when I looked, it ran away", "light": "And all the stars were shining bright", "run": "And then it had to run, run, run", "me": "And then it sang a song to me", "still": "And there it sits, and sits there still", "again": "And then it all began again", "down": "And watched the sun as it went down", "see": "And there was nothing more to see", "tell": "And what it said I must not tell"}[fourth]
    where = {"day": "It came to see me one fine day", "night": "It came to see me in the night", "sun": "It sat a while there in the sun", "sea": "It wished to go and see the sea", "hill": "It lived upon a little hill", "rain": "It did not like to feel the rain", "town": "It took the road into the town", "tree": "It slept beneath a shady tree", "well": "It lived beside the village well"}[third]
    return p(f"[I saw|There was|I knew|I met] a [little|funny|merry|tiny|friendly] {first}\n[Who owned a|Who had a|Who wished to have a] [little |fine |]{second}.\n{where},\n{capital(line)}.")


KINDS = ((poem, 7), (nursery, 2))
