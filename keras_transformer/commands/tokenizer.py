"""`keras-transformer tokenizer`: learns a vocabulary of subwords from text files."""

from keras_transformer.commands.messages import log
from keras_transformer.commands.progress import stage
from keras_transformer.data.corpus import read_lines
from keras_transformer.data.tokenizer import Tokenizer
from keras_transformer.files import replacing


def run(options) -> None:
    """Reads the text, learns, and writes the file that `train --tokenizer` takes."""
    texts = []
    for path in options.text:
        with stage(f"reading {path}", quiet=options.quiet):
            texts += read_lines(path)
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
    log(f"wrote {options.out}, {tokenizer.vocab_size:,} subwords; next: keras-transformer train")
    print(options.out)
