"""What `benchmarks/decoding.py` compares: engines, functions that translate a case's sentences.

An engine is made in a process of its own, from what `write` left in a directory.
"""

import itertools
import json
import os
import random
import sys
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from workers import Worker

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")  # as docs/serving.md says
# CTranslate2 is up to seven times as fast on two cores of an Intel processor without MKL.
os.environ.setdefault("CT2_USE_MKL", "0")


class Case(NamedTuple):
    """A model's size and its work: exactly `length` tokens a sentence."""

    num_layers: int
    d_model: int
    d_ff: int
    num_heads: int
    vocab_size: int
    beam_size: int
    batch_size: int
    source_length: int
    length: int


CASES = {
    "base_beam": Case(6, 512, 2048, 8, 32000, 4, 16, 25, 25),
    "small_beam": Case(3, 256, 1024, 4, 8000, 4, 32, 20, 20),
    "small_greedy": Case(3, 256, 1024, 4, 8000, 1, 32, 20, 20),
    "small_single": Case(3, 256, 1024, 4, 8000, 4, 1, 20, 20),
    "long_64": Case(3, 256, 1024, 4, 8000, 4, 8, 64, 64),
    "long_512": Case(3, 256, 1024, 4, 8000, 4, 8, 64, 512),
}
REAL_TEXT = "multi30k"
BEAM_SIZE, BATCH_SIZE, LENGTH_PENALTY = 5, 128, 0.6  # of the real text, in every engine


def write(name, directory, threads, run=None, test_data=None):
    """Exports a case's model for every engine, and its sentences, to `directory`."""
    from keras_transformer import Translator

    directory = Path(directory)
    model, tokenizer, texts, settings = build(name, run, test_data)
    translator = Translator(model, tokenizer, **settings, num_parallel_batches=threads)
    for precision in ("float32", "bfloat16", "int8"):
        engine = "graph" if precision == "float32" else f"graph_{precision}"
        translator.export(directory / engine / "1", precision=precision, signatures=())
    for engine, quantization in (("ctranslate2", None), ("ctranslate2_int8", "int8")):
        translator.export_ctranslate2(directory / engine, quantization=quantization)
    if name != REAL_TEXT:
        from marian_model import write_marian

        write_marian(model, tokenizer, directory / "marian", may_end=False)
        settings = {**CASES[name]._asdict(), "threads": threads}
        (directory / "marian" / "case.json").write_text(json.dumps(settings), "utf-8")
    tokenizer.save(directory / "tokenizer.model")
    (directory / "texts.json").write_text(json.dumps(texts), "utf-8")


def can_do(engine, name):
    """Whether an engine has the case: neither XLA nor Marian the real text (docs/results.md)."""
    return name != REAL_TEXT or engine not in ("xla", "marian", "marian_int8")


def build(name, run=None, test_data=None):
    """A case's model, tokenizer, sentences and the settings of its search."""
    return build_real_text(run, test_data) if name == REAL_TEXT else build_random(CASES[name])


def build_random(case):
    """Random weights, sentences of made-up words, and a search without an early stop."""
    import keras

    from keras_transformer import Tokenizer, Transformer

    keras.utils.set_random_seed(0)
    tokenizer = Tokenizer(vocabulary(case.vocab_size))
    model = Transformer(
        num_layers=case.num_layers,
        d_model=case.d_model,
        num_heads=case.num_heads,
        d_ff=case.d_ff,
        source_vocab_size=case.vocab_size,
    )
    rng = random.Random(0)
    words = [word(i) for i in range(1000)]
    length = case.source_length - 2  # beside the first word and the end token
    texts = [" ".join(["a", *rng.choices(words, k=length)]) for _ in range(case.batch_size)]
    return model, tokenizer, texts, {"strategy": strategy_of(case), "max_length": case.length}


def strategy_of(case):
    """The search of a case: no hypothesis ends before `length` tokens."""
    from keras_transformer import Beam, Greedy

    if case.beam_size == 1:
        return Greedy(min_length=case.length)
    return Beam(size=case.beam_size, min_length=case.length)


def build_real_text(run, test_data):
    """A trained run and the sentences of a test set."""
    from keras_transformer import Beam, read_lines
    from keras_transformer.inference.run_directory import load_run

    texts = read_lines(Path(test_data) / "test_2016_flickr.en.gz")
    strategy = Beam(size=BEAM_SIZE, length_penalty=LENGTH_PENALTY)
    return *load_run(run), texts, {"strategy": strategy, "batch_size": BATCH_SIZE}


def load(engine, name, directory, threads, python=sys.executable):
    """An engine: a function without arguments that translates a case's sentences."""
    directory = Path(directory)
    texts = json.loads((directory / "texts.json").read_text("utf-8"))
    if engine == "xla":
        return load_xla(CASES[name], texts)
    if engine.startswith("graph"):
        return load_graph(directory / engine / "1", texts, threads)
    if engine.startswith("marian"):
        return load_marian(CASES[name], directory, engine, python)
    if name == REAL_TEXT:
        return load_ctranslate2_text(directory, engine, texts, threads)
    return load_ctranslate2(CASES[name], directory, engine, texts, threads)


def load_graph(path, texts, threads):
    """The SavedModel, text to text, by a TensorFlow configured as docs/serving.md says."""
    import tensorflow as tf
    import tensorflow_text  # noqa: F401  (registers the tokenizer's ops)

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(threads)
    signature = tf.saved_model.load(str(path)).signatures["serving_default"]
    batch = tf.constant([text.encode() for text in texts])

    def translate():
        return [text.decode() for text in signature(text=batch)["translation"].numpy()]

    return translate


def load_xla(case, texts):
    """The search alone, ids to ids, compiled for one shape."""
    import tensorflow as tf

    from keras_transformer import beam_search, greedy_search
    from keras_transformer.data.special_tokens import END_ID, PAD_ID, START_ID, UNK_ID

    model, tokenizer, _, _ = build_random(case)
    ids = [[*row, END_ID] for row in tokenizer.tokenize(texts).to_list()]
    source_ids = tf.ragged.constant(ids, tf.int32).to_tensor(PAD_ID)

    strategy = strategy_of(case)
    strategy = replace(strategy, suppress_ids=(PAD_ID, UNK_ID, START_ID))
    search_ids = greedy_search if case.beam_size == 1 else beam_search

    @tf.function(jit_compile=True)
    def search(source_ids):
        start_ids = tf.fill([case.batch_size], START_ID)
        cache = model.init_cache(source_ids, max_length=case.length, beam_size=case.beam_size)
        options = {"end_id": END_ID, "max_length": case.length}
        return search_ids(model, start_ids, cache, strategy, **options).ids

    return lambda: search(source_ids).numpy()


def load_ctranslate2(case, directory, engine, texts, threads):
    """CTranslate2, pieces to pieces."""
    translator, processor = ctranslate2_translator(directory, engine, intra_threads=threads)
    sources = processor.encode(texts, out_type=str)
    assert all(len(source) == case.source_length - 1 for source in sources)

    def translate():
        return translator.translate_batch(
            sources,
            beam_size=case.beam_size,
            min_decoding_length=case.length,
            max_decoding_length=case.length,
        )

    return translate


def load_ctranslate2_text(directory, engine, texts, threads):
    """CTranslate2 with Python's SentencePiece before and after it, text to text.

    Of several batches, workers of a thread each are faster than one of all threads.
    """
    translator, processor = ctranslate2_translator(directory, engine, inter_threads=threads)

    def translate():
        results = translator.translate_batch(
            processor.encode(texts, out_type=str),
            beam_size=BEAM_SIZE,
            max_batch_size=BATCH_SIZE,
            length_penalty=LENGTH_PENALTY,
            disable_unk=True,
            suppress_sequences=[["<pad>"], ["<s>"]],
        )
        return processor.decode([result.hypotheses[0] for result in results])

    return translate


def ctranslate2_translator(directory, engine, inter_threads=1, intra_threads=1):
    import ctranslate2

    translator = ctranslate2.Translator(
        str(directory / engine), inter_threads=inter_threads, intra_threads=intra_threads
    )
    return translator, processor_of(directory)


def processor_of(directory):
    import sentencepiece

    return sentencepiece.SentencePieceProcessor(model_file=str(directory / "tokenizer.model"))


def load_marian(case, directory, engine, python):
    """Marian, text to pieces, in a process of its environment, which is asked line by line."""
    name = engine.replace("marian", "marian_translator")
    worker = Worker(name, directory / "marian", python)

    def translate():
        assert worker.ask("translate")["value"] == case.batch_size * case.length

    return translate


def count_tokens(name, directory, translations) -> int:
    """The target tokens of one call of an engine."""
    if name == REAL_TEXT:
        return sum(len(ids) for ids in processor_of(Path(directory)).encode(translations))
    return CASES[name].batch_size * CASES[name].length


def word(i):
    """The i-th made-up word: distinct, of letters."""
    letters = []
    for _ in range(4):
        i, digit = divmod(i, 26)
        letters.append(chr(ord("a") + digit))
    return "".join(letters)


def vocabulary(size):
    """A SentencePiece model of `size` ids: the small one of a few words, and made-up ones."""
    from sentencepiece import sentencepiece_model_pb2

    from keras_transformer import Tokenizer

    small = Tokenizer.train_on_texts(["a dog runs"] * 9, vocab_size=300)
    proto = sentencepiece_model_pb2.ModelProto.FromString(small.model)
    known = {entry.piece for entry in proto.pieces}
    new = (piece for piece in map("\u2581{}".format, map(word, range(26**4))) if piece not in known)
    for piece in itertools.islice(new, size - len(known)):
        proto.pieces.add(piece=piece, score=-1.0)
    # A unigram model segments by the scores: a word is one piece.
    proto.trainer_spec.model_type = sentencepiece_model_pb2.TrainerSpec.UNIGRAM
    proto.trainer_spec.vocab_size = size
    return proto.SerializeToString()
