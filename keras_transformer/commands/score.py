"""`keras-transformer score`: how probable given translations are, line by line."""

import sys

from keras_transformer.commands.lines.formats import json_line
from keras_transformer.commands.lines.jobs import answer_files
from keras_transformer.commands.messages import log
from keras_transformer.evaluation.perplexity import text_perplexity


def run(options) -> None:
    """Writes the log-probability of each target, and prints the perplexity of all."""

    def write(window, answers, first, counts):
        targets = window.columns["target"]
        lines = []
        for answer, target, line_cut in zip(answers, targets, window.line_cut, strict=True):
            for name in ("source_cut", "target_cut"):
                counts[name] += bool(answer.get(name))
            counts["line_cut"] += line_cut
            counts["tokens"] += answer["length"]
            counts["bytes"] += len(target.encode())
            counts["log_prob"] += answer["log_prob"]
            lines.append(json_line(answer) if options.json else f"{answer['log_prob']:.4f}")
        return "".join(f"{line}\n" for line in lines).encode()

    paths = {"source": options.source, "target": options.target}
    counts, lines = answer_files(options, "score", paths, options.output, write)
    if not lines:
        return
    if not counts["tokens"]:
        log("note: all pairs are blank, so there is no perplexity")
        return
    numbers = counts["log_prob"], counts["tokens"]
    perplexity = text_perplexity(*numbers, max(counts["bytes"], 1))
    summary = (
        f"perplexity {perplexity.per_token:.2f} per token, {perplexity.per_byte:.3f} per byte; "
        f"log-probability {numbers[0]:.2f} of {numbers[1]:,} tokens in {lines:,} lines"
    )
    # Standard output holds either one line for each pair, or this.
    print(summary) if options.output else log(summary)
    sys.stdout.flush()
