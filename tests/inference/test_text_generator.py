"""Prompts to texts, in Python and as a SavedModel: the same, whatever stands beside a prompt."""

import base64
import io
import json
import subprocess
import sys

import keras
import numpy as np
import pytest
import sentencepiece
import tensorflow as tf

from keras_transformer import (
    Beam,
    Greedy,
    LanguageModel,
    MaskedCrossentropy,
    Sample,
    TextGenerator,
    Tokenizer,
)
from keras_transformer.data.packing import PackedBatches
from keras_transformer.data.special_tokens import END_ID, PAD_ID, START_ID, UNK_ID
from keras_transformer.decoding.result import IMPOSSIBLE
from keras_transformer.decoding.sampling import sample, seeds_of_rows
from keras_transformer.decoding.strategies import length_penalty
from keras_transformer.export.precision import serving_copy
from tests.serving.served_ops import refused

pytestmark = pytest.mark.filterwarnings("ignore:.*prompts are longer")
# A prompt of each length, one longer than the model reads, and one that it has never seen.
PROMPTS = ["a", "", "two big cats", "eine Kat", "the dog sleeps " * 9, "\U0001f600 \n x"]
# Hot and narrow: what is drawn is rarely the most probable token, but one that is learnt.
SAMPLE = Sample(temperature=3.0, top_k=8, top_p=0.9, seed=7)
STRATEGIES = {"greedy": "greedy", "beam": Beam(size=3, min_length=2), "sample": SAMPLE}


@pytest.fixture(scope="module")
def language_model(sentences, tokenizer):
    """A model that has learnt the sentences of both languages by heart; do not change it."""
    keras.utils.set_random_seed(0)
    model = LanguageModel(
        num_layers=1,
        d_model=32,
        num_heads=2,
        d_ff=48,
        vocab_size=tokenizer.vocab_size,
        dropout=0.0,
        activation="swiglu",
        norm="rms_norm",
        positions="rotary",
        max_length=24,
    )
    model.compile(keras.optimizers.Adam(0.01, beta_2=0.98), loss=MaskedCrossentropy())
    batches = PackedBatches(sum(sentences, []), tokenizer, length=24, batch_size=8)
    for epoch in range(150):
        for ids, labels in batches.epoch(epoch):
            model.train_on_batch(ids, labels)
    return model


@pytest.fixture(scope="module")
def exported_generator(language_model, tokenizer, tmp_path_factory):
    """A greedy `TextGenerator`, and the path of its export."""
    generator = TextGenerator(language_model, tokenizer, max_length=12)
    return generator, generator.export(tmp_path_factory.mktemp("exports") / "texts")


@pytest.fixture(scope="module")
def generators(exported_generator, language_model, tokenizer):
    """By search: a function that makes each `TextGenerator` once."""
    made = {"greedy": exported_generator[0]}

    def get(search):
        if search not in made:
            options = {"max_length": 12, "batch_size": 4, "num_parallel_batches": 1}
            strategy = STRATEGIES[search]
            made[search] = TextGenerator(language_model, tokenizer, strategy, **options)
        return made[search]

    return get


def tokens_of(tokenizer, text):
    return tokenizer.tokenize([text]).to_list()[0]


def log_probs_after(model, context, tokens):
    """The log-probability of each of `tokens` after `context` and those before it."""
    ids = np.array([[*context, *tokens]])
    logits = np.array(model(ids[:, :-1], training=False))[0].astype("float64")
    log_probs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    places = np.arange(len(context) - 1, ids.shape[1] - 1)
    return log_probs[places, tokens]


@pytest.mark.parametrize("start, end", [("two big", " cats sleep here today"), ("", None)])
def test_learnt_texts_are_continued(generators, tokenizer, sentences, start, end):
    texts, continuations, _, ended = generators("greedy").generate([start])
    assert texts == [start + continuations[0]]
    limit = generators("greedy").graph.max_length
    assert ended == [len(tokens_of(tokenizer, continuations[0])) < limit]
    assert continuations == [end] if end else texts[0] in sum(sentences, [])


def test_whole_sentences_come_from_their_beginnings(generators, sentences):
    prompts = ["a small", "the cat", "ein kleiner", "zwei große Katzen"]
    expected = [next(s for s in sum(sentences, []) if s.startswith(p)) for p in prompts]
    assert generators("greedy")(prompts) == expected


@pytest.mark.slow
@pytest.mark.parametrize("search", STRATEGIES)
def test_a_continuation_does_not_depend_on_its_batch(generators, search):
    generator = generators(search)
    together = generator.generate(PROMPTS)
    for i, prompt in enumerate(PROMPTS):
        alone = generator.generate([prompt])
        assert (alone.texts, alone.continuations) == (
            [together.texts[i]],
            [together.continuations[i]],
        )
        assert alone.scores[0] == pytest.approx(together.scores[i], abs=1e-4)
        assert alone.texts[0] == prompt + alone.continuations[0]
    assert generator.generate([]) == ([], [], [], [])


@pytest.mark.slow
def test_scores_are_those_of_the_continuations(generators, language_model, tokenizer):
    prompts = ["a small", "the", "two big cats"]
    _, continuations, scores, _ = generators("beam").generate(prompts)
    for prompt, continuation, score in zip(prompts, continuations, scores, strict=True):
        tokens = [*tokens_of(tokenizer, continuation), END_ID]
        context = [END_ID, *tokens_of(tokenizer, prompt)]
        log_prob = log_probs_after(language_model, context, tokens).sum()
        assert score == pytest.approx(log_prob / float(length_penalty(len(tokens), 0.6)), abs=1e-4)


@pytest.mark.slow
def test_samples_are_those_of_the_seed_drawn_from_one_full_pass_each(
    generators, language_model, tokenizer
):
    prompts = ["a small", "", "der"]
    sampled = generators("sample").generate(prompts).continuations
    for prompt, continuation in zip(prompts, sampled, strict=True):
        ids, length = [END_ID, *tokens_of(tokenizer, prompt)], len(tokens_of(tokenizer, prompt))
        seeds = seeds_of_rows(np.array([ids[1:]], "int32"))[:, None]
        while len(ids) - 1 - length < 12 and ids[1:][-1:] != [END_ID]:
            logits = np.array(language_model(np.array([ids]), training=False))[:, -1]
            logits[:, [PAD_ID, UNK_ID, START_ID]] = IMPOSSIBLE
            ids.append(int(sample(logits, len(ids) - 1 - length, SAMPLE, seeds)[0]))
        drawn = [token for token in ids[1 + length :] if token != END_ID]
        assert continuation == tokenizer.detokenize([drawn]).numpy()[0].decode()
    assert sampled != generators("greedy").generate(prompts).continuations


def test_of_a_long_prompt_the_last_tokens_are_read(generators, tokenizer):
    """12 of them: the model reads 24 at a time, and 12 are for the continuation."""
    tokens = tokens_of(tokenizer, "a dog runs home and sleeps here " * 4)
    assert len(tokens) > 40
    cut = tokenizer.detokenize([tokens[-12:]]).numpy()[0].decode()
    assert tokens_of(tokenizer, cut) == tokens[-12:]
    with pytest.warns(UserWarning, match="1 of 1 prompts are longer than the 12 tokens"):
        long = generators("greedy").generate([tokenizer.detokenize([tokens]).numpy()[0].decode()])
    assert long.continuations == generators("greedy").generate([cut]).continuations


def test_a_space_at_the_end_of_a_prompt_belongs_to_the_next_word(generators, sentences):
    prompts = [
        text[:i] for text in sum(sentences, []) for i in range(5, len(text)) if text[i] == " "
    ]
    without = generators("greedy").generate(prompts)
    with_space = generators("greedy").generate([f"{prompt} " for prompt in prompts])
    goes_on = [continuation.startswith(" ") for continuation in without.continuations]
    assert sum(goes_on) > len(prompts) / 2
    for i in np.flatnonzero(goes_on):
        assert with_space.texts[i] == without.texts[i]
        assert with_space.scores[i] == pytest.approx(without.scores[i], abs=1e-4)
    spaces = [" ", "  ", "x  ", "\u2581 ", "\n "]
    for text, prompt in zip(generators("greedy")(spaces), spaces, strict=True):
        assert text.startswith(prompt) and not text.removeprefix(prompt).startswith(" ")


def test_a_lone_surrogate_in_a_prompt_is_a_replacement_character(generators):
    generator = generators("greedy")
    assert generator(["a \ud800"]) == generator(["a \ufffd"])
    assert generator.score(["\udfff"]) == generator.score(["\ufffd"])
    assert generator.perplexity(["\ud800"]) == generator.perplexity(["\ufffd"])


def test_what_was_not_read_and_what_did_not_end_is_said(generators, tokenizer):
    texts = ["the cat", "the dog sleeps " * 9, "the cat"]
    output = generators("greedy").graph.generate(tf.constant(texts), tf.constant([12, 12, 1]))
    assert output["prompt_cut"].numpy().tolist() == [False, True, False]
    assert output["ended"].numpy().tolist()[::2] == [True, False]


def test_a_prompt_may_fill_the_model_though_the_beam_is_wide(tokenizer):
    sizes = {"num_layers": 1, "d_model": 8, "num_heads": 2, "d_ff": 8, "max_length": 16}
    model = LanguageModel(vocab_size=tokenizer.vocab_size, **sizes)
    prompt = tokenizer.detokenize([tokens_of(tokenizer, "a dog runs " * 9)[:15]])
    full = prompt.numpy()[0].decode()
    answers = []
    for size in (5, 6):  # 15 is a multiple of one of them
        generator = TextGenerator(model, tokenizer, Beam(size=size), max_length=1)
        answers.append(generator.generate([full, "a"]))
    np.testing.assert_allclose(answers[0].scores, answers[1].scores, rtol=1e-4)
    assert answers[0].texts == answers[1].texts
    assert answers[0].ended == [False, False]  # after one token


# Scores of given text.


def test_scores_of_texts_are_those_of_one_pass_each(generators, language_model, tokenizer):
    texts = ["a dog runs", "", "der Hund schl", "\U0001f600"]
    log_probs, per_token = generators("greedy").score(texts)
    for text, total, found in zip(texts, log_probs, per_token, strict=True):
        tokens = [*tokens_of(tokenizer, text), END_ID]
        expected = log_probs_after(language_model, [END_ID], tokens)
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4)
        assert total == pytest.approx(expected.sum(), abs=1e-3)


def test_a_long_text_is_scored_in_windows_that_overlap_by_half(
    generators, language_model, tokenizer
):
    """Each token after the first window is the second half of one: 12 new tokens after 12."""
    text = "two big cats sleep here today. " * 5
    tokens = [*tokens_of(tokenizer, text), END_ID]
    assert len(tokens) > 60
    stream, expected = [END_ID, *tokens], []
    for start in range(0, len(tokens), 12):
        context = stream[max(start - 12, 0) : start + 1]
        expected += log_probs_after(language_model, context, tokens[start : start + 12]).tolist()
    log_probs, per_token = generators("greedy").score([text, "a dog"])
    np.testing.assert_allclose(per_token[0], expected, rtol=0, atol=1e-4)
    assert log_probs[1] == pytest.approx(generators("greedy").score(["a dog"]).log_probs[0])


def test_perplexity_is_that_of_the_scores_per_token_and_per_byte(generators):
    texts = ["a dog runs", "große Hunde"]
    log_probs, per_token = generators("greedy").score(texts)
    perplexity = generators("greedy").perplexity(texts)
    assert perplexity.per_token == pytest.approx(np.exp(-sum(log_probs) / sum(map(len, per_token))))
    assert perplexity.per_byte == pytest.approx(np.exp(-sum(log_probs) / (10 + 12)))
    assert perplexity.bits_per_byte == pytest.approx(np.log2(perplexity.per_byte))


# The SavedModel, in a process that knows nothing of us.

TEXT = {"text": tf.string}
GENERATED = {"text": (tf.string, 1), "continuation": (tf.string, 1), "score": (tf.float32, 1)}
GENERATED |= {"prompt_cut": (tf.bool, 1), "ended": (tf.bool, 1)}
SIGNATURES = {
    "serving_default": (TEXT, GENERATED),
    "generate": ({**TEXT, "max_length": tf.int32}, GENERATED),
    "score": (
        TEXT,
        {"log_prob": (tf.float32, 1), "token_log_probs": (tf.float32, 2), "length": (tf.int32, 1)},
    ),
}
SERVED = ["a small", "", "  ", "the dog sleeps " * 9, "</s> \U0001f600 \u2581", "zwei gro"]
NASTY = [b"\xff\xfe\x80", b"a dog \xc3", b"\x00", b"e" * 3000, b"<s></s><pad><unk>"]
LIMITS = [2, 5, 1, 100, 0, -7]
FRESH_PROCESS = """
import base64, json, sys
import tensorflow as tf
import tensorflow_text

def decoded(values):
    return values.numpy().tolist() if values.dtype != tf.string else [
        text.decode("utf-8", "strict") for text in values.numpy()
    ]

signatures = tf.saved_model.load(sys.argv[1]).signatures
answers = []
for name, texts, limits in json.load(sys.stdin):
    inputs = {"text": tf.constant([base64.b64decode(text) for text in texts], tf.string)}
    if limits is not None:
        inputs["max_length"] = tf.constant(limits, tf.int32)
    output = signatures[name](**inputs)
    answers.append({key: decoded(values) for key, values in output.items()})
assert not [name for name in sys.modules if name.startswith("keras_transformer")]
print(json.dumps(answers))
"""
REQUESTS = {
    "default": ("serving_default", SERVED, None),
    "scores": ("score", SERVED, None),
    "limits": ("generate", ["two big"] * 6, LIMITS),
    "nasty": ("serving_default", ["a small", *NASTY], None),
    "nasty scores": ("score", ["a small", *NASTY], None),
    "none": ("serving_default", [], None),
    "no scores": ("score", [], None),
    "no limits": ("generate", [], []),
}


def as_base64(text):
    return base64.b64encode(text.encode() if isinstance(text, str) else text).decode()


@pytest.fixture(scope="module")
def served(exported_generator):
    """What a fresh process answers to each of `REQUESTS`: dicts of lists."""
    requests = [(name, list(map(as_base64, t)), limits) for name, t, limits in REQUESTS.values()]
    command = [sys.executable, "-I", "-c", FRESH_PROCESS, exported_generator[1]]
    result = subprocess.run(command, input=json.dumps(requests), capture_output=True, text=True)
    assert result.returncode == 0, result.stderr[-3000:]
    return dict(zip(REQUESTS, json.loads(result.stdout), strict=True))


@pytest.mark.slow
def test_a_fresh_process_gives_the_same_answers(exported_generator, served):
    expected = exported_generator[0].generate(SERVED)
    assert served["default"]["text"] == expected.texts
    assert served["default"]["continuation"] == expected.continuations
    assert served["default"]["score"] == pytest.approx(expected.scores, abs=1e-4)
    expected = exported_generator[0].score(SERVED)
    assert served["scores"]["log_prob"] == pytest.approx(expected.log_probs, abs=1e-3)
    assert served["scores"]["length"] == [len(tokens) for tokens in expected.token_log_probs]


@pytest.mark.slow
def test_each_row_may_have_a_limit_of_its_own(exported_generator, served, tokenizer):
    (whole,) = exported_generator[0].generate(["two big"]).continuations
    tokens = tokens_of(tokenizer, whole)
    for continuation, limit in zip(served["limits"]["continuation"], LIMITS, strict=True):
        cut = tokenizer.detokenize([tokens[: max(limit, 1)]]).numpy()[0].decode()
        assert continuation == cut


@pytest.mark.slow
def test_any_bytes_are_answered_with_text_and_change_no_other_row(served):
    """The process has decoded every answer as UTF-8."""
    assert served["nasty"]["text"][0] == served["default"]["text"][0]
    assert served["nasty"]["text"][1].startswith("\ufffd")
    assert np.isfinite(served["nasty"]["score"]).all()
    assert served["nasty scores"]["log_prob"][0] == pytest.approx(served["scores"]["log_prob"][0])
    assert np.isfinite(served["nasty scores"]["log_prob"]).all()


def test_an_empty_batch_has_empty_answers(served):
    for name in ("none", "no limits", "no scores"):
        assert served[name] and not any(served[name].values())


def test_inputs_are_vectors_and_outputs_begin_with_the_batch(exported_generator):
    signatures = tf.saved_model.load(exported_generator[1]).signatures
    assert set(signatures) == set(SIGNATURES)
    for name, (inputs, outputs) in SIGNATURES.items():
        specs = signatures[name].structured_input_signature[1]
        assert {key: spec.dtype for key, spec in specs.items()} == inputs
        assert all(spec.shape.as_list() == [None] for spec in specs.values())
        specs = signatures[name].structured_outputs
        found = {key: (spec.dtype, spec.shape.rank) for key, spec in specs.items()}
        assert found == outputs, name
        assert all(spec.shape[0] is None for spec in specs.values())


def test_a_bfloat16_copy_has_nearly_the_same_logits_and_casts_no_cache(language_model):
    copy = serving_copy(language_model, "bfloat16", 24)
    dtypes = {weight.dtype for weight in copy.weights}
    assert dtypes == {"float32", "bfloat16"} and copy.embedding.embeddings.dtype == "float32"
    ids = np.array([[3, 285, 288, 269, 306]])
    expected = np.array(language_model(ids))
    assert np.abs(np.array(copy(ids)) - expected).max() < 0.05 * np.abs(expected).max()
    cache = copy.init_cache(ids, max_length=3)
    step = tf.function(copy.decode_step).get_concrete_function(np.array([294]), cache, 0)
    keys = {tuple(x.shape) for layer in cache["layers"] for x in layer}
    casts = [op for op in step.graph.get_operations() if op.type == "Cast"]
    assert casts and not [op.name for op in casts if tuple(op.outputs[0].shape) in keys]


def test_a_version_that_exists_is_not_replaced(exported_generator):
    generator, path = exported_generator
    with pytest.raises(ValueError, match="exists; name its parent for the next version"):
        generator.export(path)


def test_an_export_has_only_ops_that_the_server_has(exported_generator):
    assert not refused(exported_generator[1])


# Errors.


def test_what_is_no_list_of_strings_is_refused(generators):
    with pytest.raises(TypeError, match=r"prompts must be a list of strings, .*make it a list"):
        generators("greedy")("a dog")
    with pytest.raises(TypeError, match=r"texts\[1\] must be a string, but is 3"):
        generators("greedy").score(["a", 3])
    with pytest.raises(ValueError, match="num_tokens and num_bytes must be at least 1"):
        generators("greedy").perplexity([])


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"max_length": 24}, "max_length must leave room for a prompt among the 24 tokens"),
        ({"max_length": 0}, "max_length must be an integer of at least 1, but is 0"),
        ({"strategy": "best"}, "strategy must be 'greedy', 'beam' or an object such as Beam"),
        (
            {"strategy": Beam(coverage_penalty=0.2)},
            "coverage_penalty must be 0 for a language model",
        ),
        ({"strategy": Greedy(min_length=13)}, "min_length must be at most max_length=12, but is"),
    ],
)
def test_wrong_arguments_are_named(language_model, tokenizer, arguments, message):
    with pytest.raises(ValueError, match=message):
        TextGenerator(language_model, tokenizer, **{"max_length": 12, **arguments})


def test_a_model_of_another_tokenizer_is_refused(tokenizer):
    model = LanguageModel(num_layers=1, d_model=8, num_heads=2, d_ff=8, vocab_size=50)
    with pytest.raises(ValueError, match="The model's vocab_size is 50, but the tokenizer has"):
        TextGenerator(model, tokenizer)


def test_a_tokenizer_that_forgets_the_first_space_is_refused(sentences):
    writer = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(sum(sentences, []) * 5),
        model_writer=writer,
        vocab_size=50,
        **{"pad_id": 0, "unk_id": 1, "bos_id": 2, "eos_id": 3, "minloglevel": 2},
    )
    tokenizer = Tokenizer(writer.getvalue())
    model = LanguageModel(
        num_layers=1, d_model=8, num_heads=2, d_ff=8, vocab_size=tokenizer.vocab_size
    )
    with pytest.raises(ValueError, match="forgets the space at the beginning.*Tokenizer.train"):
        TextGenerator(model, tokenizer)
