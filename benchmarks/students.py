"""How fast teachers and students translate: runs on a text, or sizes of random weights.

    python benchmarks/students.py runs/teacher runs/student --text test_2016_flickr.en.gz
    python benchmarks/students.py 4+4 6+2 6+1 --vocab-size 8000
    python benchmarks/students.py 4+4 6+1 --sentences 64 --at-once 1

The models take turns in one thread, and processor time is counted, not time on the clock; so other
work on the machine disturbs little. A size is the layers of the encoder and of the decoder, of the
preset tiny; its sentences and translations have 16 tokens each. The last column compares with the
first line.
"""

import argparse
import random
import re
import statistics
import time

import engines
from arguments import positive

LENGTH = 16
WARM_UPS = 2  # an optimizer of TensorFlow works on the first calls


def main():
    options = parse_options()
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    calls, tokens = {}, {}
    for name in options.models:
        model, tokenizer, texts, length = build(name, options)
        for search in options.searches:
            translate = translator(model, tokenizer, length, search)
            calls[name, search] = call = translating(translate, texts, options.at_once)
            for _ in range(WARM_UPS):
                translations = call()
            tokens[name, search] = count_tokens(tokenizer, translations, length)
    seconds = {key: [] for key in calls}
    for _ in range(options.repeats):
        for key, call in calls.items():
            start = time.process_time()
            call()
            seconds[key].append(time.process_time() - start)
    print_table(seconds, tokens, len(texts))


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="+", metavar="MODEL", help="a run, or a size such as 6+1")
    parser.add_argument("--text", help="the sentences, for runs")
    parser.add_argument("--vocab-size", type=positive, default=8000, help="of sizes")
    parser.add_argument("--sentences", type=positive, default=512, help="to translate, of sizes")
    parser.add_argument("--at-once", type=positive, default=4096, help="sentences in a call")
    parser.add_argument("--searches", nargs="+", choices=("greedy", "beam"), default=["greedy"])
    parser.add_argument("--repeats", type=positive, default=5)
    options = parser.parse_args()
    sizes = [name for name in options.models if layers(name)]
    if sizes and (options.text or len(sizes) < len(options.models)):
        parser.error("sizes have no text, and stand beside no runs; give one kind")
    if not sizes and not options.text:
        parser.error("runs need --text")
    return options


def layers(name):
    """The layers of the encoder and of the decoder that a size names, or None."""
    found = re.fullmatch(r"(\d+)\+(\d+)", name)
    return found and tuple(map(int, found.groups()))


def build(name, options):
    """A model, its tokenizer, sentences, and how long each translation is, None if they differ."""
    from keras_transformer import Tokenizer, Transformer, load_run, presets, read_lines

    if not layers(name):
        return *load_run(name), read_lines(options.text), None
    tokenizer = Tokenizer(engines.vocabulary(options.vocab_size))
    depths = dict(zip(("num_layers", "num_decoder_layers"), layers(name), strict=True))
    model = Transformer(**presets.TINY | depths, source_vocab_size=options.vocab_size)
    words = [engines.word(i) for i in range(300)]
    rng = random.Random(0)
    # A word at the beginning has no space before it, so it would be many pieces.
    texts = [" ".join(["a", *rng.choices(words, k=LENGTH - 2)]) for _ in range(options.sentences)]
    return model, tokenizer, texts, LENGTH


def translator(model, tokenizer, length, search):
    """A translator that writes `length` tokens; with None, it stops where the model does."""
    from keras_transformer import Beam, Greedy, Translator

    limits = {} if length is None else {"max_length": length}
    strategy = (Greedy if search == "greedy" else Beam)(min_length=length or 0)
    return Translator(model, tokenizer, strategy, num_parallel_batches=1, **limits)


def translating(translate, texts, at_once):
    """A function that translates all sentences in this thread, and returns the translations."""
    import tensorflow as tf

    texts = [text.encode() for text in texts]
    parts = [tf.constant(texts[i : i + at_once]) for i in range(0, len(texts), at_once)]

    def call():
        answers = [translate.translate_tensor(text=part)["translation"].numpy() for part in parts]
        return [text for answer in answers for text in answer]

    return call


def count_tokens(tokenizer, translations, length) -> int:
    """The target tokens of some translations, their end tokens included."""
    if length is not None:
        return length * len(translations)
    return int(tokenizer.tokenize(translations).flat_values.shape[0]) + len(translations)


def print_table(seconds, tokens, sentences):
    widest = max(len(name) for name, _ in seconds)
    print(f"a processor second: {'':{widest}}sentences  target tokens  of the first")
    first = None
    for (name, search), values in seconds.items():
        median = statistics.median(values)
        first = first or median
        rates = f"{sentences / median:9.1f}  {tokens[name, search] / median:13.0f}"
        print(f"{name:{widest}} {search:18} {rates}  {first / median:12.2f}", flush=True)


if __name__ == "__main__":
    main()
