"""The four ids every vocabulary of the library begins with."""

PAD_ID = 0
UNK_ID = 1
START_ID = 2
END_ID = 3

NUM_SPECIAL_TOKENS = 4
