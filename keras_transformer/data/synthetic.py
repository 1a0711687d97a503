"""The embedded corpus: English sentences about dates, times, money and numbers, with their German.

A sentence is a template whose slots are filled. A slot has an English and a German side, strings
that carry their other forms as attributes: German `{what}` is "ein roter Hut", `{what.acc}` is
"einen roten Hut". The German is a function of the English, so a model can reach an exact match.
Word-by-word substitution cannot: German counts units before tens ("einundzwanzig"), declines by
gender and case, and sends its verbs to the end of the clause.
"""

import random
import re
import zlib
from datetime import datetime, timedelta
from functools import cache

from babel.dates import format_date, format_time
from babel.numbers import format_currency, get_currency_name
from num2words import num2words

from keras_transformer.checks import check_choice, check_positive_int, check_seed

SPLITS = ("valid", "test") + ("train",) * 18  # chosen by a checksum of the English


def _templates(text):
    return [tuple(line.split(" | ")) for line in text.replace("|\n", "| ").splitlines()]


def _table(text):
    rows = [row.split() for row in text.split(",")]
    return [["" if cell == "-" else cell.replace("_", " ") for cell in row] for row in rows]


# English | German. A slot with a 2 at the end of its name gets another word of the same kind.
SENTENCES = _templates("""{who} calls {who2} {when}. | {who} ruft {who2.acc} {when} an.
{who} {verb.third} {what} {when}. | {who} {verb} {when} {what.acc}{verb.prefix}.
{when}, {who} {verb.past} {what}. | {when} hat {who} {what.acc} {verb.done}.
{who} will {verb} {what} {when}. | {who} wird {when} {what.acc} {verb.infinitive}.
{who} wants to {verb} {item} {when}. | {who} will {item.acc} {when} {verb.infinitive}.
Does {who} {verb} {what} {when}? | {verb} {who} {when} {what.acc}{verb.prefix}?
{who} forgot to {verb} {what}. | {who} hat vergessen, {what.acc} {verb.zu}.
{who} knows that {who2} {verb.third} {what} {when}. |
{who} weiß, dass {who2} {when} {what.acc} {verb.final}.
Although {who} {verb.past} {what}, {who2} only has {money}. |
Obwohl {who} {what.acc} {verb.done} hat, hat {who2} nur {money.acc}.
{item} that {who} {verb.past} costs {price}. |
{item}, {item.that} {who} {verb.done} hat, kostet {price}.
{who} visited {city} in {year}. | {who} hat {city} im Jahr {year} besucht.
{who} has to pay {price} by the {date}. | {who} muss bis zum {date.dat} {price} bezahlen.
{who} waited for {who2} for {time}. | {who} hat {time.acc} auf {who2.acc} gewartet.
{who} gave {who2} {what} {when}. | {who} hat {who2.dat} {when} {what.acc} geschenkt.
{who} came to {event} with {what}. | {who} ist mit {what.dat} {event.to} gekommen.
{event} takes place {when} in {city}. | {event} findet {when} in {city} statt.
{event} starts at {clock}, not at {clock2}. | {event} fängt um {clock} an, nicht um {clock2}.
In {city}, {many} people attended {event}. | In {city} haben {many} Menschen {event.acc} besucht.
The train to {city} leaves {when}. | Der Zug nach {city} fährt {when} ab.
Today is {day}, the {date}. | Heute ist {day}, der {date}.
{who} has lived on the {rank} floor for {time}. | {who} wohnt seit {time.dat} im {rank}n Stock.
{who} was born on the {date} {year}. | {who} wurde am {date.dat} {year} geboren.""")
WHEN = _templates("""on {day} | am {day}
at {clock} | um {clock}
on {day} at {clock} | am {day} um {clock}
on the {date} at {clock} | am {date.dat} um {clock}
on {full_date} | am {full_date}
on {day} at {digital} | am {day} um {digital} Uhr""")
CLOCK = _templates("""{hour} o'clock | {hour.full} Uhr
{minutes} past {hour} | {minutes} nach {hour}
twenty-five past {hour} | fünf vor halb {hour.next}
half past {hour} | halb {hour.next}
twenty-five to {hour} | fünf nach halb {hour}
{minutes} to {hour} | {minutes} vor {hour}""")
# English base, third person, past; German finite form, prefix, stem infinitive, participle.
VERBS = _table("""buy buys bought kauft - kaufen gekauft, sell sells sold verkauft - verkaufen
verkauft, order orders ordered bestellt - bestellen bestellt, hide hides hid versteckt - verstecken
versteckt, clean cleans cleaned putzt - putzen geputzt, count counts counted zählt - zählen gezählt,
give_back gives_back gave_back gibt zurück geben zurückgegeben, pick_up picks_up picked_up holt ab
holen abgeholt, throw_away throws_away threw_away wirft weg werfen weggeworfen""")
# English, gender, German; their plurals.
THINGS = _table("""book n Buch books Bücher, lamp f Lampe lamps Lampen, chair m Stuhl chairs Stühle,
table m Tisch tables Tische, bag f Tasche bags Taschen, coat m Mantel coats Mäntel,
hat m Hut hats Hüte, picture n Bild pictures Bilder, bicycle n Fahrrad bicycles Fahrräder,
cup f Tasse cups Tassen, plate m Teller plates Teller, knife n Messer knives Messer""")
UNITS = _table("day m Tag days Tage, week f Woche weeks Wochen, year n Jahr years Jahre")
EVENTS = _table("concert n Konzert, meeting f Sitzung, lecture m Vortrag, wedding f Hochzeit")
KIN = _table("""mother f Mutter, father m Vater, sister f Schwester, brother m Bruder, aunt f Tante,
uncle m Onkel, daughter f Tochter, son m Sohn, grandmother f Großmutter, grandfather m Großvater""")
NAMES = "Anna Clara Emma Ida Julia Laura Nina Ben David Felix Jonas Karl Leo Paul Simon".split()
ADJECTIVES = _table("red rot, green grün, black schwarz, old alt, small klein, heavy schwer, - -")
PLAIN = ADJECTIVES[-1]
CITIES = _table("""Vienna Wien, Munich München, Cologne Köln, Zurich Zürich, Geneva Genf, Rome Rom,
Prague Prag, Warsaw Warschau, Brussels Brüssel, Lisbon Lissabon, Berlin Berlin, Bremen Bremen""")
# Case, "der", then the endings of "ein" and of an adjective after "der" and after "ein".
DECLENSION = {
    "m": _table("nom der - e er, acc den en en en, dat dem em en en"),
    "f": _table("nom die e e e, acc die e e e, dat der er en en"),
    "n": _table("nom das - e es, acc das - e es, dat dem em en en"),
    "plural": _table("nom die - en e, acc die - en e, dat den - en en"),
}


class Word(str):
    """A string with its other forms as attributes."""

    def __new__(cls, text, **forms):
        word = super().__new__(cls, text)
        word.__dict__.update(forms)
        return word


def _join(*words):
    return " ".join(word for word in words if word)


@cache
def _words(number, to="cardinal"):
    return tuple(num2words(number, lang=lang, to=to).replace(",", "") for lang in ("en", "de"))


def _babel(name, *args):
    """Returns what Babel writes in English and in German, with plain spaces."""
    return tuple(_join(*name(*args, locale=locale).split()) for locale in ("en_GB", "de"))


def _decline(determiner, gender, noun, adjective=""):
    """Declines a German noun; `determiner` is "der", a number, or a stem such as "ein"."""
    forms = {}
    for case, der, ein, after_der, after_ein in DECLENSION[gender]:
        article, ending = (der, after_der) if determiner == "der" else (determiner + ein, after_ein)
        if (gender, case) == ("plural", "dat") and noun[-1] not in "ns":
            noun += "n"
        forms[case] = _join(article, adjective and adjective + ending, noun)
    return Word(forms["nom"], **forms)


def _definite(adjective, english, gender, noun, *plurals):
    german = _decline("der", gender, noun, adjective[1])
    german.that = german.acc[:3]
    german.to = "zu" + german.dat[2:]  # "dem Konzert" becomes "zum Konzert".
    return _join("the", adjective[0], english), german


def _counted(number, adjective, english, gender, noun, plural, german_plural):
    if number == 1:
        return _join("one", adjective[0], english), _decline("ein", gender, noun, adjective[1])
    count, zahl = _words(number)
    german = _decline(zahl, "plural", german_plural, adjective[1])
    return _join(count, adjective[0], plural), german


def _verb(base, third, past, finite, prefix, stem, done):
    zu = f"{prefix}zu{stem}" if prefix else f"zu {stem}"
    forms = {"infinitive": prefix + stem, "final": prefix + finite, "done": done, "zu": zu}
    return Word(base, third=third, past=past), Word(finite, prefix=f" {prefix}".rstrip(), **forms)


def _hour(hour):
    (english, german), (_, following) = _words(hour), _words(hour % 12 + 1)
    return english, Word(german, full="ein" if hour == 1 else german, next=following)


def _date(day):
    (english, german), (month, monat) = _words(day.day, "ordinal"), _babel(format_date, day, "MMMM")
    return f"{english} of {month}", Word(f"{german} {monat}", dat=f"{german}n {monat}")


def _number(rng):
    """Draws a number, mostly small; none like 101, since its German varies before a noun."""
    number = rng.randint(*rng.choice(((1, 3), (2, 12), (13, 99), (100, 999))))
    return number + 1 if number > 100 and number % 100 == 1 else number


def _money(rng):
    code = rng.choice(("EUR", "USD", "CHF"))
    (dollar, german), (dollars, plural) = (_babel(get_currency_name, code, n) for n in (1, 2))
    return _counted(_number(rng), PLAIN, dollar, "m", german, dollars, plural)


MOMENTS = [datetime(2023, 1, 1) + timedelta(days=i, minutes=5 * i) for i in range(1461)]
# What fills a slot: one of a list, or the result of a function of the random generator.
SLOTS = {
    "who": [(name, Word(name, acc=name, dat=name)) for name in NAMES]
    + [
        (f"{my} {kin}", _decline(mein, gender, noun))
        for kin, gender, noun in KIN
        for my, mein in (("my", "mein"), ("our", "unser"))
    ],
    "verb": [_verb(*row) for row in VERBS],
    "what": lambda rng: _counted(_number(rng), rng.choice(ADJECTIVES), *rng.choice(THINGS)),
    "item": [_definite(adjective, *row) for row in THINGS for adjective in ADJECTIVES],
    "event": [_definite(PLAIN, *row) for row in EVENTS],
    "city": CITIES,
    "money": _money,
    "price": lambda rng: _babel(format_currency, rng.randint(100, 199_999) / 100, "EUR"),
    "many": [_words(number) for number in range(20, 10_000, 10)],
    "rank": [_words(number, "ordinal") for number in range(1, 31)],
    "year": [_words(number, "year") for number in range(1850, 2025)],
    "time": [_counted(number, PLAIN, *unit) for unit in UNITS for number in range(1, 100)],
    "hour": [_hour(number) for number in range(1, 13)],
    "minutes": [_words(5), _words(10), _words(20), ("quarter", "Viertel")],
    "clock": lambda rng: _fill(rng, CLOCK),
    "when": lambda rng: _fill(rng, WHEN),
    "digital": [_babel(format_time, moment, "short") for moment in MOMENTS],
    "day": [_babel(format_date, moment, "EEEE") for moment in MOMENTS[:7]],
    "date": [_date(moment) for moment in MOMENTS],
    "full_date": [_babel(format_date, moment, "long") for moment in MOMENTS],
}


def _fill(rng, templates):
    """Draws a template and its slots; returns the English and the German."""
    (english, german), drawn = rng.choice(templates), {}
    for name in re.findall(r"{(\w+)", english):
        slot = SLOTS[name.removesuffix("2")]
        while name not in drawn or (name[-1] == "2" and drawn[name] == drawn[name[:-1]]):
            drawn[name] = slot(rng) if callable(slot) else rng.choice(slot)
    words = [{name: pair[side] for name, pair in drawn.items()} for side in (0, 1)]
    return english.format(**words[0]), german.format(**words[1])


def synthetic_pairs(
    num_pairs: int, *, split: str = "train", seed: int = 0
) -> list[tuple[str, str]]:
    """Generates distinct (English, German) sentence pairs, without a file or a network.

    A sentence belongs to the same split whatever the seed. If you ask for more pairs, the list
    begins with the same ones.

    Args:
        num_pairs: how many pairs to generate.
        split: "train", "valid" or "test". "valid" and "test" hold one sentence in 20 each.
        seed: the seed of the draw.

    Returns:
        A list of `(english, german)`, the same on every machine.

    Raises:
        ValueError: if an argument is out of range.

    Example:
        >>> len(synthetic_pairs(3, split="test"))
        3
    """
    check_positive_int("num_pairs", num_pairs)
    check_seed(seed)
    check_choice("split", split, ("train", "valid", "test"))
    rng, pairs = random.Random(seed), {}
    while len(pairs) < num_pairs:
        english, german = (text[0].upper() + text[1:] for text in _fill(rng, SENTENCES))
        if SPLITS[zlib.crc32(english.encode()) % len(SPLITS)] == split:
            pairs[english] = german
    return list(pairs.items())
