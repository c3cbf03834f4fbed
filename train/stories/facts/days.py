"""Numbers in words, and the names of the days and months in their order."""

from train.stories.slots import split

NUMBERS = split("zero; one; two; three; four; five; six; seven; eight; nine; ten; eleven; twelve; thirteen; fourteen; fifteen; sixteen; seventeen; eighteen; nineteen; twenty")
TENS = ("", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
ORDINALS = split("first; second; third; fourth; fifth; sixth; seventh; eighth; ninth; tenth; eleventh; twelfth")
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
MONTHS = ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December")


def spelled(number: int) -> str:
    """42 → "forty-two", up to a hundred."""
    if number <= 20:
        return NUMBERS[number]
    if number == 100:
        return "a hundred"
    tens, ones = divmod(number, 10)
    return TENS[tens] + (f"-{NUMBERS[ones]}" if ones else "")
