"""What people type on a demo page: a wish, such as "Write a letter to the king.", and what fulfils it."""

from train.stories import plots_deeds, plots_things
from train.stories.kinds import fables, letters, lists, questions, talk, told, verses
from train.stories.scenes import Kind, Telling

PLOTS = plots_things.PLOTS + plots_deeds.PLOTS


def tale(t: Telling) -> str:
    return t.rng.choice(PLOTS)(t)


WISHES: tuple[tuple[str, Kind], ...] = (
    ("[Write|Tell me|Please tell me|Make up] a [short |little |]story.", tale), ("[Tell me a story|Tell me a fairy tale|Tell us a tale|A bedtime story, please].", tale), ("[Write|Tell] a story for children.", tale), ("[Write|Tell me|Please write] a fable[ with a moral|].", fables.fable), ("[Tell me a joke.|Make me laugh.|Do you know a joke?]", fables.joke),
    ("[Write|Please write|Write me] a [short |little |]poem.", verses.poem), ("[Write|Tell me] a rhyme.", verses.nursery), ("[Write a letter to your family.|Write a letter to a friend.|Write a letter home.|Write a letter.]", letters.family), ("Write a thank-you [note|letter].", letters.thanks), ("Write an invitation[ to a party|].", letters.invitation),
    ("Write a letter to the [king|queen].", letters.to_the_king), ("[Write|Send me] a postcard.", letters.postcard), ("Write a letter to say that you are sorry.", letters.sorry), ("Write a letter to a shop.", letters.to_a_shop), ("Write a letter to a teacher.", letters.to_a_teacher),
    ("[Write a list.|Make a list.]", lists.a_list), ("[Give me a recipe.|Write down a recipe.]", lists.recipe), ("[Describe something.|Write a description.]", told.description), ("Write a page of a diary.", told.diary), ("[Write|Invent] a [short |]piece of news.", told.news), ("[Tell me about yourself.|Who are you?]", told.about_me),
    ("[Write|Make up] a [short |]dialogue.", talk.play), ("Write a [short |]play.", talk.play), ("[Write a talk between two people.|Write what two friends say to each other.]", talk.dialogue), ("[Tell|Give|Ask] me a riddle.", questions.riddle), ("[Explain something to me.|Tell me something that I do not know.|Teach me something.]", questions.explained), ("[Ask me some questions.|Make a quiz.]", questions.questions_and_answers),
)


def wish(t: Telling) -> str:
    """The wish, an empty line, and what was wished for."""
    asked, kind = t.rng.choice(WISHES)
    return f"{t.phrases(asked)}\n\n{kind(t)}"


KINDS = ((wish, 8),)
