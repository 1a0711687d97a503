"""Draws every picture of docs/visualization.md from a trained translator.

keras-transformer demo
python examples/pictures.py --run runs/demo/run --out docs/images
"""

import argparse
import io
from pathlib import Path

from PIL import Image

from keras_transformer import (
    Beam,
    TransformerSchedule,
    Translator,
    inspect_translation,
    load_run,
    sinusoidal_positions,
)
from keras_transformer.visualization import (
    attention_maps,
    attention_page,
    beam_tree,
    learning_rates,
    mask_maps,
    position_map,
    position_similarity,
    word_attention,
)

parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
parser.add_argument("--run", default="runs/demo/run", help="what train wrote (%(default)s)")
parser.add_argument("--sentence", default="The red hat that Anna bought costs €124.50.")
parser.add_argument("--word", default="den", help="the target word to look at on its own")
parser.add_argument("--beam-size", type=int, default=3)
parser.add_argument("--out", default="runs/pictures", help="directory to write (%(default)s)")
options = parser.parse_args()

model, tokenizer = load_run(options.run)
translator = Translator(model, tokenizer, Beam(size=options.beam_size))
seen = inspect_translation(translator, options.sentence)
encoder, decoder, cross = seen.maps().values()
scores, read, read_again = decoder
words = [piece.removeprefix("\u2581") for piece in seen.target_pieces]
if options.word not in words:
    parser.error(f"--word {options.word}: the translation has {' '.join(words)}; name one of these")
word = words.index(options.word)
padding = ["<pad>"] * 2

figures = {
    "attention_encoder": attention_maps(*encoder, title="Encoder self-attention"),
    "attention_decoder": attention_maps(*decoder, title="Decoder self-attention"),
    "attention_cross": attention_maps(*cross, title="Cross-attention"),
    "attention_word": word_attention(scores, read, read_again, word),
    "beam_tree": beam_tree(seen.history, seen.history_pieces),
    "masks": mask_maps(
        [*seen.source_ids, 0, 0],
        [*seen.read_ids, 0, 0],
        seen.source_pieces + padding,
        seen.read_pieces + padding,
    ),
    "positions": position_map(sinusoidal_positions(100, 128)),
    "position_similarity": position_similarity(sinusoidal_positions(100, 128)),
    "schedule": learning_rates(
        {
            f"d_model {d_model}, warm-up {warmup:,}": TransformerSchedule(d_model, warmup)
            for d_model in (128, 512)
            for warmup in (1000, 4000, 8000)
        },
        20_000,
    ),
}

out = Path(options.out)
out.mkdir(parents=True, exist_ok=True)
for name, figure in figures.items():
    # 256 colors: a third of the bytes, and no eye sees the difference.
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=90)
    image = Image.open(file).convert("RGB").quantize(256)
    image.save(out / f"{name}.png", optimize=True)
shown = ("Decoder self-attention", word)
page = attention_page(seen.maps(), title=f"{options.sentence} → {seen.texts[0]}", shown=shown)
(out / "attention.html").write_text(page, "utf-8")
print(f"wrote {len(figures)} pictures and attention.html to {out}: {seen.texts[0]}")
