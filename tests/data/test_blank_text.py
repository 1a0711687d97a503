"""What is blank: every character without a visible form, the same in Python and in a graph."""

import unicodedata

import pytest
import regex
import tensorflow as tf

from keras_transformer.data.blank_text import NOT_TEXT, is_blank

CHARACTERS = [chr(i) for i in range(0x110000) if not 0xD800 <= i < 0xE000]
IGNORABLE = regex.compile(r"\p{Default_Ignorable_Code_Point}")
# Formats with a sign of their own: the number signs of Arabic and others.
VISIBLE_FORMAT = regex.compile(r"\p{Prepended_Concatenation_Mark}")
# More without a form: the empty Braille pattern, the empty note head, and formats of hieroglyphs
# that this Python does not know yet.
OTHERS = {"\u2800", "\U0001d159", *map(chr, range(0x13430, 0x13440))}


def in_a_graph(texts):
    return tf.strings.regex_replace(tf.constant(texts), NOT_TEXT, "").numpy().tolist()


@pytest.fixture(scope="module")
def blanks():
    return {c for c in CHARACTERS if is_blank(c)}


def test_they_are_what_unicode_says(blanks):
    expected = {
        c
        for c in CHARACTERS
        if c.isspace()
        or IGNORABLE.match(c)
        or unicodedata.category(c) in ("Cc", "Zs", "Zl", "Zp")
        or unicodedata.category(c) == "Cf"
        and not VISIBLE_FORMAT.match(c)
    }
    assert blanks == expected | OTHERS


def test_a_graph_agrees_on_every_character(blanks):
    kept = in_a_graph(CHARACTERS)
    assert {c for c, text in zip(CHARACTERS, kept, strict=True) if not text} == blanks


@pytest.mark.parametrize("text", ["", " ", "\u200b \u200b", "\ufeff\u00ad\t\u2060", "\ufe0f" * 9])
def test_texts_of_nothing_else_are_blank(text):
    assert is_blank(text) and in_a_graph([text]) == [b""]


@pytest.mark.parametrize(
    "text", ["a", "\u200ba\u200b", "\u2764\ufe0f", "\u0301", "\u0600", "\ufffd"]
)
def test_beside_something_visible_they_stay_but_for_spaces(text):
    """They may belong to what is beside them: a heart with a variation selector is a red one."""
    assert not is_blank(text) and in_a_graph([f" {text}\u3000"]) == [text.encode()]


def test_a_lone_surrogate_is_not_blank():
    assert not is_blank("\ud800")
