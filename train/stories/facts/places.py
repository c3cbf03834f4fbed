"""True facts about countries, cities, seas and books."""

from train.stories.facts.subject import Ask, Subject

CAPITALS = Subject(
    "capitals", "country capital",
    """France=Paris; Germany=Berlin; Italy=Rome; Spain=Madrid; Portugal=Lisbon; England=London; Scotland=Edinburgh; Ireland=Dublin; Wales=Cardiff
    Austria=Vienna; Switzerland=Bern; Belgium=Brussels; Denmark=Copenhagen; Sweden=Stockholm; Norway=Oslo; Finland=Helsinki; Poland=Warsaw; Hungary=Budapest
    Greece=Athens; Turkey=Ankara; Russia=Moscow; Egypt=Cairo; Kenya=Nairobi; Japan=Tokyo; China=Beijing; India=New Delhi; Canada=Ottawa; Mexico=Mexico City
    Brazil=Brasilia; Argentina=Buenos Aires; Chile=Santiago; Peru=Lima; Cuba=Havana; Australia=Canberra; New Zealand=Wellington; Iceland=Reykjavik
    the Netherlands=Amsterdam; Romania=Bucharest; Bulgaria=Sofia; Ukraine=Kyiv; Morocco=Rabat; Ghana=Accra; Ethiopia=Addis Ababa; Thailand=Bangkok
    Vietnam=Hanoi; South Korea=Seoul; the Philippines=Manila; the United States=Washington; Croatia=Zagreb; Jamaica=Kingston
    France=Paris; Germany=Berlin; Italy=Rome; Spain=Madrid; England=London; France=Paris; Germany=Berlin; Italy=Rome; Spain=Madrid; England=London""",
    (
        Ask("what is the capital of {country}?", "what the capital of {country} is", "{capital}"),
        Ask("what is the capital of {country}?", "what the capital of {country} is", "{capital}"),
        Ask("[which|what] city is the capital of {country}?", "which city is the capital of {country}", "{capital}"),
        Ask("{country}: what is the capital?", "what the capital of {country} is called", "{capital}"),
        Ask("what is the name of the capital [city |]of {country}?", "what the capital city of {country} is called", "{capital}"),
        Ask("[of which country is {capital} the capital|{capital} is the capital of which country]?", "of which country {capital} is the capital", "{country}"),
    ),
    ("the capital of {country} is {capital}", "the capital of {country} is {capital}", "the capital of {country} is {capital}", "{capital} is the capital of {country}", "{capital} is the capital city of {country}", "the capital city of {country} is {capital}",
     "the capital of {country} is called {capital}"),
    "is {capital} the capital of {country}?",
)

CONTINENTS = Subject(
    "continents", "country continent",
    """France=Europe; Germany=Europe; Italy=Europe; Spain=Europe; England=Europe; Sweden=Europe; Norway=Europe; Poland=Europe; Greece=Europe; Austria=Europe; Portugal=Europe
    Japan=Asia; China=Asia; India=Asia; Thailand=Asia; Vietnam=Asia; Korea=Asia; Nepal=Asia; Mongolia=Asia
    Kenya=Africa; Ghana=Africa; Morocco=Africa; Ethiopia=Africa; Nigeria=Africa; Tanzania=Africa
    Canada=North America; Mexico=North America; the United States=North America; Cuba=North America
    Brazil=South America; Argentina=South America; Chile=South America; Peru=South America; Ecuador=South America""",
    (
        Ask("on which continent is {country}?", "on which continent {country} is", "{continent}"),
        Ask("[in which part of the world|where] is {country}?", "where {country} is", "in {continent}"),
        Ask("what continent is {country} in?", "what continent {country} is in", "{continent}"),
    ),
    ("{country} is in {continent}", "{country} is a country in {continent}", "{country} lies in {continent}", "one of the countries of {continent} is {country}"),
    "is {country} in {continent}?",
)

RIVERS = Subject(
    "rivers", "city river",
    "Paris=Seine; London=Thames; Rome=Tiber; Vienna=Danube; Budapest=Danube; Cairo=Nile; Cologne=Rhine; Dublin=Liffey; Prague=Vltava; Warsaw=Vistula; Lisbon=Tagus; Florence=Arno; Berlin=Spree; Lyon=Rhone; Hamburg=Elbe; Dresden=Elbe",
    (
        Ask("which river [flows|runs] through {city}?", "which river flows through {city}", "the {river}"),
        Ask("on which river does {city} [stand|lie]?", "on which river {city} stands", "the {river}"),
        Ask("what is the name of the river in {city}?", "what the river in {city} is called", "the {river}"),
    ),
    ("{city} [is|stands|lies] on the {river}", "the {river} flows through {city}", "the river [in|of] {city} is the {river}"),
)

LANGUAGES = Subject(
    "languages", "country language",
    "France=French; Germany=German; Italy=Italian; Spain=Spanish; Portugal=Portuguese; England=English; Sweden=Swedish; Norway=Norwegian; Denmark=Danish; Poland=Polish; Greece=Greek; Russia=Russian; Japan=Japanese; China=Chinese; Mexico=Spanish; Brazil=Portuguese; Austria=German; Hungary=Hungarian; Turkey=Turkish; Argentina=Spanish; Australia=English; Egypt=Arabic; Finland=Finnish; the Netherlands=Dutch",
    (
        Ask("what language do people speak in {country}?", "what language people speak in {country}", "{language}"),
        Ask("which language is spoken in {country}?", "which language is spoken in {country}", "{language}"),
        Ask("what do they speak in {country}?", "what they speak in {country}", "{language}"),
    ),
    ("[the |]people in {country} speak {language}", "in {country} people speak {language}", "{language} is spoken in {country}", "the language of {country} is {language}"),
)

RECORDS = Subject(
    "records", "what which",
    """the largest ocean=the Pacific; the largest continent=Asia; the smallest continent=Australia; the largest country=Russia; the highest mountain=Mount Everest; the highest mountain in the Alps=Mont Blanc
    the largest animal=the blue whale; the tallest animal=the giraffe; the fastest animal on land=the cheetah; the largest bird=the ostrich; the largest animal on land=the elephant; the smallest bird=the hummingbird
    the largest planet=Jupiter; the smallest planet=Mercury; the planet nearest to the sun=Mercury; the hottest planet=Venus; the nearest star=the sun; the largest hot desert=the Sahara; the largest island=Greenland; the coldest continent=Antarctica
    the longest river in Africa=the Nile; the longest river in South America=the Amazon; the longest river in Europe=the Volga; the shortest month=February; the smallest country=Vatican City; the largest rain forest=the Amazon forest""",
    (
        Ask("what is {what}?", "what {what} is", "{which}"),
        Ask("which is {what}?", "which is {what}", "{which}"),
        Ask("do you know {what}?", "which is {what}", "{which}"),
    ),
    ("{what} is {which}", "{which} is {what}"),
)

SEAS = Subject(
    "oceans", "here there ocean",
    "Europe=America=Atlantic; Africa=South America=Atlantic; Asia=North America=Pacific; Africa=Australia=Indian; England=Canada=Atlantic; Japan=Mexico=Pacific; Africa=India=Indian; Portugal=Brazil=Atlantic",
    (
        Ask("which ocean lies between {here} and {there}?", "which ocean lies between {here} and {there}", "the {ocean} Ocean"),
        Ask("what is the name of the ocean between {here} and {there}?", "what the ocean between {here} and {there} is called", "the {ocean} Ocean"),
    ),
    ("the {ocean} Ocean lies between {here} and {there}", "between {here} and {there} lies the {ocean} Ocean", "a ship from {here} to {there} [crosses|sails across] the {ocean} Ocean"),
    "does the {ocean} Ocean lie between {here} and {there}?",
)

AUTHORS = Subject(
    "authors", "book author",
    """Alice in Wonderland=Lewis Carroll; Treasure Island=Robert Louis Stevenson; Peter Pan=J. M. Barrie; The Jungle Book=Rudyard Kipling; Pinocchio=Carlo Collodi; Heidi=Johanna Spyri
    A Christmas Carol=Charles Dickens; Oliver Twist=Charles Dickens; The Wizard of Oz=L. Frank Baum; Little Women=Louisa May Alcott; Black Beauty=Anna Sewell; The Ugly Duckling=Hans Christian Andersen
    Around the World in Eighty Days=Jules Verne; Anne of Green Gables=L. M. Montgomery; Robinson Crusoe=Daniel Defoe; Gulliver's Travels=Jonathan Swift; Romeo and Juliet=William Shakespeare; Hamlet=William Shakespeare
    The Secret Garden=Frances Hodgson Burnett; The Wind in the Willows=Kenneth Grahame; The Railway Children=Edith Nesbit; Peter Rabbit=Beatrix Potter; The Time Machine=H. G. Wells; Pride and Prejudice=Jane Austen""",
    (
        Ask("who wrote {book}?", "who wrote {book}", "{author}"),
        Ask("who is the author of {book}?", "who the author of {book} is", "{author}"),
        Ask("{book} is a [famous |well-known |]book. Who wrote it?", "who wrote the book {book}", "{author}"),
    ),
    ("{author} wrote {book}", "{book} was written by {author}", "the author of {book} is {author}"),
    "did {author} write {book}?",
)

DIRECTIONS = Subject(
    "directions", "first second",
    "north=south; south=north; east=west; west=east; left=right; right=left; up=down; down=up",
    (Ask("what is the opposite of {first}?", "what the opposite of {first} is", "{second}"), Ask("which direction is opposite to {first}?", "which direction is opposite to {first}", "{second}")),
    ("the opposite of {first} is {second}", "{second} is the opposite of {first}"),
)

SUBJECTS = (CAPITALS, CONTINENTS, RIVERS, LANGUAGES, RECORDS, SEAS, AUTHORS, DIRECTIONS)
