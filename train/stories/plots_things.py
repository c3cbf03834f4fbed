"""Plots about things: lost, found, given, swapped, borrowed and broken. Each returns the finished text."""

from train.stories import words
from train.stories.scenes import Telling, feel, finish, hand_over, introduce, meet, near, thank, walk, want
from train.stories.world import Character, Thing


def ask_about(t: Telling, hero: Character, other: Character, thing: Thing) -> None:
    t.narrator.say(
        f'"Have you seen {thing.short}?" asked {{a}}. "It is {thing.adjective}."',
        f'"I have lost my {thing.noun}," said {{a}}. "Have you seen it?"',
        f'"What is the matter?" asked {{b}}. "I cannot find {thing.the}," said {{a}}.', a=hero, b=other,
    )


def lost_and_found(t: Telling) -> str:
    """Somebody loses a thing, asks two others, and finds it where it was lost."""
    n, w = t.narrator, t.world
    start, there = w.new_place(), w.new_place()
    hero = w.hero(start, t.pick(("careless", "hasty", "cheerful", "kind")))
    introduce(t, hero)
    thing = w.thing(hero)
    want(t, hero, thing)
    walk(t, hero, there)
    game = t.pick(("ran after a butterfly", "played until the shadows were long", "looked for flowers", "fell asleep in the sun"))
    n.say(f"There {{a}} {game}.", f"{{A}} {game}, and thought of nothing else.", a=hero)
    w.lose(thing, hero, there)
    n.paragraph()
    n.say(f"But when {{a}} came home, {thing.the} was gone!", f"At home {{a}} looked for {thing.the}, but it was not there.",
          f'"Where is my {thing.noun}?" cried {{a}} at home.', a=hero)
    w.go(hero, start)
    feel(t, hero, t.pick(("sad", "afraid", "angry")))
    first = w.anyone(start)
    meet(t, hero, first)
    ask_about(t, hero, first, thing)
    n.say('"No," said {b}, "I have not seen it."', '{B} shook {bhis} head. "I am sorry," said {b}.', '"Not here," said {b}. "Where were you today?"', b=first)
    n.say(f'"You were in another place today," said {{b}}. "Go back to {there}."', f'"Think," said {{b}}. "Where did you play?" "At {there}!" said {{a}}.'
          if there.startswith(("the market", "the mill", "the farm")) else f'"Think," said {{b}}. "Where did you play?" "{near(there).capitalize()}!" said {{a}}.',
          f'"Then look for it {near(there)}," said {{b}}.', a=hero, b=first)
    n.paragraph()
    together = t.maybe(0.6)
    walk(t, hero, there)
    if together:
        w.go(first, there)
        n.say("{b!} went too.", "{b!} came along to help.", '"I will help you," said {b}, and came too.', b=first)
    spot = thing.spot
    wrong = t.pick(tuple(s for s in words.HIDING[there] if s != spot))
    n.say(f"{{A}} looked {wrong}, but found nothing.", f"First {{a}} looked {wrong}. It was not there.", a=hero)
    finder = first if together and t.maybe(0.5) else hero
    n.say(f"Then {{a}} looked {spot}, and there was {thing.the}!", f"And there, {spot}, lay {thing.the}! {{a!}} picked it up.",
          f'"Look!" cried {{a}}. {thing.the} was {spot}.'.replace(". the", ". The"), a=finder)
    w.find(thing, finder)
    if finder is not hero:
        hand_over(t, thing, first, hero)
    feel(t, hero, "happy")
    if together:
        thank(t, hero, first)
    return finish(t, t.pick(("careful", "kind")) if together else "careful", hero, first if together else None)


def honest_finder(t: Telling) -> str:
    """Somebody finds a thing, is tempted to keep it, and gives it back to its owner."""
    n, w = t.narrator, t.world
    place = w.new_place()
    hero, owner = w.hero(place, t.pick(("honest", "poor", "cheerful"))), w.grown_up(w.new_place())
    introduce(t, hero)
    thing = w.thing()
    w.hide(thing, place)
    n.say(f"As {{a}} went along, {hero.he} saw something {thing.spot}. It was {thing.a}.", f"{thing.spot} {{a}} found {thing.a}.", a=hero)
    w.find(thing, hero)
    n.say(f'"How {t.pick(("fine", "lovely", "pretty"))} it is!" said {{a}}. "I should like to keep it."', f"{{A}} looked at {thing.the} for a long time, and wished to have it.", a=hero)
    n.say('"But it is not mine," {ahe} thought. "Somebody is looking for it."', '"No," {ahe} said at last, "somebody must be sad without it."', a=hero)
    n.paragraph()
    if t.maybe(0.6):
        wrong = w.anyone(place, "greedy")
        meet(t, hero, wrong)
        n.say(f'"That {thing.noun} is mine," said {{b}}. "What colour is it?" asked {{a}}, and hid it. {{b!}} could not tell.',
              f'"Sell me that {thing.noun}," said {{b}}. "It is not mine to sell," answered {{a}}.',
              '"Keep it," said {b}. "Nobody will know." "I should know," said {a}.', a=hero, b=wrong)
    walk(t, hero, owner.place)
    n.say(f"There was {{b}}, looking here and there. \"Oh, where is my {thing.noun}?\" {owner.he} said.",
          f'There sat {{b}} and sighed. "I have lost {thing.the}," {owner.he} said.', a=hero, b=owner)
    hand_over(t, thing, hero, owner)
    feel(t, owner, "happy")
    thank(t, owner, hero)
    gift = w.thing(owner)
    n.say(f'"You are honest," said {{b}}. "For that you shall have {gift.a}."', f'"Wait," said {{b}}, and brought out {gift.a}. "This is for you."', a=hero, b=owner)
    w.give(gift, owner, hero)
    return finish(t, "honest", hero, owner)


def chain_of_swaps(t: Telling) -> str:
    """One thing is exchanged for another, again and again; at the end the hero has what is needed, or nothing."""
    n, w = t.narrator, t.world
    hero = w.hero(w.new_place())
    introduce(t, hero)
    thing, wish = w.thing(hero), w.thing()
    n.say(f"{{A}} had {thing.a}, but what {hero.he} wished for was {wish.a}.", f'"I have {thing.a}," said {{a}}, "but I would rather have {wish.a}."', a=hero)
    steps = t.rng.randint(2, 3)
    partner = hero
    for number in range(steps):
        n.paragraph()
        partner = w.anyone(w.new_place())
        walk(t, hero, partner.place)
        other = wish if number == steps - 1 else w.thing()
        w._put(other, partner)
        meet(t, hero, partner)
        why = t.pick(("is just what I need", "would suit me well", "would make my children happy", "is better than mine", "is what I have always wanted"))
        n.say(f'"Your {thing.noun} {why}," said {{b}}. "Will you take {other.a} for it?"', f'{{b!}} had {other.a}. "Let us change," said {{b}}, "for your {thing.noun} {why}."', a=hero, b=partner)
        n.say('"Gladly," said {a}.', '"Why not?" said {a}.', '"Yes, with all my heart," said {a}.' if other is wish else '"Very well," said {a}.', a=hero)
        w.give(thing, hero, partner)
        w.give(other, partner, hero)
        n.say(f"So {{b}} had {thing.the}, and {{a}} had {other.the}.", f"{{a!}} gave up {thing.the} and went on with {other.the}.", a=hero, b=partner)
        thing = other
    n.say(f"Now {{a}} had {wish.the} at last.", f'"This is the very {wish.noun} I wished for!" cried {{a}}.', a=hero)
    feel(t, hero, "happy")
    return finish(t, t.pick(("patient", "content")), hero, partner)


def sharing(t: Telling) -> str:
    """One has food and will not share; a mishap teaches better. Or one shares at once and is repaid."""
    n, w = t.narrator, t.world
    place = w.new_place()
    generous = t.maybe(0.5)
    hero = w.hero(place, "kind" if generous else t.pick(("greedy", "selfish")))
    other = w.anyone(place)
    introduce(t, hero)
    food = t.pick(words.FOODS)
    n.say(f"{{A}} had {food}.", f"{{A}} had brought {food} along.", f"{hero.his} aunt had given {{a}} {food}.", a=hero)
    meet(t, hero, other)
    n.say('"I am so hungry," said {b}. "Will you give me a little?"', '{b!} had eaten nothing since yesterday. "Please," said {b}, "may I have some?"', b=other)
    n.paragraph()
    if generous:
        n.say('"Sit down beside me," said {a}. "There is enough for two."', '"Half is yours," said {a}, and they ate together.', a=hero)
        n.say("They ate it all, and talked of many things.", "It tasted better than anything.", "Not a crumb was left.")
        gift = w.thing(other)
        n.say(f'"You shared with me," said {{b}}, "so I will share with you. Here is {gift.a}."', f'Then {{b}} took out {gift.a}. "This is all I have," {other.he} said, "but you shall have it."', b=other)
        w.give(gift, other, hero)
        thank(t, hero, other)
    else:
        n.say('"No," said {a}. "It is all mine."', '"Find your own dinner," said {a}.', "{A} turned round and ate as fast as {ahe} could.", a=hero)
        n.say("But {ahe} ate so much that {ahe} could not move.", "But the wind blew, and it all fell into the mud.", "Then a crow flew down and carried the best part away.", a=hero)
        feel(t, hero, t.pick(("sad", "ashamed")))
        extra = t.pick(tuple(f for f in words.FOODS if f != food))
        n.say(f"{{b!}} came back with {extra}. \"A neighbour gave it to me,\" said {{b}}. \"Let us eat it together.\"", f"By and by {{b}} found {extra}, and gave half of it to {{a}}.", a=hero, b=other)
        n.say('"I was wrong," said {a}. "Next time I will share with you."', '"I am sorry," said {a}. "I shall do better."', a=hero)
    return finish(t, "share", hero, other)


def borrowed(t: Telling) -> str:
    """A thing is lent and broken; whether the borrower tells the truth decides what follows."""
    n, w = t.narrator, t.world
    place = w.new_place()
    hero, friend = w.hero(place, t.pick(("careless", "honest", "hasty"))), w.hero(place)
    introduce(t, hero)
    thing = w.thing(friend)
    meet(t, hero, friend)
    n.say(f'"May I borrow {thing.the}?" asked {{a}}. "Yes," said {{b}}, "but take care of it."', f'{{b!}} had {thing.a}. "You may have it until tonight," said {{b}}, "but be careful."', a=hero, b=friend)
    w.give(thing, friend, hero)
    n.paragraph()
    walk(t, hero, w.new_place())
    n.say(f"There {{a}} fell over a root, and {thing.the} was broken.", f"{{A}} swung {thing.the} about, and it struck a stone and broke.", f"But {thing.the} slipped out of {hero.his} hands and broke in two.", a=hero)
    feel(t, hero, t.pick(("afraid", "sad", "ashamed")))
    lies = t.maybe(0.4)
    n.paragraph()
    walk(t, hero, friend.place)
    if lies:
        n.say(f'"Where is my {thing.noun}?" asked {{b}}. "A thief took it," said {{a}}.', f'"The wind carried it away," said {{a}}, when {{b}} asked for {thing.the}.', a=hero, b=friend)
        n.say("But that night {a} could not sleep.", "But {a} could not eat {ahis} supper, for the lie lay on {ahis} heart like a stone.", a=hero)
        n.say('In the morning {a} went back. "It was not true," {ahe} said. "I broke it myself."', 'At last {a} told the truth. "I broke it, and I was afraid to say so."', a=hero)
    else:
        n.say(f'"I have broken your {thing.noun}," said {{a}} at once. "I am very sorry."', f'{{a!}} held out the pieces. "It was my fault," {hero.he} said.', a=hero, b=friend)
    n.say('{b!} was quiet for a while. "I am glad that you told me," said {b}.', '"It was only a thing," said {b}. "A friend who tells the truth is worth more."', b=friend)
    n.say("They mended it together with glue and string.", f"Then they carried {thing.the} to the carpenter, who made it as good as new.", f"{{a!}} worked for a week and bought another {thing.noun}.", a=hero)
    return finish(t, "honest", hero, friend)


def making_a_gift(t: Telling) -> str:
    """A gift for somebody's birthday is made step by step out of what others give."""
    n, w = t.narrator, t.world
    place = w.new_place()
    hero = w.hero(place)
    friend = w.child(place)
    introduce(t, hero)
    what, parts = t.rng.choice((
        ("a kite", ("two thin sticks", "a sheet of paper", "a ball of string")), ("a cake", ("a bag of flour", "three eggs", "a pot of honey")),
        ("a little boat", ("a piece of wood", "a square of white cloth", "a small nail")), ("a warm coat", ("some wool", "a needle and thread", "six brass buttons")),
        ("a wreath", ("some green branches", "a red ribbon", "a handful of berries")), ("a house for birds", ("four boards", "a hammer", "a pot of green paint")),
    ))
    n.say(f"Tomorrow was the birthday of {hero.his} friend {{b!}}, and {{a}} wished to make {what}.", f'"Tomorrow {{b!}} will have a birthday," said {{a}}. "I will make {what}!"', a=hero, b=friend)
    n.say(f"For that {hero.he} needed {parts[0]}, {parts[1]} and {parts[2]}.", f'"I need {parts[0]}, {parts[1]}, and {parts[2]}," {hero.he} thought.', a=hero)
    for part in parts:
        n.paragraph()
        helper = w.anyone(w.new_place())
        walk(t, hero, helper.place)
        meet(t, hero, helper)
        n.say(f'"Can you spare me {part}?" asked {{a}}. "{t.pick(("Take it", "Certainly", "Yes, if you carry my basket", "Yes, if you sing me a song"))}," said {{b}}.',
              f'"I have {part} to spare," said {{b}}. "{t.pick(("There you are", "I am glad to be rid of it", "Tell your friend that I wish much joy", "Come in and take it"))}."', a=hero, b=helper)
        n.say(f"So {{a}} had {part}.", f"{{A}} put {part} into a bag.", f"{{A}} was glad to have {part}.", a=hero)
    n.paragraph()
    w.go(hero, place)
    n.say(f"All evening {{a}} worked, and in the morning {what} was ready.", f"Then {{a}} sat down and made {what}. It took half the night.", a=hero)
    n.say(f'"For me?" cried {{b}}. "I never had {what} before!"', f"When {{b}} saw {what}, {friend.he} could not speak for joy.", b=friend)
    feel(t, friend, "happy")
    thank(t, friend, hero)
    return finish(t, t.pick(("kind", "patient")), hero, friend)


PLOTS = (lost_and_found, honest_finder, chain_of_swaps, sharing, borrowed, making_a_gift)
