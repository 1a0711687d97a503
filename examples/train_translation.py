"""Trains a small translator with `model.fit`, step by step, and exports it.

    python examples/train_translation.py --source train.en --target train.de --out runs/en-de

Without files it trains on generated English and German sentences.
"""

import argparse

import keras

from keras_transformer import (
    Beam,
    MaskedCrossentropy,
    TokenBatches,
    Tokenizer,
    Transformer,
    TransformerSchedule,
    Translator,
    presets,
    read_files,
    synthetic_pairs,
)

parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
parser.add_argument("--source", help="sentences to translate, one a line")
parser.add_argument("--target", help="their translations")
parser.add_argument("--num-pairs", type=int, default=20_000, help="generated pairs without files")
parser.add_argument("--vocab-size", type=int, default=1000)
parser.add_argument("--epochs", type=int, default=5)
parser.add_argument("--out", default="runs/example")
options = parser.parse_args()
if (options.source is None) != (options.target is None):
    parser.error("--source and --target go together: give both, or neither for generated pairs")

# Text: aligned sentences, the last hundred of them, or a tenth, kept for validation.
if options.source:
    sources, targets, skipped = read_files(options.source, options.target)
    print(f"{len(sources)} pairs, skipped: {skipped}")
else:
    sources, targets = map(list, zip(*synthetic_pairs(options.num_pairs), strict=True))

held_out = min(100, len(sources) // 10)
if not held_out:
    parser.error(
        f"at least 10 pairs are needed, to train on and to validate; there are {len(sources)}"
    )

# Subwords: one vocabulary for both languages, so that all embeddings can be one matrix.
texts = sources[:-held_out], targets[:-held_out]
tokenizer = Tokenizer.train_on_texts(texts[0] + texts[1], vocab_size=options.vocab_size)

# Batches: sentences of similar length, about 2,048 target tokens each.
valid_texts = sources[-held_out:], targets[-held_out:]
train = TokenBatches(*texts, tokenizer, batch_tokens=2048)
valid = TokenBatches(*valid_texts, tokenizer, batch_tokens=2048, shuffle=False)

# The model and the paper's training: Adam, its schedule, label smoothing.
size = presets.TINY
model = Transformer(**size, source_vocab_size=tokenizer.vocab_size)
schedule = TransformerSchedule(d_model=size["d_model"], warmup_steps=1000)
model.compile(
    keras.optimizers.Adam(schedule, beta_1=0.9, beta_2=0.98, epsilon=1e-9),
    loss=MaskedCrossentropy(label_smoothing=0.1),
)
model.fit(
    train.dataset(),
    validation_data=valid.dataset(),
    epochs=options.epochs,
    shuffle=False,
    callbacks=[keras.callbacks.TensorBoard(f"{options.out}/logs", write_graph=False)],
)

# Text to text, and a SavedModel that TensorFlow Serving reads.
translator = Translator(model, tokenizer, Beam(size=4, length_penalty=0.6))
for source, translation in zip(sources[-3:], translator(sources[-3:]), strict=True):
    print(f"{source}\n-> {translation}")
print("exported to", translator.export(f"{options.out}/export"))
