"""`keras-transformer tokenizer`: learns a vocabulary of subwords from text files."""

from itertools import chain
from shlex import quote

from keras_transformer.commands.messages import log
from keras_transformer.commands.progress import stage
from keras_transformer.data.text_lines import iterate_lines
from keras_transformer.data.tokenizer import Tokenizer
from keras_transformer.data.vocabulary import draw_sample
from keras_transformer.files import replacing


def run(options) -> None:
    """Reads the text, learns, and writes the file that `train --tokenizer` takes."""
    lines = chain.from_iterable(map(iterate_lines, options.text))
    with stage("drawing lines to learn from", quiet=options.quiet):
        texts = draw_sample(lines, options.tokenizer_lines, options.seed)
    with stage(f"learning subwords from {len(texts):,} lines", quiet=options.quiet):
        tokenizer = Tokenizer.train_on_texts(
            texts,
            vocab_size=options.vocab_size,
            coverage=options.coverage,
            user_symbols=options.symbols or (),
        )
    with replacing(options.out) as path:
        tokenizer.save(path)
    if tokenizer.vocab_size < options.vocab_size:
        log(f"note: the text has only {tokenizer.vocab_size} subwords")
    following = f"keras-transformer train --tokenizer {quote(options.out)} ..."
    log(f"wrote {options.out}, {tokenizer.vocab_size:,} subwords; next: {following}")
    print(options.out)
