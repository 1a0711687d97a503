"""Every signature of an export: what it is asked, what it answers, and that rows are alone."""

import numpy as np
import pytest
import tensorflow as tf

from keras_transformer import Beam, Translator
from keras_transformer.data.special_tokens import END_ID, START_ID
from keras_transformer.decoding.strategies import length_penalty
from keras_transformer.inference.text_search import detokenize

TEXT = {"text": tf.string}
CUT_AND_ENDED = {"source_cut": (tf.bool, 1), "ended": (tf.bool, 1)}
TRANSLATION = {"translation": (tf.string, 1), "score": (tf.float32, 1), **CUT_AND_ENDED}
SIGNATURES = {
    "serving_default": (TEXT, TRANSLATION),
    "greedy": (TEXT, TRANSLATION),
    "beam": (TEXT, TRANSLATION),
    "nbest": (
        TEXT,
        {
            "translations": (tf.string, 2),
            "scores": (tf.float32, 2),
            "lengths": (tf.int32, 2),
            "source_cut": (tf.bool, 1),
            "ended": (tf.bool, 2),
        },
    ),
    "translate": (
        {**TEXT, "length_penalty": tf.float32, "max_length": tf.int32, "prefix": tf.string},
        TRANSLATION,
    ),
    "score": (
        {"source": tf.string, "target": tf.string},
        {
            "log_prob": (tf.float32, 1),
            "token_log_probs": (tf.float32, 2),
            "length": (tf.int32, 1),
            "source_cut": (tf.bool, 1),
            "target_cut": (tf.bool, 1),
        },
    ),
    "align": (
        TEXT,
        {
            "translation": (tf.string, 1),
            "score": (tf.float32, 1),
            "source_pieces": (tf.string, 2),
            "target_pieces": (tf.string, 2),
            "attention": (tf.float32, 3),
            **CUT_AND_ENDED,
        },
    ),
}


def tokens(tokenizer, text) -> list[int]:
    return [*tokenizer.tokenize([text]).to_list()[0], END_ID]


def token_log_probs(model, source_ids, target_ids):
    """The log-probability of each target token, by one pass of the model over one sentence."""
    inputs = np.array([source_ids]), np.array([[START_ID, *target_ids[:-1]]])
    logits = np.array(model(inputs, training=False))[0].astype("float64")  # (T, V)
    log_probs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    return log_probs[np.arange(len(target_ids)), target_ids]


def decoded(texts) -> list[str]:
    return [text.decode() for text in texts]


def assert_same_rows(output, expected):
    """The same arrays, but for padding on their last axes; floats to 1e-4."""
    assert set(output) == set(expected)
    for name, array in output.items():
        other = expected[name]
        assert len(array) == len(other)
        shape = np.minimum(array.shape, other.shape)
        for whole in (array, other):
            beyond = np.ones(whole.shape, bool)
            beyond[tuple(map(slice, shape))] = False
            assert not whole[beyond].any(), f"{name} is not padded with 0"
        array, other = (whole[tuple(map(slice, shape))] for whole in (array, other))
        if array.dtype == np.float32:
            np.testing.assert_allclose(array, other, rtol=0, atol=1e-4, err_msg=name)
        else:
            np.testing.assert_array_equal(array, other, err_msg=name)


def take(inputs, rows):
    return {name: [values[i] for i in rows] for name, values in inputs.items()}


@pytest.fixture(scope="module")
def requests(sentences, word_salads):
    """Inputs for each signature, of rows that differ in length and in options."""
    texts = [*sentences[0], "", *word_salads[:5]]
    targets = ["ein Hund", *sentences[1], "", " x ", "\U0001f600", "Katzen " * 9, "die"]
    alphas = np.resize(np.float32([0.6, 0.0, 1.5, 0.2, 3.0]), len(texts)).tolist()
    limits = np.resize([256, 4, 1, 100, 9, 12, 2], len(texts)).tolist()
    prefixes = np.resize(["", "die", "zwei große ", "x", "\U0001f600"], len(texts)).tolist()
    options = {"length_penalty": alphas, "max_length": limits, "prefix": prefixes}
    requests = {name: {"text": texts} for name in SIGNATURES}
    requests["score"] = {"source": texts, "target": targets}
    requests["translate"] = {"text": texts, **options}
    return requests


def test_inputs_are_vectors_and_outputs_begin_with_the_batch(exported):
    signatures = tf.saved_model.load(exported[1]).signatures
    assert set(signatures) == set(SIGNATURES)
    for name, (inputs, outputs) in SIGNATURES.items():
        specs = signatures[name].structured_input_signature[1]
        assert {key: spec.dtype for key, spec in specs.items()} == inputs
        assert all(spec.name == key for key, spec in specs.items())
        assert all(spec.shape.as_list() == [None] for spec in specs.values())
        specs = signatures[name].structured_outputs
        found = {key: (spec.dtype, spec.shape.rank) for key, spec in specs.items()}
        assert found == outputs, name
        assert all(spec.shape[0] is None for spec in specs.values())


# "beam" is "serving_default" here, and "greedy" is a part of it.
@pytest.mark.parametrize("name", sorted(SIGNATURES.keys() - {"beam", "greedy"}))
def test_rows_do_not_depend_on_each_other_and_keep_their_order(name, served, requests):
    inputs = requests[name]
    together = served(name, **inputs)
    order = np.random.default_rng(0).permutation(len(inputs[next(iter(inputs))]))
    shuffled = served(name, **take(inputs, order))
    assert_same_rows(shuffled, {key: array[order] for key, array in together.items()})
    for i in order[:2]:
        alone = served(name, **take(inputs, [i]))
        assert_same_rows(alone, {key: array[[i]] for key, array in together.items()})


@pytest.mark.parametrize("name", SIGNATURES)
def test_a_batch_of_none_has_answers_of_none(name, served):
    inputs, outputs = SIGNATURES[name]
    answers = served(name, **dict.fromkeys(inputs, []))
    assert {key: (array.shape[0], array.ndim) for key, array in answers.items()} == {
        key: (0, rank) for key, (_, rank) in outputs.items()
    }


@pytest.mark.slow
@pytest.mark.parametrize("search", ["greedy", "beam"])
def test_greedy_and_beam_are_translators_of_that_search(
    search, exported, trained, tokenizer, served, sentences, word_salads
):
    texts = [*sentences[0], *word_salads, "", " \t"]
    own = exported[0]
    if search == "greedy":  # and of another batch size
        own = Translator(trained, tokenizer, search, batch_size=7)
    expected, output = own.translate(texts), served(search, text=texts)
    assert decoded(output["translation"]) == expected.texts
    np.testing.assert_allclose(output["score"], expected.scores, rtol=0, atol=1e-4)
    assert decoded(output["translation"])[: len(sentences[1])] == sentences[1]
    other = served({"greedy": "beam", "beam": "greedy"}[search], text=texts)
    assert other["translation"].tolist() != output["translation"].tolist()


def test_the_default_is_the_search_of_the_strategy(served, requests):
    assert_same_rows(served(**requests["beam"]), served("beam", **requests["beam"]))


# source_cut and ended


def test_a_source_is_cut_if_it_is_longer_than_what_is_read(trained, tokenizer):
    """The end token needs a place, too."""
    graph = Translator(trained, tokenizer, "greedy", max_source_length=6, max_length=9).graph
    texts = ["", " \u200b ", "zzzzz", "  zzzzz ", "zzzzzz", "\U0001f600\U0001f600"]
    expected = [len(tokens(tokenizer, text.strip())) > 6 for text in texts]
    assert expected == [False, False, False, False, True, True]
    assert graph.serving_default(tf.constant(texts))["source_cut"].numpy().tolist() == expected


def test_a_target_is_cut_if_it_is_longer_than_what_is_scored(trained, tokenizer):
    graph = Translator(trained, tokenizer, "greedy", max_source_length=6, max_length=9).graph
    pairs = tf.constant(["zzzzzz", "zzzzz"]), tf.constant(["z" * 8, "z" * 9])
    output = graph.score(*pairs)
    assert output["source_cut"].numpy().tolist() == [True, False]
    assert output["target_cut"].numpy().tolist() == [False, True]


@pytest.mark.parametrize("name", ["serving_default", "greedy", "beam", "nbest", "align"])
def test_sentences_and_blanks_are_not_cut_and_end(name, served, sentences):
    output = served(name, text=[*sentences[0], "", "\ufeff"])
    assert not output["source_cut"].any()
    ended = output["ended"]
    assert ended[:, 0].all() if name == "nbest" else ended.all()


def test_a_long_source_is_cut_whatever_the_signature(served, exported):
    long = ["a dog " * 100, "a dog"]
    for name in ("serving_default", "greedy", "nbest", "align"):
        assert served(name, text=long)["source_cut"].tolist() == [True, False], name
    options = {"length_penalty": [0.6] * 2, "max_length": [3] * 2, "prefix": [""] * 2}
    assert served("translate", text=long, **options)["source_cut"].tolist() == [True, False]
    assert served("score", source=long, target=["a"] * 2)["source_cut"].tolist() == [True, False]


def test_a_translation_has_ended_if_its_limit_left_room(served, tokenizer, sentences):
    source, target = sentences[0][-1], sentences[1][-1]
    length = len(tokens(tokenizer, target))
    limits = [length - 1, length, length + 1, 1]
    options = {"length_penalty": [0.6] * 4, "max_length": limits, "prefix": [""] * 4}
    output = served("translate", text=[source] * 4, **options)
    assert output["ended"].tolist() == [False, True, True, False]


# nbest


def test_nbest_begins_with_the_best_and_falls(served, sentences, word_salads):
    texts = [*sentences[0], *word_salads[:20]]
    output, best = served("nbest", text=texts), served("beam", text=texts)
    assert output["scores"].shape == (len(texts), 4)
    assert output["translations"][:, 0].tolist() == best["translation"].tolist()
    np.testing.assert_allclose(output["scores"][:, 0], best["score"], rtol=0, atol=1e-4)
    assert (np.diff(output["scores"], axis=1) <= 0).all()
    assert (output["lengths"] > 0).all()


@pytest.mark.slow
def test_nbest_scores_are_those_of_its_tokens(exported, trained, tokenizer, served, word_salads):
    """The tokens, since two hypotheses may spell one text: its translations and lengths first."""
    texts = word_salads[:8]
    graph = exported[0].graph
    search = tf.function(lambda *source: graph.search(*source, Beam(), num_hypotheses=4))
    source_ids, lengths, _ = graph.source(tf.constant(texts))
    ids = search(source_ids, lengths).ids
    output = served("nbest", text=texts)
    assert output["translations"].tolist() == detokenize(tokenizer, ids).numpy().tolist()
    for i, row in enumerate(ids.numpy()):
        hypotheses = [tuple(hypothesis[hypothesis != 0].tolist()) for hypothesis in row]
        assert len(set(hypotheses)) == 4
        source = source_ids[i, : lengths[i]].numpy().tolist()
        for hypothesis, length, score in zip(
            hypotheses, output["lengths"][i], output["scores"][i], strict=True
        ):
            assert length == len(hypothesis)
            assert END_ID not in hypothesis[:-1]
            log_prob = token_log_probs(trained, source, hypothesis).sum()
            assert score == pytest.approx(log_prob / float(length_penalty(length, 0.6)), abs=1e-4)


def test_nbest_of_blank_text_is_blank(served):
    output = served("nbest", text=["", " \n"])
    assert output["translations"].tolist() == [[b""] * 4] * 2
    assert not output["scores"].any() and not output["lengths"].any()


# score


def test_score_is_one_pass_of_the_model(trained, tokenizer, served, requests):
    inputs = requests["score"]
    output = served("score", **inputs)
    pairs = list(zip(inputs["source"], inputs["target"], strict=True))
    for i, (source, target) in enumerate(pairs):
        source_ids, target_ids = tokens(tokenizer, source.strip()), tokens(tokenizer, target)
        expected = token_log_probs(trained, source_ids, target_ids)
        length = output["length"][i]
        assert length == len(target_ids)
        per_token = output["token_log_probs"][i]
        np.testing.assert_allclose(per_token[:length], expected, rtol=0, atol=1e-4)
        assert not per_token[length:].any()
        assert output["log_prob"][i] == pytest.approx(expected.sum(), abs=1e-3)
    assert output["token_log_probs"].shape[1] == output["length"].max()


def test_score_of_a_translation_is_its_score(served, sentences):
    best = served("beam", text=sentences[0])
    output = served("score", source=sentences[0], target=decoded(best["translation"]))
    scores = output["log_prob"] / np.array(length_penalty(output["length"], 0.6))
    np.testing.assert_allclose(scores, best["score"], rtol=0, atol=1e-4)


def test_score_reads_a_target_up_to_max_length(served, exported):
    output = served("score", source=["a dog"], target=["Hund " * 1000])
    assert output["length"].tolist() == [exported[0].graph.max_length]
    assert np.isfinite(output["log_prob"]).all()


# align


def test_aligned_pieces_spell_source_and_translation(served, requests, sentences):
    texts = [*requests["align"]["text"], "\u2581 \U0001f600 \ue000"]
    output = served("align", text=texts)
    assert output["translation"].tolist() == served(text=texts)["translation"].tolist()
    spelled = [spell(pieces) for pieces in output["source_pieces"]]
    assert spelled == [f"{text}</s>" for text in texts]
    spelled = [spell(pieces) for pieces in output["target_pieces"]]
    assert spelled == [f"{t}</s>" if t else "" for t in decoded(output["translation"])]
    assert spelled[: len(sentences[1])] == [f"{text}</s>" for text in sentences[1]]


def spell(pieces) -> str:
    """The text of pieces, of which `<0x..>` are bytes and U+2581 is a space."""
    text = b""
    for piece in pieces:
        is_byte = piece.startswith(b"<0x")
        text += bytes([int(piece[3:5], 16)]) if is_byte else piece
    text = text.decode().replace("\u2581", " ")
    return text.replace("\ue000b", "\u2581").replace("\ue000a", "\ue000")


def test_attention_is_the_models_and_sums_to_1(trained, tokenizer, served, requests):
    texts = requests["align"]["text"]
    output = served("align", text=texts)
    sums = output["attention"].sum(-1)
    np.testing.assert_allclose(sums, output["target_pieces"] != b"", rtol=0, atol=1e-5)
    assert not output["attention"].transpose(0, 2, 1)[output["source_pieces"] == b""].any()
    for i, text in enumerate(texts[:6]):
        source_ids = tokens(tokenizer, text)
        target_ids = tokens(tokenizer, output["translation"][i])
        inputs = np.array([source_ids]), np.array([[START_ID, *target_ids[:-1]]])
        expected = np.array(trained.cross_attention_scores(inputs))[0]
        found = output["attention"][i, : len(target_ids), : len(source_ids)]
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4)


def test_blank_text_is_aligned_with_nothing(served):
    output = served("align", text=["", "a dog runs"])
    assert output["source_pieces"][0, 0] == b"</s>" and not output["source_pieces"][0, 1:].any()
    assert not output["target_pieces"][0].any()
    assert not output["attention"][0].any()


# translate


def translate(served, text, length_penalty=0.6, max_length=256, prefix=""):
    """One row of `translate`: the translation and the score."""
    options = {"length_penalty": [length_penalty], "max_length": [max_length], "prefix": [prefix]}
    output = served("translate", text=[text], **options)
    return output["translation"][0].decode(), float(output["score"][0])


def test_without_options_it_is_the_default(served, sentences, word_salads):
    texts = [*sentences[0], *word_salads[:20], ""]
    options = {"length_penalty": [0.6], "max_length": [256], "prefix": [""]}
    options = {name: values * len(texts) for name, values in options.items()}
    assert_same_rows(served("translate", text=texts, **options), served(text=texts))


def test_a_length_penalty_divides_the_log_probability(served, sentences):
    source, target = sentences[0][0], sentences[1][0]
    output = served("score", source=[source], target=[target])
    for alpha in (0.0, 0.6, 2.0):
        translation, score = translate(served, source, length_penalty=alpha)
        assert translation == target
        penalty = float(length_penalty(output["length"][0], alpha))
        assert score == pytest.approx(output["log_prob"][0] / penalty, abs=1e-4)


def test_max_length_bounds_the_tokens(served, tokenizer, sentences):
    source, target = sentences[0][-1], sentences[1][-1]
    length = len(tokens(tokenizer, target))
    assert translate(served, source, max_length=length)[0] == target
    for limit in range(1, length):
        translation, score = translate(served, source, max_length=limit)
        assert len(tokens(tokenizer, translation)) - 1 <= limit
        assert np.isfinite(score)
    assert translate(served, source, max_length=10**9)[0] == target
    for least in (0, -1, -(2**31)):  # as 1
        assert translate(served, source, max_length=least) == translate(served, source, 0.6, 1)


@pytest.mark.parametrize(
    "prefix",
    [
        "eine",
        "ein H",
        "der",
        "zwei große Katzen",
        " ",
        "x y z",
        "\u2581",
        "\U0001f600\u4e2d",
        "</s>",
    ],
)
def test_a_translation_begins_with_its_prefix(served, prefix):
    translation, score = translate(served, "a dog runs", prefix=prefix)
    assert translation.startswith(prefix)
    assert -1e8 < score < 0


@pytest.mark.parametrize("strategy", ["greedy", pytest.param(Beam(size=3), marks=pytest.mark.slow)])
def test_a_translation_goes_on_wherever_its_prefix_is_cut(strategy, trained, tokenizer, sentences):
    """In a word, after one or after its space; the score is that of the same tokens."""
    translator = Translator(trained, tokenizer, strategy)
    pairs = list(zip(*sentences, strict=True))
    rows = [(source, target, i) for source, target in pairs for i in range(len(target) + 1)]
    texts, prefixes = [row[0] for row in rows], [target[:i] for _, target, i in rows]
    alphas, limits = np.full(len(rows), 0.6, "float32"), np.full(len(rows), 256, "int32")
    output = translator.graph.translate(*map(tf.constant, (texts, alphas, limits, prefixes)))
    assert decoded(output["translation"].numpy()) == [target for _, target, _ in rows]
    scores = dict(zip(sentences[0], translator.translate(sentences[0]).scores, strict=True))
    expected = [scores[text] for text in texts]
    np.testing.assert_allclose(output["score"], expected, rtol=0, atol=1e-4)
    assert output["ended"].numpy().all()


def test_any_prefix_stays_as_it_is_and_no_space_at_its_end_is_doubled(served):
    rng = np.random.default_rng(0)
    alphabet = [
        *"abcxyzHKäß \u4e2d\u6587\u3042\U0001f600\u2581\ue000\t\n\0\u00a0<>/.,-'",
        " ",
        " ",
        "ein",
    ]
    prefixes = ["".join(rng.choice(alphabet, rng.integers(0, 30))) for _ in range(60)]
    prefixes += [prefix.rstrip() + " " for prefix in prefixes[:20]]
    options = {"length_penalty": [0.6] * 80, "max_length": [256] * 80, "prefix": prefixes}
    output = served("translate", text=["a dog runs", "the cat runs"] * 40, **options)
    for prefix, translation in zip(prefixes, decoded(output["translation"]), strict=True):
        assert translation.startswith(prefix)
        assert not (prefix.endswith(" ") and translation[len(prefix) :].startswith(" "))


def test_a_prefix_of_the_translation_changes_nothing(served, sentences):
    for source, target in zip(*sentences, strict=True):
        word = target.split()[0]
        translation, score = translate(served, source, prefix=word)
        expected, expected_score = translate(served, source)
        assert translation == expected
        assert score == pytest.approx(expected_score, abs=1e-5)


def test_a_prefix_longer_than_max_length_is_cut(served, tokenizer):
    prefix = "Katzen schlafen und Hunde rennen"
    ids = tokenizer.tokenize([prefix])[:, :5]
    translation, score = translate(served, "a dog runs", max_length=5, prefix=prefix)
    assert translation == tokenizer.detokenize(ids)[0].numpy().decode()
    assert np.isfinite(score)
    translation, score = translate(served, "a dog runs", prefix="Katzen " * 1000)
    assert "Katzen Katzen".startswith(translation[:13]) and np.isfinite(score)


def test_blank_text_with_options_is_blank(served):
    assert translate(served, " ", 1.0, 9, "der Hund") == ("", 0.0)


@pytest.mark.parametrize("alpha", [10.0, 1e6, np.inf])
def test_a_length_penalty_above_10_is_10(served, alpha):
    score = translate(served, "a dog runs", length_penalty=alpha)[1]
    assert score == pytest.approx(translate(served, "a dog runs", length_penalty=10.0)[1])


@pytest.mark.parametrize(
    "signature, inputs, message",
    [
        ("score", {"source": ["a", "b"], "target": ["a"]}, "target must have one value for each s"),
        ("score", {"source": ["a"], "target": ["a", "b"]}, "target must have one value for each s"),
        ("translate", {"max_length": [9]}, "max_length must have one value for each text"),
        ("translate", {"prefix": [""] * 3}, "prefix must have one value for each text"),
    ],
)
def test_columns_of_other_lengths_are_refused(served, signature, inputs, message):
    if signature == "translate":
        options = {"length_penalty": [0.6] * 2, "max_length": [9] * 2, "prefix": [""] * 2}
        inputs = {"text": ["a dog", "a cat"], **options, **inputs}
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        served(signature, **inputs)


@pytest.mark.parametrize("alpha", [-1.0, -np.inf, np.nan])
def test_a_length_penalty_below_0_is_0(served, alpha):
    alone = translate(served, "a dog runs", length_penalty=alpha)
    assert alone == pytest.approx(translate(served, "a dog runs", length_penalty=0.0))
    options = {"length_penalty": [0.6, alpha], "max_length": [256] * 2, "prefix": [""] * 2}
    both = served("translate", text=["a cat sleeps", "a dog runs"], **options)
    assert both["translation"][1].decode() == alone[0]
    assert both["translation"][0].decode() == "eine Katze schläft"
