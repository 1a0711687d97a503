"""What a strategy does to translations and their scores."""

from dataclasses import replace

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_transformer import Beam, Greedy, Sample, Transformer, Translator
from keras_transformer.data.special_tokens import END_ID, NUM_SPECIAL_TOKENS, START_ID
from keras_transformer.decoding.result import IMPOSSIBLE
from keras_transformer.decoding.strategies import length_penalty
from keras_transformer.inference.text_search import detokenize


def search(translator, texts, num_hypotheses=1):
    """The `SearchResult` behind a translator's answers, as arrays, and its graph."""
    graph, options = translator.graph, {"num_hypotheses": num_hypotheses}
    find = tf.function(lambda *source: graph.search(*source, graph.strategy, **options))
    result = find(*graph.source(tf.constant(texts))[:2])
    return type(result)(*(field.numpy() for field in result)), graph


def hypotheses(result):
    """The real tokens of each best hypothesis."""
    return [ids[:n].tolist() for ids, n in zip(result.ids[:, 0], result.lengths[:, 0], strict=True)]


def tokens(tokenizer, text) -> list[int]:
    return [*tokenizer.tokenize([text]).to_list()[0], END_ID]


def log_prob(model, source_ids, target_ids) -> float:
    """The log-probability of a translation, by one pass of the model over all of it."""
    inputs = np.array([source_ids]), np.array([[START_ID, *target_ids[:-1]]])
    logits = np.array(model(inputs, training=False))[0].astype("float64")
    logits -= np.log(np.exp(logits).sum(-1, keepdims=True))
    return sum(logits[i, token] for i, token in enumerate(target_ids))


def repeats(ids, size) -> bool:
    ngrams = list(zip(*(ids[i:] for i in range(size)), strict=False))
    return len(set(ngrams)) < len(ngrams)


@pytest.fixture
def small(tokenizer, randomize):
    """small(**arguments): a model of one layer with random weights, which repeats itself."""

    def build(**arguments):
        keras.utils.set_random_seed(3)
        size = {"num_layers": 1, "d_model": 16, "num_heads": 2, "d_ff": 16, "max_length": 128}
        arguments = {"source_vocab_size": tokenizer.vocab_size, **size, **arguments}
        return randomize(Transformer(**arguments))

    return build


# nbest and score in Python


@pytest.mark.slow
def test_nbest_are_the_signatures_rows(exported, served, sentences):
    texts = [sentences[0][0], "", sentences[0][5]]
    expected = served("nbest", text=texts)
    answers = exported[0].nbest(texts)
    assert [a.texts for a in answers] == [[t.decode() for t in r] for r in expected["translations"]]
    np.testing.assert_allclose([a.scores for a in answers], expected["scores"], rtol=0, atol=1e-4)
    assert exported[0].nbest([]) == []


def test_score_is_the_log_probability_of_the_pair(exported, trained, tokenizer, sentences):
    sources, targets = sentences[0], [*sentences[1][1:], "no such \U0001f600"]
    scores = exported[0].score(sources, targets)
    for source, target, score in zip(sources, targets, scores, strict=True):
        expected = log_prob(trained, tokens(tokenizer, source), tokens(tokenizer, target))
        assert score == pytest.approx(expected, abs=1e-3)
    assert exported[0].score([], []) == []


def test_the_answer_to_blank_text_is_certain(exported, sentences):
    source, target = sentences[0][0], sentences[1][0]
    output = exported[0].graph.score([" ", "", source, "", source], ["", "", "", target, target])
    certain = [True, True, False, False, False]
    assert (output["log_prob"].numpy() == 0).tolist() == certain
    assert (output["length"].numpy() == 0).tolist() == certain
    assert not output["token_log_probs"].numpy()[:2].any()
    alone = exported[0].score([source, "", source], ["", target, target])
    np.testing.assert_allclose(output["log_prob"][2:], alone, rtol=1e-5)


def test_score_needs_pairs(exported):
    with pytest.raises(ValueError, match="must be aligned, but there are 2 sources and 1 targets"):
        exported[0].score(["a", "b"], ["c"])
    with pytest.raises(TypeError, match="list of strings"):
        exported[0].score("a", ["c"])


def test_scoring_and_attention_do_not_depend_on_the_batch_size(trained, tokenizer, sentences):
    answers = []
    for batch_size in (2, 64):
        graph = Translator(trained, tokenizer, batch_size=batch_size).graph
        source_ids, target_ids = (graph.source(tf.constant(texts))[0] for texts in sentences)
        answers.append((graph.token_log_probs(source_ids, target_ids).numpy(),))
        answers[-1] += (graph.attention(source_ids, target_ids).numpy(),)
    for small_batches, one_batch in zip(*answers, strict=True):
        np.testing.assert_allclose(small_batches, one_batch, rtol=0, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("search_kind", ["greedy", "beam"])
def test_parallel_batches_change_no_translation(
    search_kind, served, trained, tokenizer, word_salads
):
    texts = [*word_salads[:23], ""]
    expected = served(search_kind, text=texts)  # two at a time
    options = {"num_parallel_batches": 3, "batch_size": 4}
    streams = Translator(trained, tokenizer, search_kind, **options)
    for some in (texts, texts[:2], []):
        found = streams.translate(some)
        translations = expected["translation"][: len(some)]
        assert found.texts == [translation.decode() for translation in translations]
        assert found.scores == pytest.approx(expected["score"][: len(some)], abs=1e-5)


@pytest.mark.slow
def test_a_given_translation_is_scored_beyond_the_limit_of_a_search(trained, tokenizer, sentences):
    whole = Translator(trained, tokenizer).score(*sentences)
    assert Translator(trained, tokenizer, max_length=3).score(*sentences) == whole


# Constraints and penalties


@pytest.mark.slow
def test_min_length_counts_the_end_token(trained, tokenizer, sentences):
    free, _ = search(Translator(trained, tokenizer, "greedy"), sentences[0])
    least = 9
    assert free.lengths.min() < least < free.lengths.max()
    translator = Translator(trained, tokenizer, Greedy(min_length=least))
    result, _ = search(translator, sentences[0])
    assert result.lengths.min() == least
    for i, ids in enumerate(hypotheses(result)):
        assert END_ID not in ids[:-1]
        if free.lengths[i, 0] >= least:
            assert ids == hypotheses(free)[i]


@pytest.mark.slow
def test_min_length_is_above_the_limit_of_a_short_source(small, tokenizer):
    strategy = Greedy(min_length=60)
    translator = Translator(small(), tokenizer, strategy, max_length=100, max_source_length=9)
    assert (search(translator, ["a"])[0].lengths >= 60).all()


@pytest.mark.slow
@pytest.mark.parametrize("strategy, size", [(Greedy(), 1), (Beam(size=2), 2)])
def test_no_ngram_occurs_twice(strategy, size, small, tokenizer, sentences):
    arguments = {"max_source_length": 16, "max_length": 40}
    model = small()
    free, _ = search(Translator(model, tokenizer, strategy, **arguments), sentences[0])
    assert any(repeats(ids, size) for ids in hypotheses(free))
    strategy = replace(strategy, no_repeat_ngram=size)
    translator = Translator(model, tokenizer, strategy, **arguments)
    result, graph = search(translator, sentences[0])
    source_ids, lengths, _ = graph.source(tf.constant(sentences[0]))
    for i, ids in enumerate(hypotheses(result)):
        assert not repeats(ids, size)
        # The scores are still those of the model.
        expected = log_prob(model, source_ids[i, : lengths[i]].numpy(), ids)
        assert result.log_probs[i, 0] == pytest.approx(expected, abs=2e-3)


@pytest.mark.slow
def test_coverage_penalty_takes_from_scores_what_was_not_attended_to(
    trained, tokenizer, word_salads
):
    texts, beta = word_salads[:12], 0.7
    translator = Translator(trained, tokenizer, Beam(coverage_penalty=beta), max_length=40)
    result, graph = search(translator, texts, num_hypotheses=4)
    source_ids, lengths, _ = graph.source(tf.constant(texts))
    chosen_otherwise = search(Translator(trained, tokenizer, max_length=40), texts)[0]
    assert hypotheses(chosen_otherwise) != hypotheses(result)
    for n in range(4):
        attention = graph.attention(source_ids, result.ids[:, n]).numpy()  # (B, T, S)
        for i, rows in enumerate(attention):
            coverage = rows[: result.lengths[i, n], : lengths[i]].sum(0)
            adjustment = beta * np.log(np.clip(coverage, 1e-6, 1)).sum()
            expected = result.log_probs[i, n] / length_penalty(result.lengths[i, n], 0.6)
            assert result.scores[i, n] == pytest.approx(float(expected) + adjustment, abs=1e-3)
    assert (np.diff(result.scores, axis=1) <= 0).all()


# Sampling


@pytest.mark.slow
def test_a_sample_is_drawn_from_the_model_and_scored_by_it(trained, tokenizer, sentences):
    translator = Translator(trained, tokenizer, Sample(temperature=8.0, seed=1), max_length=24)
    result, graph = search(translator, sentences[0])
    source_ids, lengths, _ = graph.source(tf.constant(sentences[0]))
    for i, ids in enumerate(hypotheses(result)):
        expected = log_prob(trained, source_ids[i, : lengths[i]].numpy(), ids)
        assert result.log_probs[i, 0] == pytest.approx(expected, abs=1e-3)
        assert ids != tokens(tokenizer, sentences[1][i])  # which are far more probable


@pytest.mark.slow
def test_a_sample_depends_on_its_seed_alone(trained, tokenizer, word_salads):
    def sampled(seed):
        strategy = Sample(temperature=3.0, top_k=50, top_p=0.95, seed=seed)
        return Translator(trained, tokenizer, strategy, max_length=24)

    translator = sampled(5)
    texts = word_salads[:10]
    together = translator.translate(texts)
    assert translator.translate(texts) == together
    alone = translator.translate(texts[3:4])
    assert alone.texts == together.texts[3:4]
    assert alone.scores == pytest.approx(together.scores[3:4], abs=1e-4)
    assert sampled(6).translate(texts).texts != together.texts


@pytest.mark.slow
def test_a_sample_of_the_one_best_token_is_greedy(
    served, trained, tokenizer, sentences, word_salads
):
    texts = [*sentences[0], *word_salads[:10]]
    one = Translator(trained, tokenizer, Sample(top_k=1))
    greedy = served("greedy", text=texts)["translation"]
    assert one.translate(texts).texts == [text.decode() for text in greedy]


# Weights and vocabularies that a search must survive


@pytest.mark.slow
def test_ids_beyond_the_tokenizer_are_never_chosen(small, tokenizer, sentences):
    size = tokenizer.vocab_size // 64 * 64 + 64
    model = small(source_vocab_size=size, tied_embeddings="none")
    kernel = model.output_projection.kernel
    rng = np.random.default_rng(0)
    padding = rng.normal(size=(16, size - tokenizer.vocab_size)) * 20
    kernel.assign(np.concatenate([kernel[:, : tokenizer.vocab_size], padding], axis=1))
    logits = np.array(model((np.array([[5, END_ID]]), np.array([[START_ID, 7, 8]]))))
    assert (logits.argmax(-1) >= tokenizer.vocab_size).all()
    for kind in ("greedy", "beam"):
        translator = Translator(model, tokenizer, kind, max_length=16, max_source_length=16)
        result, graph = search(translator, sentences[0])
        ids = [token for row in hypotheses(result) for token in row]
        assert all(token >= NUM_SPECIAL_TOKENS or token == END_ID for token in ids)
        assert all(token < tokenizer.vocab_size for token in ids)
        assert any(detokenize(tokenizer, result.ids).numpy().ravel())
        assert np.isfinite(result.scores).all() and result.scores.max() < 0


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["greedy", "beam"])
def test_weights_that_are_not_finite_translate_to_nothing(kind, small, tokenizer):
    model = small()
    for weight in model.weights:
        weight.assign(np.full(weight.shape, np.nan))
    translator = Translator(model, tokenizer, kind, max_source_length=16, max_length=16)
    expected = (["", "", ""], [IMPOSSIBLE, 0.0, IMPOSSIBLE])
    assert translator.translate(["a dog", " ", "\U0001f600"]) == expected


@pytest.mark.slow
def test_a_row_that_is_not_finite_changes_no_other(small, tokenizer, sentences):
    model = small(tied_embeddings="none")
    arguments = {"max_source_length": 32, "max_length": 16}
    expected = Translator(model, tokenizer, **arguments).translate(sentences[0])
    embeddings = np.array(model.source_embedding.embeddings)
    poison = tokenizer.tokenize(["\u2603"]).values[-1]
    embeddings[poison] = np.nan
    model.source_embedding.embeddings.assign(embeddings)
    texts = [*sentences[0][:3], "a \u2603", *sentences[0][3:]]
    texts, scores = Translator(model, tokenizer, **arguments).translate(texts)
    assert (texts.pop(3), scores.pop(3)) == ("", IMPOSSIBLE)
    assert texts == expected.texts
    assert scores == pytest.approx(expected.scores, abs=1e-4)
