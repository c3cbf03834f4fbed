"""Plots in which knowing something helps: questions at a bridge, a school of animals, riddles, letters. Each returns the text."""

from train.stories import words
from train.stories.facts import EXPLANATIONS, Fact, any_fact, any_subject
from train.stories.kinds.letters import family, invitation, sorry, thanks
from train.stories.kinds.questions import RIDDLES
from train.stories.phrases import capital
from train.stories.scenes import Telling, feel, finish, home_again, introduce, meet, near, part, thank, walk, want
from train.stories.world import Character, with_article

# what ``words.MORALS`` has for these plots
WISDOM = ("Who asks, learns.", "What one has learned is never too heavy to carry.", "A good question is half the answer.", "Nobody knows everything, but everybody knows something.", "It is good to know a thing, and better to share it.", "He who does not know may always ask.")


def wise_ending(t: Telling, hero: Character, friend: Character | None = None) -> str:
    n = t.narrator
    part(t, hero, friend, "From that day {a} and {b} were good friends.", "After that {a} often went to see {b}.", "{a!} and {b} often talked of that day.")
    if t.maybe(0.6) or not n.paragraphs[-1]:
        n.say(t.pick(WISDOM))
    return n.text()


def quote(text: str) -> str:
    """A sentence as it stands in a speech before "said"."""
    return text[:-1] if text.endswith(".") else text


def spoken_fact(t: Telling) -> Fact:
    """A fact without figures and signs, which nobody can read aloud."""
    while True:
        fact = any_fact(t.rng).in_speech()
        if fact.question[0].isalpha() and "=" not in fact.sentence:
            return fact


def questions_at_the_bridge(t: Telling) -> str:
    """Whoever wishes to cross must answer three questions."""
    n, w = t.narrator, t.world
    start, goal = w.new_place(), w.new_place()
    hero = w.hero(start, t.pick(("clever", "patient", "brave", "cheerful")))
    introduce(t, hero)
    n.say(f"{{A}} had to go to {goal} that day.", f"{{A}} wished to see {goal}.", f'"Today I will go to {goal}," said {{a}}.', a=hero)
    keeper = w.grown_up(start)
    barrier = t.pick(("bridge", "gate", "narrow path", "ferry"))
    n.say(f"But at the {barrier} sat {{b}}, and would let nobody pass.", f"On the way there was a {barrier}, and in front of it stood {{b}}.", b=keeper)
    n.say('"You may pass when you have answered three questions," said {b}.', '"Three questions I ask of everyone," said {b}. "Who answers them may go on."', b=keeper)
    n.paragraph()
    for count, first in enumerate(("first", "second", "third")):
        fact = spoken_fact(t)
        n.say(f'"{fact.question}" asked {{b}}.', f'The {first} question was: "{fact.question}"', f'"This is the {first} one," said {{b}}. "{fact.question}"', b=keeper)
        n.say(f'"{quote(fact.sentence)}," said {{a}}.', f'{{A}} thought for a while. "{quote(fact.sentence)}," {hero.he} said.', f'"That I know," said {{a}}. "{fact.sentence}"', a=hero)
        if count < 2 and t.maybe(0.4):
            n.say('"Right," said {b}.', '"That is true," said {b}.', "{b!} nodded.", b=keeper)
    n.paragraph()
    n.say('"You have answered well," said {b}, and let {a} pass.', f'"All three are right," said {{b}}. "The {barrier} is open to you."', '"Who taught you all that?" asked {b}. "I asked, and people told me," said {a}.', a=hero, b=keeper)
    walk(t, hero, goal)
    return wise_ending(t, hero, keeper)


def school_of_animals(t: Telling) -> str:
    """An old animal keeps school, and one pupil does not know the answer until it helps to think."""
    n, w = t.narrator, t.world
    place = w.new_place()
    teacher, first, second = w.animal(place, "wise"), w.animal(place), w.animal(place, t.pick(("hasty", "lazy", "thoughtful")))
    n.say(f"{near(place)} an old {teacher.kind} kept a school for the animals.", f"Once upon a time there was a school for animals, and the teacher was an old {teacher.kind}.", f"Every morning the animals went to school {near(place)}. Their teacher was {with_article(teacher.kind)}.")
    n.say(f"It was a fine morning, and {t.pick(words.WEATHER)}.", "All the animals sat in a ring and were quiet.", "There were benches of moss, and a flat stone to write on.")
    n.paragraph()
    facts = [fact.in_speech() for fact in any_subject(t.rng).facts(t.rng, 3)]
    n.say(f'"{facts[0].question}" asked {{b}}.', f'{{b!}} asked the animals {facts[0].indirect}.', b=teacher)
    n.say(f'"{quote(facts[0].sentence)}," said {{a}} at once.', f'{{a!}} knew it. "{facts[0].sentence}"', a=first)
    n.say(f'"And {facts[1].ask}" asked {{b}}.', f'"{facts[1].question}" asked {{b}} then.', b=teacher)
    n.say("{a!} did not know it.", "{a!} looked out at the clouds and had not listened.", '"I have forgotten it," said {a}.', a=second)
    feel(t, second, "ashamed")
    n.say('"Do not be sad," said {b}. "Think, and take your time."', '"Nobody knows everything," said {b} kindly. "Try it."', f'{{C}} wanted to whisper the answer, but {{b}} shook {teacher.his} head.', b=teacher, c=first)
    n.paragraph()
    n.say(f'{{a!}} thought and thought. "{quote(facts[1].sentence)}," {second.he} said at last.', f'Then {{a}} remembered it. "{facts[1].sentence}"', a=second)
    n.say('"You see," said {b}, "you knew it after all."', '"Very good!" cried {b}, and all the animals clapped.', b=teacher)
    if len(facts) > 2 and t.maybe(0.6):
        n.say(f'And the next question was for all. "{facts[2].question}" "{facts[2].sentence}" All of them knew it.')
    return wise_ending(t, second, first)


def three_who_are_asked(t: Telling) -> str:
    """A child wants to know why; two cannot say, and the third can."""
    n, w = t.narrator, t.world
    place = w.new_place()
    hero = w.child(place, t.pick(("clever", "thoughtful", "cheerful")))
    introduce(t, hero)
    e = t.rng.choice(EXPLANATIONS)
    fact = e.fact(t.rng).in_speech()
    n.say(f"One thing {{a}} wanted to know above all: {fact.indirect}.", f"{{A}} lay in the grass and wondered {fact.indirect}.", f'"{fact.question}" {{a}} asked, but nobody was there to answer.', a=hero)
    for number in range(2):
        w_place = w.new_place()
        walk(t, hero, w_place)
        other = w.animal(w_place) if number else w.anyone(w_place)
        meet(t, hero, other)
        n.say(f'"Can you tell me {fact.indirect}?" asked {{a}}.', f'"{fact.question}" asked {{a}}.', f'"I should like to know {fact.indirect}," said {{a}}.', a=hero)
        n.say('"I have never thought about it," said {b}.', '"That I do not know," said {b}. "Ask somebody else."', '"It has always been so," said {b}. "More I cannot tell you."', f'"I only know about {other.skill}," said {{b}}.' if other.kind in [kind for kind, *_ in words.ANIMALS] else '"Who can know such things?" said {b}.', b=other)
        n.paragraph()
    place3 = w.new_place()
    walk(t, hero, place3)
    wise = w.grown_up(place3, "wise")
    n.say("There {a} found {b}, and asked once more.", f'"{fact.question}" {{a}} asked {{b}}, who had read many books.', a=hero, b=wise)
    n.say(f'"{quote(e.told(t.rng))}," said {{b}}.', f'{{B}} smiled. "{e.told(t.rng)}"', b=wise)
    thank(t, hero, wise)
    return wise_ending(t, hero, wise)


def riddle_contest(t: Telling) -> str:
    """Two ask each other riddles for a prize."""
    n, w = t.narrator, t.world
    place = w.new_place()
    hero, other = w.hero(place), w.animal(place, t.pick(("boastful", "clever", "proud")))
    introduce(t, hero)
    prize = w.thing(other)
    n.say(f'"Nobody can guess my riddles," said {{b}}. "Whoever does shall have my {prize.noun}."', f'{{b!}} had {prize.a}. "I will give it to whoever can answer my riddles," said {{b}}.', b=other)
    n.paragraph()
    asked = t.rng.sample(RIDDLES, 2)
    for question, solution in asked:
        n.say(f'"{question}," said {{b}}. "What am I?"', f'"Listen: {question[0].lower() + question[1:] if not question.startswith("I ") else question}. What am I?" asked {{b}}.', b=other)
        n.say(f'"It is {solution}," said {{a}}.', f'{{A}} laughed. "That is easy. It is {solution}!"', f'{{A}} thought for a long time. "{capital(solution)}!" {hero.he} said.', a=hero)
    n.paragraph()
    feel(t, other, t.pick(("angry", "sad", "ashamed")))
    w.give(prize, other, hero)
    n.say(f"But a promise is a promise, and {{b}} gave {{a}} {prize.the}.", f'"You have won," said {{b}}, and {{a}} got {prize.the}.', a=hero, b=other)
    n.say('"Will you teach me to guess?" asked {b}. "Gladly," said {a}.', '"Now ask me one," said {b}, and they went on until the evening.', f'"We can share {prize.the}," said {{a}}.', a=hero, b=other)
    return finish(t, t.pick(("proud", "share")), hero, other)


def a_letter_comes(t: Telling) -> str:
    """Somebody finds or gets a letter, and the letter is read out."""
    n, w = t.narrator, t.world
    place = w.new_place()
    hero = w.child(place)
    introduce(t, hero)
    n.say("The postman brought a letter for {a}.", "When {a} opened the door, a letter lay on the step.", f"{{A}} saw a white letter {t.pick(words.HIDING[place])}.", "That morning a letter came, and nobody had expected it.", a=hero)
    n.say("{A} opened it and read:", "{A} read it aloud:", "This is what it said:", "In it was written:", a=hero)
    letter = t.rng.choice((family, thanks, invitation, sorry))(t)
    body = f"Dear {hero.name},{letter[letter.index('Dear ') :].partition(',')[2]}"
    before = n.text()
    n.paragraphs = [[]]
    n.paragraph()
    feel(t, hero, "happy")
    n.say("{A} read it twice, and put it under the pillow.", "{A} took a pen and wrote an answer at once.", "{A} ran to show it to everyone.", '"I must answer it today," said {a}.', a=hero)
    if t.maybe(0.5):
        home_again(t, hero)
    return f"{before}\n\n{body}\n\n{n.text()}"


def learned_by_doing(t: Telling) -> str:
    """A lost thing comes back through something that was learned."""
    n, w = t.narrator, t.world
    place = w.new_place()
    hero = w.child(place)
    introduce(t, hero)
    thing = w.thing(hero)
    want(t, hero, thing)
    w.lose(thing, hero, place)
    finder = w.grown_up(place)
    n.say(f"One day {thing.the} was gone.", f"But one morning {{a}} could not find {thing.the}.", a=hero)
    feel(t, hero, "sad")
    w.find(thing, finder)
    n.say(f"{{B!}} had found it {t.pick(words.HIDING[place])}.".replace("{B!}", capital(finder.name)), f"At last {{a}} heard that {finder.name} had found it.", a=hero)
    fact, second = spoken_fact(t), spoken_fact(t)
    n.paragraph()
    n.say(f'"You shall have it back," said {{b}}, "but first tell me: {fact.ask}"', f'"Is this yours?" asked {{b}}. "Then you will be able to tell me {fact.indirect}."', b=finder)
    n.say(f'"{quote(fact.sentence)}," said {{a}}.', f'"We learned that at school," said {{a}}. "{fact.sentence}"', f'{{A}} did not know it, but ran home, asked, and came back. "{fact.sentence}"', a=hero)
    if t.maybe(0.5):
        n.say(f'"And {second.ask}" "{second.sentence}"')
    w.give(thing, finder, hero)
    n.say(f'{{b!}} laughed and gave {{a}} {thing.the}.', f'"Good," said {{b}}. "Here is {thing.the}."', a=hero, b=finder)
    thank(t, hero, finder)
    return wise_ending(t, hero, finder)


PLOTS = (questions_at_the_bridge, school_of_animals, three_who_are_asked, riddle_contest, a_letter_comes, learned_by_doing)
