"""`keras-transformer prepare`: from text files of any size to a store, without TensorFlow."""

import shutil
from pathlib import Path
from shlex import quote

from keras_transformer.commands.messages import counted, log
from keras_transformer.commands.progress import Progress, stage
from keras_transformer.commands.training_run.resume import locked
from keras_transformer.commands.vocabulary_size import choose_vocab_size, vocab_size_of_files
from keras_transformer.data.prepare import join_stores, prepare_planned, store_plan
from keras_transformer.data.store_files import is_store
from keras_transformer.data.token_store import TokenStore
from keras_transformer.data.vocabulary import Vocabulary

SHARD = "shard-{:05d}-of-{:05d}"


def run(options) -> None:
    """Writes a store, or a shard of one, or joins the shards."""
    out = Path(options.out)
    if options.shard:
        out /= SHARD.format(*options.shard)
    with locked(out):
        store = join(out) if options.join else prepare(out, options)
    skipped = ", ".join(f"{number} {reason}" for reason, number in store.skipped.items())
    subwords = store.manifest["vocab_size"]
    log(f"{counted(len(store), 'pair')} in {subwords:,} subwords (skipped: {skipped or 'none'})")
    following = f"train --store {quote(str(out))}"
    if options.shard:
        following = f"prepare --join --out {quote(options.out)}, when all shards are there"
    log(f"wrote {out}; next: keras-transformer {following}")
    print(out)


def prepare(out, options) -> TokenStore:
    """Writes the store of the text that the options name."""
    texts = text_files(options)
    if options.tokenizer is None:
        with stage("counting the text", quiet=options.quiet):
            choose_vocab_size(options, lambda: vocab_size_of_files(texts))
        tokenizer = Vocabulary(options.vocab_size, options.tokenizer_lines, options.seed)
    else:
        tokenizer = Path(options.tokenizer).read_bytes()
    plan = store_plan(texts, tokenizer, options.errors, options.shard or (1, 1))
    work = {"processes": options.processes, "replace": options.force}
    return prepare_planned(out, plan, texts, tokenizer, **work, show=shown(options))


def join(out) -> TokenStore:
    """Joins the shards in a directory, and removes them."""
    shards = sorted(out.glob(SHARD.replace("{:05d}", "*")))
    if is_store(out) and not shards:
        return TokenStore(out)
    store = join_stores(out, shards)
    for shard in shards:
        shutil.rmtree(shard)
    return store


def text_files(options) -> list[tuple[str, ...]]:
    """Returns the paths of each text: those of both sides, or the one of a file with tabs."""
    if options.tsv:
        return [(path,) for path in options.tsv]
    return list(zip(options.source, options.target, strict=True))


def shown(options):
    """Makes what shows the stages of a preparation."""

    def show(what, total=None, unit="lines"):
        return Progress(what, total, unit, quiet=options.quiet, keep=True, announce=True)

    return show
