"""The pictures of a translator, by name: of one sentence, and of the model itself."""

import numpy as np

from keras_transformer.data.tokenizer import SPACE_SYMBOL
from keras_transformer.inference.inspection import DECODER, ENCODER
from keras_transformer.training.schedules import TransformerSchedule
from keras_transformer.visualization.attention import attention_maps, word_attention
from keras_transformer.visualization.beam import beam_tree
from keras_transformer.visualization.masks import mask_maps
from keras_transformer.visualization.positions import position_map, position_similarity
from keras_transformer.visualization.schedule import learning_rates

# A sentence alone has no padding, which half of the masks are about, so it gets some.
NUM_PADDED, NUM_POSITIONS = 2, 100
PAPER_WARMUP = 4000


def sentence_figures(inspection, shown) -> dict:
    """Draws what a model does with one sentence.

    Args:
        inspection: an `Inspection`.
        shown: the name of a map and the index of a query, for the picture of one word.
    """
    maps = inspection.maps()
    name, word = shown
    return {
        "Beam": beam_tree(inspection.history, inspection.history_pieces),
        **{name: attention_maps(*arguments, title=name) for name, arguments in maps.items()},
        "One word": word_attention(*maps[name], word),
        "Masks": padded_mask_maps(inspection),
    }


def padded_mask_maps(inspection):
    """Draws the masks of a sentence that is padded to the length of a longer one."""
    ids = (np.pad(ids, (0, NUM_PADDED)) for ids in (inspection.source_ids, inspection.read_ids))
    padding = ["<pad>"] * NUM_PADDED
    return mask_maps(*ids, inspection.source_pieces + padding, inspection.read_pieces + padding)


def model_figures(model, measured=None) -> dict:
    """Draws what needs no sentence: the sinusoids, if any, and the learning rate of this width.

    Args:
        model: a `Transformer`.
        measured: steps and rates of its training, from `read_curve`, or None.
    """
    embedding, figures = model.source_embedding, {}
    d_model = embedding.d_model
    if embedding.sinusoids:
        positions = embedding.positions(NUM_POSITIONS)
        figures["Positions"] = position_map(positions)
        figures["Similarity of positions"] = position_similarity(positions)
    steps, rates = measured or ([PAPER_WARMUP, 5 * PAPER_WARMUP], [1, 0])
    peak, num_steps = max(1, int(steps[np.argmax(rates)])), int(max(steps))
    schedules = {
        f"d_model {d_model}, warm-up {warmup:,}": TransformerSchedule(d_model, warmup)
        for warmup in (max(1, peak // 2), peak, 2 * peak)
    }
    figures["Schedule"] = learning_rates(schedules, max(2, num_steps), measured=measured)
    return figures


def shown_word(inspection, word=None):
    """Returns the name of a map and the index of the query with which `word` begins.

    By default this is the source word from which the heads look at the most different pieces.

    Raises:
        ValueError: if neither the sentence nor its translation has that word.
    """
    maps = inspection.maps()
    if word is None:
        scores, pieces, _ = maps[ENCODER]
        favorites = scores.argmax(axis=-1).reshape(-1, len(pieces))  # (N * H, S)
        return ENCODER, max(whole_words(pieces), key=lambda i: len(set(favorites[:, i])))
    for name in (ENCODER, DECODER):
        place = find_word(maps[name][1], word)
        if place is not None:
            return name, place
    raise ValueError(
        f"--word {word} is neither in the sentence nor in its translation; their pieces are "
        f"{' '.join(inspection.source_pieces + inspection.target_pieces)}."
    )


def find_word(pieces, word: str):
    """Returns the index of the piece `word`, or of the first piece with which it begins, or None.

    Pieces that begin a word are tried first; a language without spaces needs the others, too.
    """
    spelled = [piece.removeprefix(SPACE_SYMBOL) for piece in pieces]
    if word in spelled:
        return spelled.index(word)
    starts = [i for i in range(len(pieces)) if "".join(spelled[i:]).startswith(word)]
    starts.sort(key=lambda i: i > 0 and not pieces[i].startswith(SPACE_SYMBOL))
    return starts[0] if starts else None


def whole_words(pieces) -> list[int]:
    """Returns the indices of the pieces that are words by themselves; of all if none is."""
    starts = [i == 0 or piece.startswith(SPACE_SYMBOL) for i, piece in enumerate(pieces[:-1])]
    starts.append(True)  # the end token
    words = [i for i in range(len(pieces) - 1) if starts[i] and starts[i + 1]]
    return words or list(range(len(pieces)))
