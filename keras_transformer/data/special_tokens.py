"""The four ids that every vocabulary of the library begins with."""

PAD_ID, UNK_ID, START_ID, END_ID = range(4)
NUM_SPECIAL_TOKENS = 4
# No text contains these, so no search may choose them.
UNWRITTEN = PAD_ID, UNK_ID, START_ID
