"""Small explanations of how things are, in sentences that can be left out and told in other words."""

import random
from dataclasses import dataclass

from train.stories.facts.subject import Fact
from train.stories.phrases import Phrases


@dataclass(frozen=True)
class Explanation:
    """``is_so`` and ``asked`` are told as "why …" or "how …"; ``reasons`` stand behind "because" or alone, one is chosen;
    ``more`` are sentences that may follow in this order."""

    word: str  # "why" or "how"
    asked: str  # "is the sky blue"
    is_so: str  # "the sky is blue"
    reasons: tuple[str, ...]
    more: tuple[str, ...] = ()

    def fact(self, rng: random.Random) -> Fact:
        words = Phrases(rng)
        reason = words.pick(self.reasons)
        because = "because " if self.word == "why" else ""
        is_so = words(self.is_so)
        clause = f"{is_so} because {reason}" if self.word == "why" else reason
        return Fact(f"{self.word} {words(self.asked)}?", f"{self.word} {is_so}", f"{because}{reason}", clause)

    def told(self, rng: random.Random) -> str:
        """A whole explanation of two to five sentences."""
        words = Phrases(rng)
        fact = self.fact(rng)
        more = [words(part) for part in self.more if rng.random() < 0.75]
        return " ".join([fact.sentence, *more])


def why(asked: str, is_so: str, reasons: tuple[str, ...], *more: str) -> Explanation:
    return Explanation("why", asked, is_so, reasons, more)


def how(asked: str, is_so: str, reasons: tuple[str, ...], *more: str) -> Explanation:
    return Explanation("how", asked, is_so, reasons, more)


EXPLANATIONS = (
    why("is the sky blue", "the sky is blue", ("the air scatters the blue light of the sun more than the other colours", "the air sends the blue part of the sunlight in all directions", "blue light is scattered by the air much more than red light", "the blue light of the sun is spread all over the sky by the air"),
        "[Sunlight|The light of the sun] looks white, but it is made of [all the colours of the rainbow|many colours].", "When it comes through the air, the blue light is thrown about the most, so that we see blue wherever we look.", "In the evening the light has a longer way through the air, and then the sky looks red."),
    why("is the sky red in the evening", "the sky is red in the evening", ("the light of the low sun has a long way through the air, and only the red is left", "the evening sun shines through more air, which takes the blue light away"),
        "At noon the way through the air is short, and the sky is blue.", "The same can be seen in the morning, when the sun comes up."),
    why("do leaves fall in autumn", "the leaves fall in autumn", ("the trees need to save water in the winter", "the tree takes back the good things from its leaves and lets them go before the cold comes", "the tree cannot drink from the frozen ground, and leaves would dry it out"),
        "In autumn the days grow short and cold.", "First the green goes out of the leaves, and they turn yellow, red and brown.", "Then the wind carries them to the ground.", "In spring new leaves come out of the buds."),
    why("do leaves turn yellow", "leaves turn yellow in autumn", ("the green goes out of them, and the yellow that was there all the time can be seen", "the tree takes the green out of its leaves before winter"),
        "The green in a leaf catches the light of the sun.", "When the days grow short, the tree does not need it any more."),
    how("does rain come", "rain comes", ("the sun warms the water of the sea, it rises into the air, becomes a cloud, and falls as rain", "water goes up into the air, cools, makes clouds, and falls down again in drops", "the drops in a cloud join until they are too heavy, and then they fall"),
        "The rain runs into brooks and rivers.", "The rivers carry the water back to the sea.", "So the same water goes round and round."),
    why("does it rain", "it rains", ("the small drops in the clouds join and grow too heavy to stay in the air", "the clouds are full of little drops, and when these grow heavy they fall"),
        "The water in the clouds came from the sea and from the lakes.", "Plants and animals need the rain."),
    why("do we sleep", "we sleep", ("our body and our mind must rest", "the body needs rest to grow and to grow strong again", "we are tired in the evening, and sleep makes us fresh again"),
        "When we sleep, the heart beats more slowly.", "The brain puts in order what we have learned.", "Children need more sleep than grown-ups.", "In the morning we wake up and feel fresh."),
    why("do we dream", "we dream", ("the brain goes on working while we sleep", "our mind plays with the things that we have seen and heard")),
    why("do we eat", "we eat", ("food gives us the strength to move and to grow", "the body needs food as a stove needs wood"), "From food the body makes bones, muscles and blood.", "Bread, fruit, vegetables and milk are good food."),
    why("do we drink", "we drink", ("the body is made mostly of water and loses some of it every day", "without water nobody can live"), "On a hot day we must drink more."),
    why("do we brush our teeth", "we brush our teeth", ("bits of food on the teeth would make holes in them", "clean teeth stay white and strong"), "We brush them in the morning and in the evening."),
    why("do we wash our hands", "we wash our hands", ("dirt on our hands can make us ill", "there may be germs on them, too small to be seen"), "We wash them before we eat.", "Soap and warm water are best."),
    why("do we go to school", "we go to school", ("there we learn to read, to write and to count", "there is so much to learn, and it is more fun to learn it together"), "At school we find friends as well."),
    why("do birds fly south", "birds fly south in autumn", ("there is not enough food for them in winter", "in winter there are no insects here, and in the south it is warm"), "They come back in spring to build their nests.", "The way is long, and they often fly together."),
    how("do birds fly", "birds fly", ("they beat their wings and push the air down", "their wings push the air down, and the air carries them"), "Their bones are hollow and very light.", "Their feathers are light and strong."),
    why("do birds sing", "birds sing", ("they call to each other and tell others where they live", "with their songs they look for a mate and guard their nest"), "In spring they begin before the sun comes up."),
    why("do birds build nests", "birds build nests", ("they need a safe and warm place for their eggs",), "They use grass, moss, little branches and feathers.", "When the eggs are laid, one of the parents keeps them warm."),
    why("do bees go to the flowers", "bees fly to the flowers", ("they find sweet nectar there and make honey of it", "they gather nectar and pollen there"), "They carry pollen from flower to flower, and so the seeds and fruits can grow.", "They store the honey in the hive for the winter."),
    how("do bees make honey", "bees make honey", ("they gather nectar from the flowers, carry it to the hive, and let it dry until it is thick",), "They keep it in little cells of wax.", "In winter they live on it."),
    how("does a caterpillar become a butterfly", "a caterpillar becomes a butterfly", ("it eats and grows, makes itself a hard case, and comes out with wings", "it eats many leaves, sleeps in a case, and leaves it as a butterfly"), "The wings are wet at first and must dry in the sun.", "Then the butterfly lays eggs, and everything begins again."),
    how("does a frog grow", "a frog grows", ("out of the egg comes a tadpole, the tadpole grows legs and loses its tail, and then it is a frog",), "The eggs lie in the water of a pond.", "A tadpole swims like a fish."),
    how("does a plant grow", "a plant grows", ("a seed drinks water, sends a root down and a stem up, and the leaves catch the light of the sun", "it needs earth, water, light and air"), "The roots hold it in the ground.", "When it is big enough, it has flowers, and the flowers make new seeds."),
    why("do plants need light", "plants need light", ("they make their food from light, air and water", "the leaves make sugar with the help of the light"), "A plant in the dark grows thin and pale."),
    why("do plants need water", "plants need water", ("they drink it with their roots and carry it up to the leaves", "without water the leaves hang down and dry"), "In dry weather we must water the garden."),
    why("are leaves green", "leaves are green", ("there is something green in them that catches the light of the sun",), "With its help the plant makes its food."),
    why("do we have day and night", "we have day and night", ("the earth turns round once a day", "the earth turns, and only the side that looks to the sun is light"), "When our side is turned to the sun, it is day.", "When it is turned away, it is night.", "While we sleep, it is day on the other side of the earth."),
    why("do we have summer and winter", "we have summer and winter", ("the earth leans to one side as it goes round the sun", "in one part of the year our half of the earth leans towards the sun, and in the other part away from it"), "In summer the sun stands high and the days are long.", "In winter the sun stands low and the days are short.", "It takes the earth a year to go round the sun."),
    why("does the moon shine", "the moon shines", ("the light of the sun falls on it", "it is lit by the sun, as a wall is lit by a lamp"), "The moon has no light of its own."),
    why("does the moon change its shape", "the moon seems to change its shape", ("we see now more and now less of the side that is lit by the sun",), "When we see all of it, we call it the full moon.", "From one full moon to the next it takes about a month."),
    why("can we not see the stars by day", "we cannot see the stars by day", ("the sky is too bright then", "the light of the sun is so much stronger than theirs"), "They are there all the same."),
    why("do stars look so small", "the stars look so small", ("they are so very far away",), "Many of them are larger than the sun."),
    why("is the sea salt", "the sea is salt", ("the rivers carry a little salt from the stones into the sea, and it stays there",), "The water goes up into the air, but the salt does not."),
    why("are there waves on the sea", "there are waves on the sea", ("the wind pushes the water",), "A strong wind makes high waves."),
    why("does the tide come and go", "the tide comes and goes", ("the moon pulls at the water of the sea", "the moon and the sun pull at the sea"), "In most places the water rises and falls twice a day."),
    why("does ice swim on water", "ice swims on water", ("it is lighter than water",), "So a pond freezes from above, and the fish can live under the ice."),
    why("does ice melt", "ice melts", ("it grows warm and becomes water again",), "It melts in the sun, and in a warm hand as well."),
    why("does wood swim", "wood swims on water", ("it is lighter than the water that it pushes away",), "A stone is heavier than water and sinks."),
    how("does a ship swim", "a ship swims", ("it pushes away as much water as it weighs itself",), "It is hollow and full of air."),
    why("does an apple fall", "an apple falls down", ("the earth pulls all things towards itself", "the earth pulls at it"), "We call this pull gravity."),
    how("does a rainbow come", "a rainbow comes", ("the sun shines on drops of rain, and they part its light into colours", "there must be sun and rain at the same time, and the drops break the light into its colours"), "Its colours are red, orange, yellow, green, blue, indigo and violet.", "To see it, one must stand with the sun at one's back."),
    why("do we see lightning before we hear thunder", "we see the lightning before we hear the thunder", ("light is much faster than sound",), "If one counts slowly to three, the lightning was about a kilometre away."),
    why("is snow white", "snow is white", ("its many little crystals throw back all the light",),),
    how("does wind come", "wind comes", ("warm air rises, and cool air flows in to take its place",), "The sun warms the land more quickly than the sea."),
    why("do cats see well at night", "cats see well at night", ("their eyes open wide and catch the smallest light",)),
    why("do dogs wag their tails", "dogs wag their tails", ("they show in this way what they feel", "they are glad to see us")),
    why("do cows chew so long", "cows chew so long", ("grass is hard to digest, and they chew it twice",), "A cow has a stomach with four parts."),
    why("do squirrels hide nuts", "squirrels hide nuts", ("they need food for the winter",), "Sometimes they forget one, and a tree grows there."),
    why("do bears sleep in winter", "bears sleep in winter", ("there is little to eat then",), "In autumn they eat as much as they can.", "In spring they wake up hungry."),
    why("does a spider make a web", "a spider makes a web", ("it catches flies in it",), "The threads are thin and very strong."),
    why("do we wear warm clothes in winter", "we wear warm clothes in winter", ("they keep the warmth of our body in",), "The air between the threads keeps us warm."),
    why("do we say please and thank you", "we say please and thank you", ("it is polite and makes others glad", "kind words cost nothing and please everybody"),),
    why("should we tell the truth", "we should tell the truth", ("people can trust us then", "nobody believes one who often lies, even when it is true"),),
    why("should we help each other", "we should help each other", ("many things are easier together", "everybody needs help one day"),),
    why("do we read books", "we read books", ("they tell us things that we did not know, and stories that make us laugh and think",),),
    why("do we cook food", "we cook our food", ("it is softer and tastes better, and is safer to eat",),),
    why("does bread rise", "bread rises", ("the yeast makes little bubbles in the dough",), "The bubbles can be seen as holes in the bread."),
    how("is bread made", "bread is made", ("the baker mixes flour, water, salt and yeast, lets the dough rest, and bakes it in a hot oven",), "The flour comes from the mill.", "It was ground there from wheat or rye."),
    how("is butter made", "butter is made", ("one beats the cream until the fat comes together",), "The cream is taken from the milk."),
    how("is cheese made", "cheese is made", ("milk is made to curdle, the water is pressed out, and the cheese is left to ripen",),),
    how("is paper made", "paper is made", ("wood is ground and boiled to a pulp, and the pulp is pressed thin and dried",),),
    how("is glass made", "glass is made", ("sand is melted in a very hot fire and shaped while it is soft",),),
    how("is wool made into a scarf", "wool is made into a scarf", ("the sheep are shorn, the wool is washed and spun into yarn, and the yarn is knitted",),),
    how("does a clock work", "a clock works", ("a spring or a weight turns the wheels, and the wheels turn the hands",), "The short hand shows the hours, and the long hand shows the minutes."),
    how("does a bicycle go", "a bicycle goes", ("the feet turn the pedals, and a chain turns the back wheel",),),
    how("does a kite fly", "a kite flies", ("the wind pushes it up while the string holds it",), "If there is no wind, the kite falls down."),
    how("does an echo come", "an echo comes", ("the sound of the voice runs against a wall or a rock and comes back",),),
    how("do we hear", "we hear", ("a sound shakes the air, and the air shakes a thin skin in the ear",),),
    how("do fish breathe", "fish breathe", ("they take the air out of the water with their gills",),),
    how("do we know how old a tree is", "we know how old a tree is", ("we count the rings in its trunk, one for each year",),),
)
