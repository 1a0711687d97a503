"""What is written for a line: text after the habits of Moses and Marian, or a JSON object."""

import json
import re

from keras_transformer.commands.messages import one_line
from keras_transformer.inference.word_alignment import pharaoh

SEPARATOR = " ||| "
# What some readers of lines take for the end of one, and controls that JSON allows.
NOT_IN_LINES = re.compile("[\x7f-\x9f\u2028\u2029]")
# What a JSON object has of an answer, in this order.
FIELDS = (
    "translation",
    "translations",
    "score",
    "scores",
    "alignment",
    "source_pieces",
    "target_pieces",
    "log_prob",
    "length",
    "token_log_probs",
    "ended",
    "source_cut",
    "target_cut",
)


def text_lines(options, answer, number) -> list[str]:
    """Writes an answer as text: `number ||| translation ||| alignment ||| score`.

    The number, from 0, is there with --nbest, the other parts if they are asked for.
    """
    texts = answer["translations"] if options.nbest else [answer["translation"]]
    scores = answer["scores"] if options.nbest else [answer.get("score")]
    lines = []
    for text, score in zip(texts, scores, strict=True):
        parts = [str(number)] if options.nbest else []
        parts.append(one_line(text))
        if options.alignments:
            parts.append(pharaoh(answer["alignment"]))
        if options.scores:
            parts.append(f"{score:.4f}")
        lines.append(SEPARATOR.join(parts))
    return lines


def json_line(answer) -> str:
    """Writes an answer as a JSON object in one line."""
    fields = {name: rounded(answer[name]) for name in FIELDS if name in answer}
    if "alignment" in fields:
        fields["alignment"] = pharaoh(answer["alignment"])
    text = json.dumps(fields, ensure_ascii=False)
    return NOT_IN_LINES.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def rounded(value):
    """A float with the digits that float32 has; other values as they are."""
    if isinstance(value, list):
        return [rounded(item) for item in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value
