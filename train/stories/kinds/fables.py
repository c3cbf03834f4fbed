"""Short fables with a moral, and jokes that a class can bear."""

from train.stories.scenes import Telling

# each a few sentences with choices; the last is the moral
FABLES: tuple[tuple[str, ...], ...] = (
    ("A(n) {animal1} found [a heap of nuts|a big cheese|a basket of {fruit}] and wanted to [carry it all home at once|keep all of it].", "A(n) {animal2} [came by and asked for a little|said, \"Take half of it today, and half tomorrow\"].", "But the {animal1} would not [hear of it|listen].", "On the bridge the {animal1} [stumbled|slipped], and everything fell into the river.", "Who wants too much [loses all|goes home with nothing]."),
    ("A(n) {animal1} [laughed at|made fun of] a(n) {animal2} because the {animal2} was so [slow|small|quiet].", "[One day|Soon after], the {animal1} was [caught in a net|stuck in the mud|lost in the fog].", "Nobody came but the {animal2}, who [worked all night until the {animal1} was free|knew the way out|called for help until it came].", "\"I shall never laugh at you again,\" said the {animal1}.", "[Nobody is too small to help.|Do not laugh at others: you may need them.]"),
    ("[Two|A pair of] {animal1} brothers [quarrelled about|could not agree about] [a piece of cake|a loaf of bread].", "They asked a(n) {animal2} to divide it.", "The {animal2} cut it into two pieces, but one was larger, so the {animal2} bit off a little; then the other was larger, and so it went on.", "In the end there was nothing left.", "Those who quarrel feed a third."),
    ("A(n) {animal1} worked all summer and [filled a cellar with food|gathered food for the winter].", "A(n) {animal2} [sang and danced|lay in the sun] and laughed at so much work.", "When the snow came, the {animal2} was hungry and knocked at the door.", "\"Come in,\" said the {animal1}, \"there is enough for two; but next summer we shall work together.\"", "[Who wants to eat in winter must work in summer.|It is good to think of tomorrow.]"),
    ("A(n) {animal1} looked into a [well|pond] and saw another {animal1} there.", "\"What an angry face that one makes!\" said the {animal1}, and showed its teeth.", "The one in the water showed its teeth, too.", "A(n) {animal2} laughed and said, \"Smile, and you will see what happens.\"", "[The world looks at us as we look at it.|Who smiles is smiled at.]"),
    ("A(n) {animal1} wanted to be as [big|beautiful|strong] as a(n) {animal2}.", "So the {animal1} [ate and ate|painted its coat|carried heavy stones], until it [was ill|could hardly walk|had to lie down].", "\"Why do you want to be like me?\" asked the {animal2}. \"I have often wished that I could [sing|run|jump|swim] like you.\"", "Be what you are, and be it well."),
    ("A boy who kept the sheep [cried \"Wolf!\"|called for help] [for fun|because he was bored], and all the village came running.", "There was no wolf, and he laughed at them.", "[The next day he did the same again.|Twice he did so.]", "At last a wolf really came, and he cried as loud as he could, but nobody believed him.", "[Who lies is not believed, even when the truth is told.|A liar is not believed when he tells the truth.]"),
    ("The wind and the sun [had a quarrel|argued] about which of them was the stronger.", "\"Whoever makes that traveller take off his coat is the stronger,\" said the sun.", "The wind blew as hard as it could, but the traveller only held his coat more tightly.", "Then the sun shone warm and friendly, and soon he took off his coat.", "[Kindness does more than force.|Gentle ways are often the strongest.]"),
    ("A thirsty crow found a jug with a little water at the bottom.", "It could not reach the water with its beak.", "So it dropped one small stone after another into the jug, until the water rose.", "Then it could drink.", "[Think, and you will find a way.|Little by little does the work.]"),
    ("A hare laughed at a tortoise because it was so slow.", "\"Let us run a race,\" said the tortoise.", "The hare was soon far ahead, lay down under a tree and fell asleep.", "The tortoise went on, step by step, and came to the goal first.", "Slow and steady wins the race."),
    ("A fox saw ripe grapes that hung high on a wall.", "It jumped again and again, but could not reach them.", "\"They are sour anyway,\" said the fox, and went away.", "It is easy to speak ill of what one cannot have."),
    ("A lion let a little mouse go free.", "The mouse said, \"One day I will help you,\" and the lion laughed.", "Not long after, the lion was caught in a net, and the mouse bit through the ropes.", "Little friends may be great friends."),
    ("A dog with a bone in its mouth came to a bridge and saw another dog in the water.", "\"I will have that bone, too,\" it thought, and opened its mouth.", "The bone fell into the river, for it had only seen its own picture.", "Who wants everything may lose what he has."),
    ("An old {job} had three [sons|daughters] who were always quarrelling.", "[He|The old man] gave them a bundle of sticks and asked them to break it, but none could.", "Then he gave them the sticks one by one, and each broke easily.", "\"So it is with you,\" he said. \"Together you are strong.\"", "Together we are strong."),
    ("A(n) {animal1} and a(n) {animal2} [shared a field|lived in the same {tree}].", "\"This side is mine,\" said one. \"No, it is mine,\" said the other.", "[A storm came|One night it snowed], and each was cold alone.", "So they crept together and were warm, and in the morning neither knew whose side was whose.", "[It is better to share than to quarrel.|There is room enough for friends.]"),
    ("A(n) {animal1} planted {fruit}, and every day dug them up to see whether they were growing.", "Nothing grew.", "\"Leave them alone,\" said a(n) {animal2}. \"They need time and rain, and not your looking.\"", "The next year the {animal1} waited, and had a full basket.", "[Good things need time.|Patience is rewarded.]"),
    ("A(n) {animal1} told everyone a secret of a(n) {animal2}.", "\"I am sorry,\" said the {animal1} afterwards. \"I will take it back.\"", "\"Then shake out this bag of feathers in the wind, and gather them up again,\" said the {animal2}.", "But nobody could do that.", "Words that are out cannot be called back."),
    ("A(n) {job} [found|picked up] a purse with {number} gold coins on the road.", "Nobody had seen it, but the {job} carried it to [the owner|the mayor].", "[\"Half of it is yours,\" said the owner.|The owner was so glad that they became friends.]", "[Honesty brings its own reward.|Who is honest sleeps well.]"),
)

JOKES = (
    ('"{Name1}, why are you late?" asked the teacher. "There is a sign in the street," said {name1}. "It says: School. Go slowly!"'), ('"What are you drawing, {name1}?" "A cow that eats grass." "I see no grass." "The cow has eaten it." "And where is the cow?" "Gone, for there was no more grass."'),
    ('"Can you keep a secret?" asked {name1}. "Yes," said {name2}. "So can I," said {name1}.'), ('"How far can you go into the wood?" asked {name1}. "As far as the middle," said {name2}. "After that you are going out again."'),
    ('"Why do you put your clock under the bed?" asked {name1}. "Because I want to sleep over the time," said {name2}.'), ('"{Name1}, name five animals of the farm," said the teacher. "A cow," said {name1}, "and four hens."'),
    ('"Which month has twenty-eight days?" asked the teacher. "All of them," said {name1}.'), ('"I have written you a letter," said {name1}, who was four years old. "But you cannot write." "That does not matter. You cannot read it anyway, because it is so dark in the drawer."'),
    ('"Mother, {name2} broke the window!" "How did that happen?" "I threw a ball, and {name2} jumped aside."'), ('"What goes ha, ha, bump?" asked {name1}. "I do not know," said {name2}. "Somebody who laughs so much that he falls off his chair!"'),
    ('"Did you water the garden?" asked Father. "But it is raining," said {name1}. "Then take the umbrella," said Father.'), ('"Waiter, there is a fly in my soup," said Mr. {surname}. "Do not worry, sir," said the waiter. "It will not eat much."'),
)


def fable(t: Telling) -> str:
    p = t.phrases
    *story, moral = t.rng.choice(FABLES)
    told = " ".join(p(part) for part in story)
    last = p(moral)
    title = f"The {p.given['animal1'].title()} and the {p.given['animal2'].title()}\n\n" if "animal2" in p.given and t.maybe(0.4) else p("[A fable\n\n|]") if t.maybe(0.2) else ""
    return title + told + t.rng.choice((f" {last}", f"\n\n{last}", f"\n\nMoral: {last}", f"\n\nThe moral of the story: {last}", f"\n\nThe moral: {last}"))


def joke(t: Telling) -> str:
    p = t.phrases
    head = p("[A joke\n\n|Tell me a joke.\n\n|]") if t.maybe(0.4) else ""
    return head + p(t.rng.choice(JOKES))


KINDS = ((fable, 7), (joke, 2))
