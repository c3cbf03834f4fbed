"""Lessons and talks in which somebody asks and somebody knows: facts told as little scenes."""

from train.stories.facts import EXPLANATIONS, Fact, any_fact, facts_of_one_kind
from train.stories.phrases import capital
from train.stories.scenes import Telling

ELDERS = ("grandmother", "grandfather", "mother", "father", "aunt", "uncle")

def _asker(t: Telling) -> str:
    return t.phrases("[the teacher|the teacher|the teacher|Miss {surname}|Mr. {surname}|Mrs. {surname}|the old teacher|the young teacher|the schoolmaster]")


def _because(fact: Fact) -> str:
    """The answer as a child gives it in class."""
    return capital(fact.short) if fact.short.startswith("because") else fact.sentence.rstrip(".")


def asked_in_class(t: Telling) -> str:
    """ "The teacher asked the children why the sky is blue, and Anna answered …" """
    p, rng = t.phrases, t.rng
    who = _asker(t)
    e = rng.choice(EXPLANATIONS) if t.maybe(0.55) else None
    fact = (e.fact(rng) if e else any_fact(rng)).in_speech()
    told = e.told(rng) if e else fact.sentence
    p.keep(who=who, asked=fact.indirect, answer=_because(fact), question=fact.question, told=told, fact=fact.sentence, clause=fact.clause)
    first = p.pick((
        '{Who} asked the children {asked}, and {name1} answered, "{answer}."',
        '{Who} asked the children {asked}, and {name1} [put up a hand|raised a hand|knew it]. "{answer}," said {name1}.',
        '{Who} asked the class {asked}. [Nobody knew at first.|All were silent.|The children thought about it.|] Then {name1} said, "{answer}."',
        '{Who} asked {name1} {asked}. "{answer}," said {name1}.',
        '"{question}" asked {who}. "{answer}," [answered|said|replied] {name1}.',
        '[One morning|One day|On {day}|In the {subject} lesson|At school] {who} asked, "{question}" [{name1} knew it at once.|{name1} stood up.|] "{answer}," said {name1}.',
        '{Who} asked the children {asked}, and nobody knew. So {who} told them. "{told}"',
        '{Who} asked the children {asked}, and told them to think [well|hard|about it]. After a while {name1} said, "{answer}."',
        'The children asked {who} {asked}, and {who} [smiled|was glad that they asked|drew a picture on the blackboard] and said, "{told}"',
        '{Who} asked the children {asked}, and they all [called out|answered|cried] together, "{answer}!"',
        '{Who} asked the children {asked}, and each of them had another answer. "{answer}," said {name1}, and that was right.',
        'In the {subject} lesson the children learned {asked}. "{told}" said {who}.',
    ))
    after = p.pick((
        "", '"[Very good|Good|Right|That is right|Quite right|Well done], {name1}," said {who}.', '"[That is right|Very good|Just so]," said {who}, and wrote it on the blackboard.',
        "{Who} [nodded|smiled|was pleased].", '"[How do you know that?|Who told you that?]" asked {who}. "[My {relative} told me|I read it in a book|I saw it myself]," said {name1}.',
        "[All the children|The others] wrote it [down|into their books].", "{name1} told it at home that evening, and everyone was pleased.",
    )) if "{name1}" not in first and p.given.get("name1") else p.pick(("", "All the children wrote it down.", "Nobody forgot it."))
    if e and t.maybe(0.4) and told not in first:
        after += p(' [Then {who} explained it.|And {who} said more about it.|"Listen well," said {who}.] "{told}"')
    return f"{first} {after}".strip()


def lesson(t: Telling) -> str:
    """A whole lesson about one subject: several children are asked in turn."""
    p, rng = t.phrases, t.rng
    facts = [fact.in_speech() for fact in facts_of_one_kind(rng, rng.randint(3, 5))]
    p.keep(who=_asker(t))
    start = p("[It was {day} morning, and the children sat in their places.|The bell rang, and the lesson began.|Outside it was {weather}, but in the schoolroom it was warm.|The children of the {town} school were in the middle of a lesson.|All the children were quiet, for {who} had come in.|Today {who} had many questions.] ")
    start += p('["Today I shall ask you some questions," said {who}.|"Let us see what you know," said {who}.|"Who remembers what we learned?" asked {who}.|{Who} opened a thick book.|]')
    parts = [start.strip()]
    for n, fact in enumerate(facts, 1):
        child = p(f"{{name{n}}}")
        said = fact.sentence.rstrip(".") if t.maybe(0.75) else capital(fact.short)
        p.keep(child=child, q=fact.question, a=said, indirect=fact.indirect)
        parts.append(p.pick((
            '"{q}" asked {who}. "{a}," said {child}.', '"{q}" "{a}," answered {child}.', '"{child}, can you tell us {indirect}?" "{a}," said {child}[ {adverb}|].',
            'Then {who} asked {indirect}. {child} [knew it|put up a hand|stood up]. "{a}."', '"And who knows {indirect}?" "I do!" cried {child}. "{a}."', '"Next question," said {who}. "{q}" {child} thought a little. "{a}."',
        )))
    parts.append(p("[\"You have learned well,\" said {who}.|Then the bell rang, and the children ran out to play.|\"Now you may go and play,\" said {who}.|\"I am proud of you all,\" said {who}.|And with that the lesson was over.|The children liked this game, and wanted to go on.|\"Tomorrow we shall learn more,\" said {who}.]"))
    gap = "\n\n" if t.maybe(0.5) else " "
    return gap.join(parts)


def child_asks(t: Telling) -> str:
    """A child asks someone at home, and hears an explanation."""
    p, rng = t.phrases, t.rng
    e = rng.choice(EXPLANATIONS) if t.maybe(0.7) else None
    fact = (e.fact(rng) if e else any_fact(rng)).in_speech()
    she = t.maybe(0.5)
    p.keep(child=p("{girl}" if she else "{boy}"), his="her" if she else "his", he="she" if she else "he", elder=rng.choice(ELDERS), q=fact.question, indirect=fact.indirect,
           told=e.told(rng) if e else fact.sentence)
    scene = p("[One evening|One day|On the way home|At breakfast|On a {weather} day|In the garden|Before bedtime|On a walk|As they were sitting by the fire|While they were washing the cups]")
    p.keep(scene=scene)
    return p.pick((
        '{scene}, {child} asked {his} {elder}, "{q}" "{told}" said {his} {elder}. [{child} thought about it for a long time.|{child} was glad to know it.|"Now I know it," said {child}.|"I shall tell it to {name3}," said {child}.|]',
        '"{Elder}, {ask}" asked {child}. "[That is a good question|I will tell you|Listen|Let me think]," said {his} {elder}. "{told}"',
        '{child} wanted to know {indirect}. So {he} went to {his} {elder} and asked. "{told}" said {his} {elder}. ["Thank you," said {child}.|{child} understood it at once.|]',
        '{child} could not sleep, for {he} wondered {indirect}. "{q}" {he} asked {his} {elder} the next morning. "{told}" [That was the answer.|And so {child} learned it.|]',
        '"Do you know {indirect}?" asked {child}. "Yes," said {his} {elder}. "{told}" "[How strange|How clever|I never knew that|That is wonderful]," said {child}.',
        '{child}: {q}\n{Elder}: {told}\n{child}: [Thank you. Now I know it.|That is interesting!|I did not know that.|How do you know all that?\n{Elder}: I read it in a book.]',
    ), ask=fact.ask).replace('." said', '," said')


def school_play(t: Telling) -> str:
    """A lesson written as a play."""
    p, rng = t.phrases, t.rng
    facts = facts_of_one_kind(rng, rng.randint(2, 5)) if t.maybe(0.6) else [any_fact(rng) for _ in range(rng.randint(2, 5))]
    teacher = p("[Teacher|Teacher|Teacher|Miss {surname}|Mr. {surname}|Mrs. {surname}]")
    lines = [f"{teacher}: {p('Good morning, children.')}", p("Children: Good morning[, {x}|]!", x=teacher if teacher != "Teacher" else "teacher")] if t.maybe(0.5) else []
    for fact in facts:
        child = p(f"{{name{rng.randint(1, 4)}}}")
        lines.append(f"{teacher}: {rng.choice((fact.question, fact.question, f'Now, {fact.ask}', f'{child}, {fact.ask}'))}")
        lines.append(f"{child}: {fact.sentence if t.maybe(0.75) else capital(fact.short) + '.'}")
        if t.maybe(0.35):
            lines.append(f"{teacher}: {p('[Very good|That is right|Well done|Good|Right][|, {c}].', c=child)}")
    if t.maybe(0.4):
        lines.append(f"{teacher}: {p('[That is all for today.|You may go out and play.|You have done well.|Tomorrow we shall go on.]')}")
    return "\n".join(lines)


def i_learned(t: Telling) -> str:
    """A child tells what was learned at school."""
    p = t.phrases
    facts = [fact.in_speech() for fact in (*facts_of_one_kind(t.rng, t.rng.randint(2, 3)), any_fact(t.rng))]
    clauses = [fact.clause for fact in facts]
    return p.pick((
        "[Today|This week|Yesterday] we learned [many things|something new|a great deal] at school. I know now that {a}. I also know that {b}. [My friend {name1}|{name1}] asked {asked}, and the answer was: {short}.",
        "My name is {name1}. At school I like {subject} best. I have learned that {a}, and that {b}. [Yesterday|Today] our teacher told us that {c}.",
        '"What did you learn today?" asked the {relative} of {name1}. "I learned that {a}," said {name1}, "and that {b}." "[And what else|Is that all]?" "And that {c}."',
        "{name1} and {name2} [played school|sat on the wall|walked home together]. \"Did you know that {a}?\" asked {name1}. \"Yes,\" said {name2}, \"and do you know that {b}?\" \"Of course,\" said {name1}. [Then they laughed.|Then they ran home.|]",
    ), a=clauses[0], b=clauses[1], c=clauses[2] if len(clauses) > 2 else clauses[0], asked=facts[-1].indirect, short=facts[-1].short)


KINDS = ((asked_in_class, 16), (lesson, 6), (child_asks, 8), (school_play, 5), (i_learned, 4))
