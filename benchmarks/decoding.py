"""Translation by an exported SavedModel against CTranslate2: same weights, same sentences.

    python benchmarks/decoding.py --json decoding.json
    python benchmarks/decoding.py --cases multi30k --run runs/multi30k --test-data DIRECTORY

Every case gives both engines the same work: raw text or its pieces in, beams of the same size, as
many tokens. The engines take turns, and the medians of several turns are compared. Cases of random
weights have no early stop: each translation has exactly the case's number of tokens.
"""

import argparse
import gzip
import json
import os
import random
import statistics
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

ENGINES = ("graph", "graph_bfloat16", "xla", "ctranslate2", "ctranslate2_int8")


class Case(NamedTuple):
    """A model's size and its work."""

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
BEAM_SIZE, BATCH_SIZE = 5, 128  # of the real text, in both engines

PAUSE = 0.3  # seconds; the threads of an engine spin for about 0.2 after a call
CALLS_IN_A_TURN = 2


def main():
    options = parse_options()
    results = {}
    for name in options.cases:
        with tempfile.TemporaryDirectory() as directory:
            build = build_real_text if name == REAL_TEXT else build_random
            engines, tokens = build(name, Path(directory), options)
            engines = {key: engines[key] for key in options.engines if key in engines}
            seconds = take_turns(engines, options.repeats)
            results[name] = {key: tokens(key) / value for key, value in seconds.items()}
            print_case(name, seconds, results[name])
    if options.json:
        Path(options.json).write_text(json.dumps(results, indent=2) + "\n", "utf-8")


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    every = [*CASES, REAL_TEXT]
    parser.add_argument("--cases", nargs="+", choices=every, default=list(CASES), metavar="CASE")
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=ENGINES, metavar="ENGINE")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="of CTranslate2")
    parser.add_argument("--run", help=f"a trained run, for {REAL_TEXT}")
    parser.add_argument("--test-data", help=f"folder of test_2016_flickr.en.gz, for {REAL_TEXT}")
    parser.add_argument("--json", metavar="FILE", help="target tokens a second: case -> engine")
    options = parser.parse_args()
    if REAL_TEXT in options.cases and not (options.run and options.test_data):
        parser.error(f"the case {REAL_TEXT} needs --run and --test-data")
    return options


def take_turns(engines, repeats):
    """The median seconds of a call of each engine.

    In its turn an engine waits until the threads of the one before it have gone to sleep, is
    called once to wake its own, and is then timed.
    """
    for call in engines.values():
        call()
    times = {name: [] for name in engines}
    for _ in range(repeats):
        for name, call in engines.items():
            time.sleep(PAUSE)
            call()
            for _ in range(CALLS_IN_A_TURN):
                start = time.perf_counter()
                call()
                times[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in times.items()}


def print_case(name, seconds, rates):
    print(f"\n{name}\n{'engine':20}{'seconds':>10}{'tokens/s':>12}{'of ctranslate2':>16}")
    reference = rates.get("ctranslate2")
    for engine, value in seconds.items():
        ratio = f"{rates[engine] / reference:.2f}" if reference else "-"
        print(f"{engine:20}{value:10.4f}{rates[engine]:12.0f}{ratio:>16}", flush=True)


def build_random(name, directory, options):
    """Engines of random weights, and the number of tokens of a call."""
    import keras

    from keras_transformer import Tokenizer, Transformer

    case = CASES[name]
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
    pieces = [piece(i) for i in range(1000)]
    texts = ["".join(rng.choices(pieces, k=case.source_length - 1)) for _ in range(case.batch_size)]
    length = {"min_length": case.length, "max_length": case.length}
    search = "beam" if case.beam_size > 1 else "greedy"
    settings = {"search": search, "beam_size": case.beam_size, **length}
    engines = graph_engines(model, tokenizer, texts, settings, directory, options.engines)
    decoding = {
        "beam_size": case.beam_size,
        "min_decoding_length": case.length,
        "max_decoding_length": case.length,
    }
    sources = [tokenizer.pieces(ids) for ids in tokenizer.tokenize(texts).to_list()]
    for engine, translator in ctranslate2_engines(model, tokenizer, directory, options).items():
        engines[engine] = lambda translator=translator: translator.translate_batch(
            sources, **decoding
        )
    return engines, lambda engine: case.batch_size * case.length


def build_real_text(name, directory, options):
    """Engines of a trained run on a test set, text in to text out."""
    import sentencepiece

    from keras_transformer.export.run_directory import load_run

    model, tokenizer = load_run(options.run)
    path = Path(options.test_data) / "test_2016_flickr.en.gz"
    with gzip.open(path, "rt", encoding="utf-8") as file:
        texts = file.read().splitlines()
    settings = {"beam_size": BEAM_SIZE, "batch_size": BATCH_SIZE}
    wanted = [engine for engine in options.engines if engine != "xla"]
    engines = graph_engines(model, tokenizer, texts, settings, directory, wanted)
    for engine, translator in ctranslate2_engines(model, tokenizer, directory, options).items():

        def translate(translator=translator):
            results = translator.translate_batch(
                processor.encode(texts, out_type=str),
                beam_size=BEAM_SIZE,
                max_batch_size=BATCH_SIZE,
                length_penalty=0.6,
                disable_unk=True,
                suppress_sequences=[["<pad>"], ["<s>"]],
            )
            return processor.decode([result.hypotheses[0] for result in results])

        engines[engine] = translate
    processor = sentencepiece.SentencePieceProcessor(model_proto=tokenizer.model)
    counts = {}

    def tokens(engine):
        if engine not in counts:
            counts[engine] = sum(len(ids) for ids in processor.encode(engines[engine]()))
        return counts[engine]

    return engines, tokens


def graph_engines(model, tokenizer, texts, settings, directory, wanted):
    """Exported SavedModels, loaded again, and the same search compiled by XLA from Python."""
    import tensorflow as tf

    from keras_transformer import Translator

    batch = tf.constant([text.encode() for text in texts])
    engines = {}
    for engine, precision in (("graph", "float32"), ("graph_bfloat16", "bfloat16")):
        if engine not in wanted:
            continue
        translator = Translator(model, tokenizer, **settings)
        path = translator.export(directory / engine, precision=precision, signatures=())
        signature = tf.saved_model.load(path).signatures["serving_default"]

        def translate(signature=signature):
            output = signature(text=batch)["translation"].numpy()
            return [translation.decode() for translation in output]

        engines[engine] = translate
    if "xla" in wanted:
        engines["xla"] = xla_engine(model, tokenizer, texts, settings)
    return engines


def xla_engine(model, tokenizer, texts, settings):
    """The search alone, ids to ids, with shapes that are fixed."""
    import tensorflow as tf

    from keras_transformer import beam_search, greedy_search
    from keras_transformer.data.special_tokens import END_ID, PAD_ID, START_ID, UNK_ID

    ids = [[*row, END_ID] for row in tokenizer.tokenize(texts).to_list()]
    source_ids = tf.keras.utils.pad_sequences(ids, padding="post")
    length, beam_size = settings["max_length"], settings["beam_size"]

    @tf.function(jit_compile=True)
    def search(source_ids):
        arguments = {
            "step_fn": model.decode_step,
            "start_ids": tf.fill([source_ids.shape[0]], START_ID),
            "cache": model.init_cache(source_ids, max_length=length, beam_size=beam_size),
            "end_id": END_ID,
            "max_length": length,
            "min_length": length,
            "suppress_ids": (PAD_ID, UNK_ID, START_ID),
        }
        if settings["search"] == "greedy":
            return greedy_search(**arguments).ids
        reorder = model.reorder_cache
        return beam_search(**arguments, beam_size=beam_size, reorder_cache=reorder).ids

    source_ids = tf.constant(source_ids)
    return lambda: search(source_ids).numpy()


def ctranslate2_engines(model, tokenizer, directory, options):
    """Translators of the same weights, in float32 and int8."""
    import ctranslate2

    from keras_transformer.export.ctranslate2 import export_ctranslate2

    engines = {}
    for engine, quantization in (("ctranslate2", None), ("ctranslate2_int8", "int8")):
        if engine in options.engines:
            path = directory / engine
            export_ctranslate2(model, tokenizer, path, quantization=quantization)
            engines[engine] = ctranslate2.Translator(
                str(path), inter_threads=1, intra_threads=options.threads
            )
    return engines


def piece(i):
    """The i-th made-up word: distinct, of letters."""
    letters = []
    for _ in range(4):
        i, digit = divmod(i, 26)
        letters.append(chr(ord("a") + digit))
    return " " + "".join(letters)


def vocabulary(size):
    """A SentencePiece model of `size` ids, the small one of a few words with made-up ones more."""
    from sentencepiece import sentencepiece_model_pb2

    from keras_transformer import Tokenizer

    small = Tokenizer.train_on_texts(["a dog runs"] * 9, vocab_size=300)
    proto = sentencepiece_model_pb2.ModelProto.FromString(small.model)
    known = {entry.piece for entry in proto.pieces}
    made_up = ("\u2581" + piece(i).strip() for i in range(10**6))
    for word in made_up:
        if len(proto.pieces) == size:
            break
        if word not in known:
            proto.pieces.add(piece=word, score=-float(len(proto.pieces)))
    proto.trainer_spec.vocab_size = size
    return proto.SerializeToString()


if __name__ == "__main__":
    main()
