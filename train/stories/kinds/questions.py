"""Questions with answers in several layouts, yes-or-no questions, quizzes and riddles."""

import random

from train.stories.facts import DOUBTED, EXPLANATIONS, Fact, any_fact, any_subject, facts_of_one_kind
from train.stories.phrases import capital, joined
from train.stories.scenes import Telling

LAYOUTS = (  # of a question q with its answer a and their number n
    "Q: {q}\nA: {a}", "Q: {q}\nA: {a}", "Q: {q} A: {a}", "Question: {q}\nAnswer: {a}", "Question: {q} Answer: {a}", "{q} {a}", "{q} {a}",
    "{q}\n{a}", "{n}. {q}\n{a}", "{n}. {q} {a}", "- {q}\n- {a}", '"{q}" "{a}"', "Question {n}: {q}\nAnswer {n}: {a}",
)


def answer(rng: random.Random, fact: Fact) -> str:
    """Mostly the whole sentence, sometimes the bare answer, sometimes both."""
    chance = rng.random()
    if chance < 0.7 or fact.short[0].isdigit():
        return fact.sentence
    short = f"{capital(fact.short)}."
    return short if chance < 0.85 else f"{short} {fact.sentence}"


def questions_and_answers(t: Telling) -> str:
    """Questions about everything, or about one subject, one below the other."""
    count = t.rng.choice((1, 2, 3, 3, 4, 5, 6, 8))
    facts = facts_of_one_kind(t.rng, count) if t.maybe(0.4) else [any_fact(t.rng) for _ in range(count)]
    layout = t.rng.choice(LAYOUTS)
    gap = "\n\n" if t.maybe(0.6) else "\n"
    text = gap.join(layout.format(n=n, q=fact.question, a=answer(t.rng, fact)) for n, fact in enumerate(facts, 1))
    if t.maybe(0.15):
        text = t.phrases("[Questions and answers|A little quiz|Questions for clever children|Do you know?|Ask and answer|What we learned this week]\n\n") + text
    return text


def plain_answer(t: Telling) -> str:
    """One question and its answer, with a second sentence sometimes."""
    if t.maybe(0.3):
        why = t.rng.choice(EXPLANATIONS)
        return f"{why.fact(t.rng).question} {why.told(t.rng)}"
    subject = any_subject(t.rng)
    row = subject.row(t.rng)
    facts = [subject.fact(t.rng, row) for _ in range(2)]
    text = f"{facts[0].question} {answer(t.rng, facts[0])}"
    if t.maybe(0.25):
        other = subject.fact(t.rng)
        text += f" {other.question} {other.sentence}" if t.maybe(0.5) else f" {other.sentence}"
    return text


def yes_or_no(t: Telling) -> str:
    """Questions with yes or no, and the truth after it."""
    layout = t.rng.choice(LAYOUTS)
    parts = []
    for n in range(1, t.rng.choice((1, 2, 3, 4, 5)) + 1):
        question, yes, truth = t.rng.choice(DOUBTED).doubt(t.rng)
        reply = t.phrases("[Yes. |Yes, that is right. |Yes, it is so. |Yes. ]" if yes else "[No. |No, that is not right. |No, it is not so. |No. ]")
        parts.append(layout.format(n=n, q=question, a=reply + truth))
    return ("\n\n" if t.maybe(0.5) else "\n").join(parts)


def true_or_false(t: Telling) -> str:
    """Sentences about which somebody says whether they are true."""
    parts = []
    for n in range(1, t.rng.choice((2, 3, 4, 5)) + 1):
        question, yes, truth = t.rng.choice(DOUBTED).doubt(t.rng)
        parts.append(f"{n}. {question} {'True' if yes else 'False'}. {truth}")
    return t.phrases("[True or false?|Right or wrong?|Is it true?|True or false: a game]") + "\n\n" + "\n".join(parts)


def facts_in_a_row(t: Telling) -> str:
    """What there is to know about one subject, as a paragraph."""
    facts = facts_of_one_kind(t.rng, t.rng.randint(2, 6))
    lead = t.phrases("[|||Here is something to remember. |This is what we know. |Listen. |Did you know it? |These things are true. |Some things are good to know. |We learned this at school. ]")
    return lead + " ".join(fact.sentence for fact in facts)


def explained(t: Telling) -> str:
    """An explanation, with a heading or a question before it, or alone."""
    e = t.rng.choice(EXPLANATIONS)
    fact = e.fact(t.rng)
    told = e.told(t.rng)
    lead = t.rng.choice((
        f"{fact.question}\n\n", f"{fact.question} ", f"{capital(fact.indirect)}\n\n", "", f"Do you know {fact.indirect}? ",
        f"Many children ask {fact.indirect}. ", f"Explain {fact.indirect}.\n\n", f"Q: {fact.question}\nA: ", f"Have you ever wondered {fact.indirect}? ",
        f"This is {fact.indirect}: " if e.word == "how" else f"People have often asked {fact.indirect}. ",
    ))
    return lead + told


RIDDLES = (
    ("I have hands but cannot hold anything, and a face but no eyes", "a clock"), ("I have teeth but cannot bite", "a comb"), ("I have a neck but no head", "a bottle"),
    ("The more you take away from me, the bigger I become", "a hole"), ("I am full of holes, and yet I hold water", "a sponge"), ("I have one eye but cannot see", "a needle"),
    ("I go up when the rain comes down", "an umbrella"), ("I have many leaves but I am no tree", "a book"), ("I follow you all day in the sun and am gone at night", "your shadow"),
    ("I answer when you call, but I have no mouth", "an echo"), ("I have four legs but I cannot walk", "a table"), ("I run all day and never leave my bed", "a river"),
    ("I am white when I fall and become water in your hand", "snow"), ("I carry my house on my back", "a snail"), ("I wake you in the morning, and I am no clock", "the cock"),
    ("I build my house without hands, and I sing in front of it", "a bird"), ("I grow smaller the longer I live and give you light", "a candle"), ("I am round as a ball and shine at night", "the moon"),
    ("I am yellow, and I make the day warm", "the sun"), ("I have ears but I cannot hear, and I stand in a field", "wheat"), ("I have keys but no doors", "a piano"), ("I have a trunk, but I am no tree", "an elephant"),
    ("I have a trunk, but I am no elephant", "a tree"), ("I can fly without wings and push the ships", "the wind"), ("I am red and sweet, and I grow near the ground", "a strawberry"),
    ("I have no legs, yet I climb up the wall", "ivy"), ("I hang in the tower and speak when I am struck", "a bell"), ("I am always before you, but you can never reach me", "tomorrow"),
    ("I have a bed but never sleep, and a mouth but never eat", "a river"), ("I am brown, and from me grows an oak", "an acorn"), ("I have eight legs and I spin", "a spider"), ("I give you milk and I say moo", "a cow"),
    ("I was a caterpillar, and now I fly", "a butterfly"), ("I have stripes and make honey", "a bee"), ("I am hard outside, and a chick may come out of me", "an egg"), ("I have towns and rivers and woods, but nobody lives in me", "a map"),
    ("You can break me without touching me", "a promise"), ("I am yours, but others use me more than you", "your name"), ("I get wet while I dry you", "a towel"), ("I have two wheels and you sit on me", "a bicycle"),
)


def riddle(t: Telling) -> str:
    """Riddles with their answers, asked by somebody or set down one after another."""
    p = t.phrases
    question, solution = t.rng.choice(RIDDLES)
    form = t.rng.randrange(5)
    if form == 0:
        return p("{q}. What am I?\n\n[Answer: |I am |The answer is |You are right, I am ]{s}.", q=question, s=solution)
    if form == 1:
        return p('"I know a riddle," said {name1}. "{q}. What am I?"\n\n[{name2} thought for a while.|{name2} did not know.|{name2} smiled.] "[Are you|Is it] {s}?"\n\n"[Right|Yes|That is it|Quite right]," [said|cried|laughed] {name1}.', q=question, s=solution)
    if form == 2:
        wrong = t.rng.choice(RIDDLES)[1]
        while wrong == solution:
            wrong = t.rng.choice(RIDDLES)[1]
        return p('{name1}: {q}. What am I?\n{name2}: [Let me think.|Hm.|Wait.] Are you {w}?\n{name1}: No[, try again|, think again|, that is not it|].\n{name2}: Then you are {s}!\n{name1}: [Yes|Right|That is right|Yes, you have found it][!|.]', q=question, s=solution, w=wrong)
    if form == 3:
        chosen = t.rng.sample(RIDDLES, t.rng.randint(2, 5))
        return p("[Riddles|Some riddles|Riddles for a rainy day|Guess what I am]\n\n") + "\n\n".join(f"{n}. {q}. What am I?\n{capital(s)}." for n, (q, s) in enumerate(chosen, 1))
    return p("[Riddle|A riddle|Here is a riddle]: {q}. [What am I?|Who am I?|What is it that speaks?]\n[Answer|Solution]: {s}.", q=question, s=solution)


def choice_quiz(t: Telling) -> str:
    """Three answers to choose from, and which one is right."""
    subject = any_subject(t.rng)
    last = subject.columns.split()[-1]
    row = subject.row(t.rng)
    wrong = sorted({other[last] for other in subject.rows} - {row[last]})
    right = next((ask for ask in subject.asks if ask.short == f"{{{last}}}"), None)
    if len(wrong) < 2 or not subject.check or right is None:
        return choice_quiz(t)
    options = [row[last], *t.rng.sample(wrong, 2)]
    t.rng.shuffle(options)
    letter = "abc"[options.index(row[last])]
    question = capital(t.phrases(right.question, **row))
    if t.maybe(0.4):
        return f"{question} {capital(joined(options, 'or'))}? {capital(subject.fact(t.rng, row).sentence)}"
    listed = "\n".join(f"{'abc'[n]}) {option}" for n, option in enumerate(options))
    return f"{question}\n{listed}\n{t.phrases('[The right answer is|Answer:|Right is]')} {letter}) {row[last]}. {subject.fact(t.rng, row).sentence}"


KINDS = (
    (questions_and_answers, 10), (plain_answer, 5), (yes_or_no, 3), (true_or_false, 1), (facts_in_a_row, 5), (explained, 7), (riddle, 4), (choice_quiz, 3),
)  # fmt: skip
