"""Plots about deeds: helping, boasting, being afraid, quarrelling, learning, working. Each returns the finished text."""

from train.stories import words
from train.stories.scenes import Telling, feel, finish, hand_over, introduce, meet, near, thank, walk, want
from train.stories.world import with_article

# trouble, how it is told, and the skill that helps, or a plain remedy
TROUBLES = (
    ("{A} had fallen into a deep hole and could not get out.", "digging", "dug a sloping way into the hole"),
    ("The foot of {a} was caught between two heavy stones.", "lifting heavy things", "lifted the stones away"),
    ("{A} sat on a rock in the water and could not swim.", "swimming", "swam out and brought a floating log"),
    ("{A} had lost the way in the mist.", "following a smell", "put nose to the ground and found the path"),
    ("{A} was tied with a string to a tree.", "creeping through small holes", "crept up and bit through the string"),
    ("{A} had climbed too high and did not dare to come down.", "climbing trees", "climbed up and showed the way, branch by branch"),
    ("{A} had to get word to the village before night.", "running fast", "ran like the wind with the message"),
    ("{A} wanted to cross the field, but a fierce dog lay there.", "walking softly", "led the way on soft feet, and the dog never woke"),
)


def help_returned(t: Telling) -> str:
    """The strong one helps the small one, and one day it is the other way round."""
    n, w = t.narrator, t.world
    place = w.new_place()
    hero = w.hero(place, t.pick(("kind", "gentle", "thoughtful", "brave")))
    trouble, skill, deed = t.rng.choice(TROUBLES)
    friend = w.animal(place, skill=skill)
    introduce(t, hero)
    first_trouble = t.pick(("had a thorn in one foot", "was caught under a fallen branch", "lay shivering in the cold", "was stuck in the mud", "had hurt a leg"))
    n.say(f"{near(place)} {{a}} heard a weak voice. It was {with_article(friend.kind)}, who {first_trouble}.",
          f'"Help! Help!" cried somebody. {{A!}} looked, and saw {with_article(friend.kind)}, who {first_trouble}.', a=hero, b=friend)
    remedy = {"had": "drew out the thorn" if "thorn" in first_trouble else "bound up the leg with a handkerchief", "was": "pulled with all might",
              "lay": "brought a blanket and some warm milk"}[first_trouble.split()[0]]
    n.say(f"{{A}} {remedy}, and soon {{b}} was free again." if first_trouble.startswith("was") else f"{{A}} {remedy}, and soon {{b}} was well again.", a=hero, b=friend)
    thank(t, friend, hero)
    n.say('"You are so small," laughed {a}, "how could you ever help me?"' if friend.kind in ("mouse", "squirrel", "mole", "hare", "frog") else '"It was nothing," said {a}.', a=hero)
    n.paragraph()
    place2 = w.new_place()
    n.say("Many days went by.", "Winter came and went.", "A week later it happened that {a} was in trouble too.", "Not long after that {a} was out alone.", a=hero)
    w.go(hero, place2)
    w.go(friend, place2)
    n.say(f"{near(place2)} something bad happened.", f"It was {near(place2)}, and nobody was near.")
    n.say(trouble, a=hero)
    feel(t, hero, "afraid")
    n.say('"Is nobody there?" called {a}.', '"Help!" cried {a}, as loud as {ahe} could.', a=hero)
    n.say("{b!} heard it and came at once.", '"I know that voice," said {b}, and came as fast as could be.', b=friend)
    n.say(f'"I am good at {skill}," said {{b}}. "Wait!" And {{b!}} {deed}.', f"Nobody is better than {{b}} at {skill}. {{b!}} {deed}, and {{a}} was saved.", a=hero, b=friend)
    thank(t, hero, friend)
    return finish(t, "kind", hero, friend)


def boasting(t: Telling) -> str:
    """A boaster is beaten by someone who is slow, small or patient."""
    n, w = t.narrator, t.world
    place = w.new_place()
    hero, quiet = w.animal(place, "boastful"), w.animal(place, "patient")
    introduce(t, hero)
    n.say(f'"Nobody is better than I am at {hero.skill}," {{a}} said to everyone.', f'{{A}} boasted from morning to night. "Look at me!" {{ahe}} said. "Who can match me at {hero.skill}?"', a=hero)
    n.say(f'"Let us see who is first at {w._free_places[-1]}," said {{b}} quietly.', f'At last {{b}} had heard enough. "I will try it with you," {quiet.he} said. "The first at {w._free_places[-1]} shall have the prize."', b=quiet)
    goal = w.new_place()
    n.say('All the others laughed. "You!" cried {a}.', '"With you?" laughed {a}. "That will be easy."', a=hero)
    n.paragraph()
    prize = w.thing()
    n.say(f"The prize was {prize.a}.", f"An old crow sat by with {prize.a}, which was to be the prize.")
    n.say("They set out together.", "One, two, three, and off they went!", "At sunrise they began.")
    n.say("{A} was far ahead before long.", "{A} was so sure of winning that {ahe} did not hurry.", a=hero)
    n.say(f"\"I have time for {t.pick(words.FOODS)},\" {{a}} thought, and then {hero.he} fell asleep.", "But {a} stopped at every corner to tell people how well it went.", "Then {a} lay down in the shade, only for a moment, and slept.", a=hero)
    n.say("{b!} went on, step by step, and did not look round.", "Meanwhile {b} came along slowly, but never stopped.", b=quiet)
    n.paragraph()
    w.go(quiet, goal)
    w._put(prize, quiet)
    n.say(f"When {{a}} came to {goal} at last, {{b}} was sitting there with {prize.the}.", f"The sun was low when {{a}} reached {goal}. And who was there already? {{b!}}, with {prize.the}!", a=hero, b=quiet)
    w.go(hero, goal)
    feel(t, hero, t.pick(("ashamed", "angry")))
    n.say('"You are better at it than I am," said {b}, "but I went on, and you did not."', '"Better luck next time," said {b} kindly.', b=quiet)
    return finish(t, t.pick(("proud", "patient")), hero)


def in_the_dark(t: Telling) -> str:
    """Strange sounds at night turn out to be something small and friendly."""
    n, w = t.narrator, t.world
    place = w.new_place()
    hero = w.child(place)
    friend = w.animal(place)
    introduce(t, hero)
    lamp = w.thing(hero, t.pick(("lantern", "lamp")))
    sound = t.pick(("a scratching", "a long low cry", "a knocking", "a rustling", "a sneeze", "a bump"))
    n.say(f"That night {{a}} could not sleep, for there was {sound} at the door.", f"In the middle of the night {{a}} woke. There was {sound} outside.", a=hero)
    feel(t, hero, "afraid")
    n.say('"Perhaps it is a giant," {ahe} thought, and pulled the blanket over {ahis} head.', '"Who is there?" {ahe} whispered. Nobody answered.', '"It may be a wolf," thought {a}.', a=hero)
    n.say(f"There was {sound} again, and louder.", "Then it came again, nearer than before.")
    n.paragraph()
    n.say(f'"I will go and look," said {{a}}. {{A!}} took {lamp.the} and opened the door.', f"At last {{a}} took {lamp.the} in {hero.his} hand and went on the tips of {hero.his} toes to the door.", a=hero)
    n.say(f"And what was it? Only {with_article(friend.kind)}, wet and cold!", f"By the light of {lamp.the} {{a}} saw {with_article(friend.kind)}, no giant at all.", f"There in the rain sat {with_article(friend.kind)}, and looked up with round eyes.", a=hero)
    n.say('"I was afraid of you," said {a}. "And I was afraid of you," said {b}.', '"Please let me in," said {b}. "I am afraid of the dark."', a=hero, b=friend)
    n.say(f"Then {{a}} laughed, and gave {{b}} {t.pick(words.FOODS)}.", "{a!} let {b} sleep beside the stove.", "They sat by the fire together until morning.", a=hero, b=friend)
    return finish(t, "brave", hero, friend)


def quarrel(t: Telling) -> str:
    """Two friends quarrel over a thing, part, miss each other, and make peace."""
    n, w = t.narrator, t.world
    place = w.new_place()
    one, two = w.hero(place), w.hero(place)
    introduce(t, one)
    n.say("{b!} was {ahis} best friend, and they played together every day.", "Every day {a} played with {b}.", a=one, b=two)
    thing = w.thing()
    w.hide(thing, place)
    n.say(f"They found {thing.a} {thing.spot}.", f"{thing.spot} lay {thing.a}, and both of them saw it.")
    n.say('"I saw it first!" said {a}. "No, I saw it first!" said {b}.', '"It is mine!" cried {b}. "It is not!" cried {a}. "It is mine!"', a=one, b=two)
    w.find(thing, one)
    n.say(f"{{a!}} took {thing.the} and ran home.", f"{{a!}} pulled so hard that {two.name} let go, and {{a}} kept {thing.the}.", a=one)
    feel(t, two, t.pick(("angry", "sad")))
    n.paragraph()
    n.say(f"But it was dull to have {thing.the} alone.", f"The next day {{a}} played with {thing.the}, but it was no fun.", f"{{a!}} put {thing.the} on the table and looked at it. It was only {thing.a}.", a=one)
    n.say('"What is {it} to me without my friend?" {{ahe}} thought.'.replace("{it}", thing.short).replace("{{", "{").replace("}}", "}"), '"I wish that {b} were here," said {a}.', a=one, b=two)
    n.say("And {b} sat at home and was lonely too.", "{b!} was not happy either.", b=two)
    n.paragraph()
    n.say("In the evening there was a knock at the door.", "So {a} went to look for {b}.", "They met half-way on the path.", a=one, b=two)
    hand_over(t, thing, one, two)
    n.say('"No," said {b}, "it shall belong to both of us."', '"We can have it by turns," said {b}. "You today, and I tomorrow."', b=two)
    n.say('"I am sorry," said {a}. "So am I," said {b}.', "Then they both laughed, and the quarrel was over.", a=one, b=two)
    return finish(t, "share", one, two)


def learning(t: Telling) -> str:
    """Somebody tries to learn a thing, fails twice, is advised, and succeeds."""
    n, w = t.narrator, t.world
    place = w.new_place()
    hero, teacher = w.child(place), w.grown_up(place, t.pick(("wise", "patient", "kind")))
    introduce(t, hero)
    what, failure, advice = t.rng.choice((
        ("swim", "went under like a stone", "Do not fight the water. Let it carry you"), ("whistle", "nothing came but air", "Make your lips round and blow softly"),
        ("ride the old horse", "slid off on the other side", "Sit straight, and let the horse know that you are not afraid"), ("bake bread", "it came out as hard as a brick", "Let the dough rest, and do not hurry the fire"),
        ("skate", "sat down hard upon the ice", "Bend your knees, and look where you wish to go"), ("read", "the letters danced about", "Take one word at a time"),
        ("catch a fish", "the hook came up empty", "Sit still, and wait, and be quiet"), ("play a tune", "it sounded like an angry cat", "Play it slowly first, and listen"),
    ))
    n.say(f"{{A}} wished to learn to {what}.", f'"I want to {what}," said {{a}}.', f"All the other children could {what}, but {{a}} could not.", a=hero)
    n.paragraph()
    first = f"The first time {failure}." if failure.startswith(("nothing", "it", "the")) else f"The first time {hero.he} {failure}."
    n.say(first, a=hero)
    n.say("{A} tried again, and it was no better.", "The second time was worse.", "{A} tried once more, and once more it went wrong.", a=hero)
    feel(t, hero, t.pick(("sad", "angry", "tired")))
    n.say('"I shall never do it," said {a}.', '"I give it up!" cried {a}.', a=hero)
    meet(t, hero, teacher)
    n.say('"Why do you look so sad?" asked {b}.', '{b!} had seen it all. "That was not bad," said {b}.', b=teacher)
    n.say(f'"{advice}," said {{b}}. "And try again tomorrow."', f'"I will tell you a secret," said {{b}}. "{advice}."', b=teacher)
    n.paragraph()
    n.say("{A} tried again the next day, and the day after that.", "So {a} did as {b} had said.", "Every morning {a} tried again.", a=hero, b=teacher)
    n.say(f"And one fine day {hero.he} could {what}!", f"Then, all at once, {{a}} could {what}.", a=hero)
    feel(t, hero, "happy")
    n.say('"Look, look!" cried {a}. "I can do it!"', '{b!} nodded. "I knew that you would," said {b}.', a=hero, b=teacher)
    return finish(t, "patient", hero, teacher if t.maybe(0.3) else None)


def garden(t: Telling) -> str:
    """Two sow seeds; the patient one waters them and the lazy one does not."""
    n, w = t.narrator, t.world
    place = w.new_place()
    lazy, busy = w.hero(place, "lazy"), w.hero(place, "patient")
    introduce(t, busy)
    seed, grown = t.rng.choice((("bean", "a bean-stalk as tall as the house"), ("sunflower seed", "a sunflower like a golden plate"), ("pumpkin seed", "a pumpkin too big to carry"),
                                ("apple seed", "a little apple tree"), ("carrot seed", "fat red carrots"), ("pea", "green peas, sweet as sugar")))
    giver = w.grown_up(place, "wise")
    n.say(f"{{c!}} gave {{a}} and {{b}} each a {seed}.", f'"Here is a {seed} for each of you," said {{c}} to {{a}} and {{b}}. "We shall see what you make of it."', a=busy, b=lazy, c=giver)
    n.say("{a!} dug the ground, pulled out the weeds, and put the seed into the earth.", "{a!} made a hole with one finger, put in the seed, and covered it.", a=busy)
    n.say("{b!} threw the seed down and went to sleep.", '"That is too much work," said {b}, and let the seed lie where it fell.', b=lazy)
    n.paragraph()
    n.say("Every day {a} brought water.", "When the sun was hot, {a} carried water from the brook.", a=busy)
    n.say('"Why do you work so hard?" asked {b}. "Nothing is there yet." "Wait," said {a}.', '"Come and play," called {b}. "First I must water my seed," said {a}.', a=busy, b=lazy)
    n.say("Then came a green leaf, and then another.", "One morning a little green point looked out of the earth.")
    n.say("A snail wished to eat it, but {a} carried the snail away.", "When the wind blew, {a} tied it to a stick.", "{a!} built a fence about it, so that the hens should not come.", a=busy)
    n.paragraph()
    n.say(f"At the end of summer there was {grown}.", f"And by the autumn it had become {grown}!")
    n.say("But where {b} had thrown the seed there was nothing but weeds.", "{b!} had nothing at all, for a bird had eaten the seed.", b=lazy)
    feel(t, lazy, t.pick(("ashamed", "sad")))
    n.say('"You may have some of mine," said {a}, "and next spring we will dig together."', '"I see now," said {b}. "Next year I shall work as you did."', a=busy, b=lazy)
    return finish(t, "patient", busy, lazy)


def treasure(t: Telling) -> str:
    """A riddle leads to a hidden box, through three places."""
    n, w = t.narrator, t.world
    start, middle, end = w.new_place(), w.new_place(), w.new_place()
    hero, friend = w.child(start), w.hero(start)
    introduce(t, hero)
    box = w.thing(noun="box")
    prize = w.thing()
    w.hide(box, end)
    paper = t.pick(("an old letter", "a scrap of paper", "a map"))
    n.say(f"In an old book {{a}} found {paper}. On it was written: \"Go first to {middle}.\"", f"Under the floor lay {paper}. It said: \"Whoever would be rich must go to {middle}.\"", a=hero)
    n.say('"Come with me, {b!}!" said {a}.' if friend.is_child else '"Come with me, {bName}!" said {a}.', "{a!} showed it to {b}, and they set out at once.", a=hero, b=friend)
    n.paragraph()
    walk(t, hero, middle)
    w.go(friend, middle)
    guard = w.grown_up(middle)
    meet(t, hero, guard)
    riddle, answer = t.rng.choice((
        ("What has hands and cannot hold?", "A clock"), ("What runs and never grows tired?", "A river"), ("What has teeth and cannot bite?", "A comb"), ("What goes up when the rain comes down?", "An umbrella"),
        ("What is full of holes and yet holds water?", "A sponge"), ("What has one eye and cannot see?", "A needle"), ("What grows larger the more you take away?", "A hole"), ("What has a neck and no head?", "A bottle"),
    ))
    n.say(f'"I can tell you more," said {{c}}, "if you can answer this. {riddle}"', f'"First a riddle," said {{c}}. "{riddle}"', c=guard)
    n.say(f'They thought and thought. "{answer}!" cried {{b}}.', f'"I know," said {{a}}. "{answer}!"', a=hero, b=friend)
    n.say(f'"Right," said {{c}}. "Go to {end}, and look {box.spot}."', f"{{c!}} laughed. \"So it is! What you seek is {near(end)}, {box.spot}.\"", c=guard)
    n.paragraph()
    walk(t, hero, end)
    w.go(friend, end)
    n.say(f"They looked {box.spot}, and there was {box.a}.", f"{box.spot} they found {box.a}.")
    w.find(box, hero)
    w._put(prize, hero)
    n.say(f"{{a!}} opened {box.the}. In it lay {prize.a}.", f"It was locked, but {{b}} broke the lock with a stone. Inside was {prize.a}!", a=hero, b=friend)
    feel(t, friend, "happy")
    n.say(f'"{prize.the[0].upper() + prize.the[1:]} shall belong to both of us," said {{a}}.', '"It was worth the long way," said {b}.', a=hero, b=friend)
    return finish(t, t.pick(("share", "patient", "brave")), hero, friend)


def far_from_home(t: Telling) -> str:
    """Somebody leaves home to see the world, and finds that home is best."""
    n, w = t.narrator, t.world
    start = w.new_place()
    hero = w.hero(start)
    introduce(t, hero)
    thing = w.thing(hero)
    want(t, hero, thing)
    n.say('"It is so quiet here," said {a}. "I will go and see the world."', "But {a} was tired of seeing the same things every day.", '"There must be a finer place than this," thought {a}.', a=hero)
    complaints = {"the village": "there was too much noise", "the shore": "the wind blew sand into {his} eyes", "the wood": "it was dark, and the wolves cried", "the hill": "there was nothing to eat but grass",
                  "the castle": "nobody was allowed to laugh", "the market": "people pushed and shouted", "the river": "it was wet and cold", "the mill": "the wheel made a terrible noise"}
    places = [place for place in w._free_places if place in complaints][: t.rng.randint(2, 3)]
    for place in places:
        w._free_places.remove(place)
        n.paragraph()
        walk(t, hero, place)
        n.say(f"At first {{a}} liked it {near(place)}.", f'"Here I will stay," said {{a}} {near(place)}.', a=hero)
        n.say(f"But {complaints[place]}.".replace("{his}", hero.his), f"But soon {{a}} found that {complaints[place]}.".replace("{his}", hero.his), a=hero)
        if t.maybe(0.5):
            other = w.anyone(place)
            meet(t, hero, other)
            n.say('"Do you like living here?" asked {a}. "Of course," said {b}. "It is my home."', '"You are far from home," said {b}. "Yes," said {a}, "I am."', a=hero, b=other)
    feel(t, hero, t.pick(("tired", "sad")))
    n.paragraph()
    w.go(hero, start)
    n.say(f"So {{a}} turned round, and walked back to {start}, with {thing.the} under one arm.", f"{{A}} took {thing.the} and went home to {start}.", a=hero)
    n.say("How good it was to see the old door again!", "Everything was just as it had been, and it was beautiful.", '"There you are," said {ahis} mother. "Supper is ready."', a=hero)
    return finish(t, "content", hero)


PLOTS = (help_returned, boasting, in_the_dark, quarrel, learning, garden, treasure, far_from_home)
