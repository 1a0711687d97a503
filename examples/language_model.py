"""Trains a language model on Python's documentation, and compares it with n-grams.

    python examples/language_model.py --out runs/topics

The text is that of `help("topics")`: Python itself ships it, so nothing is downloaded.
"""

import argparse
import re
import time
from pydoc_data.topics import topics

import keras
from kneser_ney import KneserNey

from keras_transformer import (
    LanguageModel,
    MaskedCrossentropy,
    PackedBatches,
    Sample,
    TextGenerator,
    Tokenizer,
    hold_out,
    policy,
    save_run,
    text_perplexity,
)

UNDERLINED = re.compile(r"\n(?=[^\n]+\n([*=~^\"-])\1+\n)")  # before a heading


def sections():
    """The topics cut at their headings, without paragraphs that an earlier topic has, too."""
    seen = set()
    for name in sorted(topics):
        for section in UNDERLINED.sub("\f", topics[name]).split("\f"):
            new = []
            for paragraph in re.split(r"\n\s*\n", section):
                words = " ".join(paragraph.split())
                if words and words not in seen:
                    seen.add(words)
                    new.append(paragraph.strip("\n"))
            text = "\n\n".join(new)
            if len(text) > 100:  # more than a heading
                yield text + "\n"


def report(name, perplexity):
    print(
        f"{name}: {perplexity.bits_per_byte:.3f} bits per byte, "
        f"perplexity {perplexity.per_byte:.3f} per byte",
        flush=True,
    )


def ngram_perplexity(model, texts):
    num_bytes = sum(len(text.encode()) for text in texts)
    return text_perplexity(sum(map(model.log_prob, texts)), num_bytes + len(texts), num_bytes)


parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
parser.add_argument("--epochs", type=int, default=16)
parser.add_argument("--num-layers", type=int, default=4)
parser.add_argument("--d-model", type=int, default=192)
parser.add_argument("--vocab-size", type=int, default=1024)
parser.add_argument("--dropout", type=float, default=0.3)
parser.add_argument("--learning-rate", type=float, default=3e-3)
parser.add_argument("--num-sections", type=int, help="the first ones only, for a short trial")
parser.add_argument("--out", help="where to write a run directory")
options = parser.parse_args()

# Text: the sections of the documentation; a tenth of them is only measured.
texts = list(sections())[: options.num_sections]
train, held_out = hold_out(texts, share=0.1)
print(
    f"{len(train)} sections, {sum(map(len, train)):,} characters, to train on; "
    f"{len(held_out)} held out, {sum(map(len, held_out)):,} characters"
)

# The baseline: byte n-grams, whose order is chosen on a part of the training text.
part, validation = hold_out(train, share=0.1)
orders = {n: ngram_perplexity(KneserNey(part, n), validation).per_byte for n in range(6, 15, 2)}
order = min(orders, key=lambda n: orders[n])
baseline = ngram_perplexity(KneserNey(train, order), held_out)
report(f"Kneser-Ney, order {order}", baseline)

# The model, and batches of windows that follow each other without a gap.
length = 256
tokenizer = Tokenizer.train_on_texts(train, vocab_size=options.vocab_size)
batches = PackedBatches(train, tokenizer, length=length, batch_size=8)
model = LanguageModel(
    num_layers=options.num_layers,
    d_model=options.d_model,
    num_heads=4,
    d_ff=options.d_model * 8 // 3,
    vocab_size=tokenizer.vocab_size,
    dropout=options.dropout,
    positions="rotary",
    norm="rms_norm",
    activation="swiglu",
    max_length=length,
    dtype=policy("auto", options.d_model, options.d_model * 8 // 3),
)
steps = options.epochs * batches.num_batches
schedule = keras.optimizers.schedules.CosineDecay(
    0.0, steps, warmup_target=options.learning_rate, warmup_steps=min(100, steps // 4)
)
model.compile(
    keras.optimizers.AdamW(schedule, beta_2=0.98, weight_decay=0.1, global_clipnorm=1.0),
    loss=MaskedCrossentropy(),
)
start = time.perf_counter()
model.fit(batches.dataset(), epochs=options.epochs, shuffle=False, verbose=2)
print(f"{model.count_params():,} parameters, {(time.perf_counter() - start) / 60:.1f} minutes")

# Text from prompts, and how well text is predicted that was never seen.
strategy = Sample(temperature=0.8, top_p=0.95, seed=1)
generator = TextGenerator(model, tokenizer, strategy, max_length=64)
for text in generator(['The "while" statement', "A list is", "If the exception"]):
    print("---", text, sep="\n")
print("---")
perplexity = generator.perplexity(held_out)
report("Kneser-Ney", baseline)
report("this model", perplexity)
saved = 1 - perplexity.bits_per_byte / baseline.bits_per_byte
print(f"{saved:.1%} fewer bits; {perplexity.per_token:.2f} perplexity per token")

if options.out:
    save_run(model, tokenizer, options.out)
    print("saved in", options.out)
