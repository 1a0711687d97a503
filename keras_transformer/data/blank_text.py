"""Which texts show nothing: blanks and characters without a visible form, in Python and a graph."""

import re

# The first and the last of each run of characters that alone show nothing: what `str.isspace`
# knows, controls, what Unicode calls "default ignorable" (soft hyphen, zero width space, joiners,
# direction marks, fillers, variation selectors, tags), its other formats without a sign of their
# own, the empty Braille pattern and the empty note head.
UNSEEN_RUNS = (
    *((0x0000, 0x0020), (0x007F, 0x00A0), (0x00AD, 0x00AD), (0x034F, 0x034F), (0x061C, 0x061C)),
    *((0x115F, 0x1160), (0x1680, 0x1680), (0x17B4, 0x17B5), (0x180B, 0x180F), (0x2000, 0x200F)),
    *((0x2028, 0x202F), (0x205F, 0x206F), (0x2800, 0x2800), (0x3000, 0x3000), (0x3164, 0x3164)),
    *((0xFE00, 0xFE0F), (0xFEFF, 0xFEFF), (0xFFA0, 0xFFA0), (0xFFF0, 0xFFFB), (0x13430, 0x1343F)),
    *((0x1BCA0, 0x1BCA3), (0x1D159, 0x1D159), (0x1D173, 0x1D17A), (0xE0000, 0xE0FFF)),
)
# Python and RE2 read these characters as they are.
UNSEEN = "[" + "".join(f"{chr(first)}-{chr(last)}" for first, last in UNSEEN_RUNS) + "]"
# What `str.strip` removes, for RE2.
SPACES = r"[\s\v\x1c-\x1f\x{85}\pZ]"
# What is stripped before translation: everything, if nothing of it is seen, otherwise the spaces at
# its ends. Unseen characters at the ends may belong to others: a joiner, a variation selector.
NOT_TEXT = f"^{UNSEEN}+$|^{SPACES}+|{SPACES}+$"

_ALL_UNSEEN = re.compile(f"{UNSEEN}*")


def visible(text: str) -> str:
    """Returns the part of a text that is translated: what a graph leaves of it by `NOT_TEXT`."""
    return "" if is_blank(text) else text.strip()


def is_blank(text: str) -> bool:
    """Returns whether nothing of a text is seen, as of "", " " or U+200B."""
    return _ALL_UNSEEN.fullmatch(text) is not None
