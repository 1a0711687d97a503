import hashlib
import os
import re
import subprocess
import sys
import unicodedata
from collections import Counter, defaultdict

import pytest

from keras_transformer.data import synthetic
from keras_transformer.data.synthetic import synthetic_pairs


@pytest.fixture(scope="module")
def sample():
    return synthetic_pairs(50_000)


def test_a_pair_is_english_and_german():
    english, german = zip(*synthetic_pairs(100), strict=True)
    assert any(" the " in text for text in english)
    assert any("ü" in text for text in german)


@pytest.mark.slow
def test_pairs_are_distinct(sample):
    assert len({english for english, _ in sample}) == len(sample) == 50_000


@pytest.mark.parametrize("split", ["train", "valid", "test"])
def test_fewer_pairs_are_a_prefix_of_more(split):
    assert synthetic_pairs(100, split=split)[:50] == synthetic_pairs(50, split=split)


def test_seeds_differ():
    first, second = (set(synthetic_pairs(500, seed=seed)) for seed in (0, 1))
    assert len(first & second) < 50


@pytest.mark.slow
def test_splits_are_disjoint_for_all_seeds():
    splits = [
        {
            english
            for seed in (0, 1, 2)
            for english, _ in synthetic_pairs(300, split=split, seed=seed)
        }
        for split in ("train", "valid", "test")
    ]
    assert len(set.union(*splits)) == sum(map(len, splits))


def test_a_fresh_process_draws_the_same_without_tensorflow():
    code = (
        "import hashlib, sys; from keras_transformer.data.synthetic import synthetic_pairs; "
        "print(hashlib.sha256(repr(synthetic_pairs(300, split='valid', seed=7)).encode())"
        ".hexdigest(), 'tensorflow' in sys.modules or 'keras' in sys.modules)"
    )
    here = hashlib.sha256(repr(synthetic_pairs(300, split="valid", seed=7)).encode()).hexdigest()
    environment = {**os.environ, "PYTHONHASHSEED": "12", "PYTHONPATH": os.pathsep.join(sys.path)}
    output = subprocess.check_output([sys.executable, "-c", code], env=environment, text=True)
    assert output.split() == [here, "False"]


@pytest.mark.slow
def test_each_english_sentence_has_one_german_one(sample):
    german_of = defaultdict(set)
    others = [synthetic_pairs(20_000, seed=seed) for seed in (1, 2)]
    for english, german in [*sample, *others[0], *others[1]]:
        german_of[english].add(german)
    assert max(map(len, german_of.values())) == 1
    assert len(german_of) < 90_000  # Some sentences were drawn twice, so this has tested something.


def test_different_english_is_almost_never_the_same_german(sample):
    assert len({german for _, german in sample}) > 0.99 * len(sample)


def test_sentences_are_clean(sample):
    for text in (text for pair in sample for text in pair):
        assert unicodedata.is_normalized("NFC", text)
        assert text == " ".join(text.split(" ")).strip() and "  " not in text
        assert not re.search(r"[{}<>_|\xa0\u202f]| [.,?]|None", text), text
        assert text[0].isupper() and text[-1] in ".?", text


def test_lengths_suit_a_small_model(sample):
    lengths = [len(text.split()) for pair in sample for text in pair]
    assert min(lengths) >= 4 and max(lengths) <= 25
    assert 8 < sum(lengths) / len(lengths) < 14


# Every sentence that holds the English holds the German.
PHRASES = [
    ("twenty-one", "einundzwanzig"),
    ("nine hundred and ninety-nine", "neunhundertneunundneunzig"),
    ("two hundred and seven ", "zweihundertsieben"),
    ("four thousand three hundred and twenty", "viertausenddreihundertzwanzig"),
    ("in nineteen eighty-seven", "im Jahr neunzehnhundertsiebenundachtzig"),
    ("nineteen oh-five", "neunzehnhundertfünf"),
    ("two thousand and eight", "zweitausendacht"),
    ("on the third of May", "am dritten Mai"),
    ("by the first of March", "bis zum ersten März"),
    ("Monday, the seventh of", "Montag, der siebte"),
    ("on the twenty-first floor", "im einundzwanzigsten Stock"),
    ("on 3 October", "am 3. Oktober"),
    ("half past three", "halb vier"),
    ("half past twelve", "halb eins"),
    ("quarter to one", "Viertel vor eins"),
    ("at one o'clock", "um ein Uhr"),
    ("twenty-five past nine", "fünf vor halb zehn"),
    ("twenty-five to nine", "fünf nach halb neun"),
    ("only has one euro.", "nur einen Euro."),
    ("only has two euros.", "nur zwei Euro."),
    ("only has twelve Swiss francs.", "nur zwölf Schweizer Franken."),
    ("one small coat on", "einen kleinen Mantel"),
    ("with one small lamp", "mit einer kleinen Lampe"),
    ("with two old books", "mit zwei alten Büchern"),
    ("gave my brother", "meinem Bruder"),
    ("came to the meeting", "zur Sitzung gekommen"),
    ("came to the concert", "zum Konzert gekommen"),
    ("floor for one year", "seit einem Jahr"),
    ("for three weeks.", " drei Wochen"),
    ("forgot to give back", "zurückzugeben"),
    ("The red hat that", "Der rote Hut, den"),
]


@pytest.mark.parametrize(("english", "german"), PHRASES)
def test_phrase(english, german, sample):
    translations = [target for source, target in sample if english in source]
    assert translations, f"{english} never occurs"
    assert [target for target in translations if german not in target] == []


# A sentence that matches the English has the German word order; names stand for themselves.
WORD_ORDERS = [
    (r"(\w+) calls .*", r"\1 ruft .* an\."),
    (r"(\w+) picks up .*", r"\1 holt .* ab\."),
    (r"Does (\w+) give back .*", r"Gibt \1 .* zurück\?"),
    (r"(\w+) will throw away .*", r"\1 wird .* wegwerfen\."),
    (r"(\w+) wants to buy the .*", r"\1 will (der|die|das|den) .* kaufen\."),
    (r"(\w+) knows that (\w+) picks up .*", r"\1 weiß, dass \2 .* abholt\."),
    (r"(\w+) forgot to throw away .*", r"\1 hat vergessen, .* wegzuwerfen\."),
    (r"(\w+) forgot to clean .*", r"\1 hat vergessen, .* zu putzen\."),
    (r"Although (\w+) bought .*", r"Obwohl \1 .* gekauft hat, hat .*\."),
    (r"The book that (\w+) sold costs .*", r"Das Buch, das \1 verkauft hat, kostet .*"),
    (r"On \w+day, (\w+) hid .*", r"Am [^ ]+ hat \1 .* versteckt\."),
    (r"The train to \w+ leaves at .*", r"Der Zug nach [^ ]+ fährt um .* ab\."),
    (r"In \w+, .* people attended .*", r"In [^ ]+ haben .* Menschen .* besucht\."),
    (r"(\w+) was born on the .*", r"\1 wurde am .* geboren\."),
]


@pytest.mark.parametrize(("english", "german"), WORD_ORDERS)
def test_word_order(english, german, sample):
    matches = [(match, pair[1]) for pair in sample if (match := re.fullmatch(english, pair[0]))]
    assert matches, f"{english} never occurs"
    assert [text for match, text in matches if not re.fullmatch(match.expand(german), text)] == []


def test_prices_are_written_as_each_language_does(sample):
    prices = [
        (re.search(r"€([\d,]+\.\d\d)", english), re.search(r"([\d.]+,\d\d) €", german))
        for english, german in sample
        if "€" in english
    ]
    assert len(prices) > 1000 and all(english and german for english, german in prices)
    swap = str.maketrans(",.", ".,")
    assert all(english[1].translate(swap) == german[1] for english, german in prices)


def test_one_word_has_many_translations(sample):
    translations = {
        german.split()[0]
        for english, german in sample
        if english.startswith(("The ", "My ", "Our "))
    }
    assert {"Der", "Die", "Das", "Mein", "Meine", "Unser", "Unsere"} <= translations


def test_word_by_word_substitution_fails(sample):
    counts = defaultdict(Counter)
    for english, german in sample[:40_000]:
        for word, translation in zip(english.split(), german.split(), strict=False):
            counts[word][translation] += 1
    best = {word: counter.most_common(1)[0][0] for word, counter in counts.items()}
    exact = sum(
        " ".join(best.get(word, word) for word in english.split()) == german
        for english, german in sample[40_000:]
    )
    assert exact < 0.01 * 10_000


def test_no_large_number_ends_in_one_before_a_noun(sample):
    assert not any("hundred and one " in english for english, _ in sample)


@pytest.mark.parametrize("templates", [synthetic.SENTENCES, synthetic.WHEN, synthetic.CLOCK])
def test_both_sides_of_a_template_have_the_same_slots(templates):
    for english, german in templates:
        assert set(re.findall(r"{(\w+)", english)) == set(re.findall(r"{(\w+)", german))


@pytest.mark.parametrize("num_pairs", [0, -1, 2.0, "3", True, None])
def test_bad_num_pairs(num_pairs):
    with pytest.raises(ValueError, match=f"num_pairs must be .* at least 1, but is {num_pairs!r}"):
        synthetic_pairs(num_pairs)


@pytest.mark.parametrize("seed", [-1, 1.5, None])
def test_bad_seed(seed):
    with pytest.raises(ValueError, match=f"seed must be .* at least 0, but is {seed!r}"):
        synthetic_pairs(1, seed=seed)


@pytest.mark.parametrize("split", ["dev", "", None])
def test_bad_split(split):
    message = f"split must be one of 'train', 'valid', 'test', but is {split!r}"
    with pytest.raises(ValueError, match=message):
        synthetic_pairs(1, split=split)
