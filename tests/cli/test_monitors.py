"""What a training shows of its text to validate on."""

import numpy as np

from keras_transformer.commands.training_run.monitors import legible_pairs
from keras_transformer.data.batching import TokenBatches
from keras_transformer.data.corpus import Corpus


def test_the_only_pairs_may_be_as_long_as_the_training_allows(tokenizer):
    texts = Corpus(["a dog runs " * 99, "a cat"], ["ein Hund " * 99, "eine Katze"], {})
    batches = TokenBatches(*texts[:2], tokenizer, max_pair_length=2000, shuffle=False)
    pairs = legible_pairs(texts, batches, tokenizer)
    sources = tokenizer.tokenize(texts.sources[::-1]).to_list()
    assert [np.array(pair[0])[0, :-1].tolist() for pair in pairs] == sources
