"""Translates with an exported SavedModel; needs tensorflow and tensorflow-text only.

python examples/translate.py runs/example/export/1 < input.txt

Prints a line for each line of standard input: the score, a tab, the translation.
"""

import sys

import tensorflow as tf
import tensorflow_text  # noqa: F401, registers the tokenizer's ops

if len(sys.argv) != 2:
    sys.exit(__doc__)
if not tf.saved_model.contains_saved_model(sys.argv[1]):
    sys.exit(f"{sys.argv[1]} holds no SavedModel; name a version's directory, such as DIRECTORY/1")
model = tf.saved_model.load(sys.argv[1])
translate = model.signatures["serving_default"]
lines = [line.rstrip(b"\r\n") for line in sys.stdin.buffer]  # its tokenizer decodes them
for start in range(0, len(lines), 32):
    output = translate(tf.constant(lines[start : start + 32]))
    for translation, score in zip(output["translation"], output["score"], strict=True):
        # A line break in a translation would shift all lines after it.
        text = translation.numpy().decode().replace("\r", " ").replace("\n", " ")
        print(f"{float(score):.3f}\t{text}")
