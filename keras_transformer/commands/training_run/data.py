"""What `keras-transformer train` reads: text, its vocabulary, and the batches of both."""

import shutil
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from keras_transformer.backend import STEPS_ARE_PURE
from keras_transformer.commands.messages import counted, log
from keras_transformer.commands.progress import stage
from keras_transformer.commands.text_notes import bleu_note, notes_on
from keras_transformer.commands.training_run import resume
from keras_transformer.commands.training_run.recipe import Text, choose
from keras_transformer.commands.training_run.resume import SAMPLED
from keras_transformer.commands.training_run.text import (
    Texts,
    corpus_records,
    read_texts,
    training_store,
)
from keras_transformer.commands.vocabulary_size import choose_vocab_size, vocab_size_of_corpus
from keras_transformer.data.batching import TokenBatches
from keras_transformer.data.epochs import endless_ahead
from keras_transformer.data.pair_batches import PairBatches
from keras_transformer.data.sampled_epochs import SampledEpochs
from keras_transformer.data.shares import EpochSequence, Share
from keras_transformer.data.token_rows import TokenPairs, tokenize_rows
from keras_transformer.data.token_store import TokenStore
from keras_transformer.data.tokenizer import Tokenizer
from keras_transformer.data.vocabulary import draw_sample
from keras_transformer.inference.text_module import EXTRA_TOKENS, TOKENS_PER_SOURCE_TOKEN
from keras_transformer.training.jax_devices import num_batch_shards, process
from keras_transformer.training.run_record import TextRecord

# A sample of this size is enough to estimate the number of tokens.
MOST_SAMPLED = 10_000
# The most pairs to validate on that are advised; of little text it is a tenth.
MOST_VALID = 1_000


class TrainingData(NamedTuple):
    """What a run trains on, and what it validates on, if anything.

    Attributes:
        texts: the text of both.
        records: a record of each file or data set that they come from, by its name.
        tokenizer: the one of all text.
        train: the batches to train on.
        valid: the batches to validate on, or None.
    """

    texts: Texts
    records: dict[str, TextRecord]
    tokenizer: Tokenizer
    train: PairBatches
    valid: TokenBatches | None


def training_data(options, files, record, resumes) -> TrainingData:
    """Reads the text, learns or loads its vocabulary, and splits it into subwords.

    Args:
        options: those of `train`.
        files: the `TextRecord` of each file that they name.
        record: of the run that is begun again or resumed, or None.
        resumes: whether there is a state to go on from.

    Raises:
        ValueError: if the text is not that of the record.
    """
    known = record if resumes else None
    store = training_store(options, files, known)
    with stage("reading the text", quiet=options.quiet):
        texts = read_texts(options, store)
    corpora = corpus_records(options, texts)
    if record is not None:
        resume.refuse_other_texts(record, corpora)
    elif store is None and options.tokenizer is None:
        choose_vocab_size(options, lambda: vocab_size_of_corpus(texts.train))
    with stage(vocabulary_stage(options, resumes or store), quiet=options.quiet):
        tokenizer = make_tokenizer(texts, options, known)
    refuse_other_vocabulary(store, tokenizer)
    if record is None:
        if store is None and "vocab_size" in options.chosen:
            options.vocab_size = tokenizer.vocab_size  # the text may have fewer
        choose_metric(options, texts.valid)
        size = text_size(texts, tokenizer, options.max_length)
        if not size.pairs:
            raise ValueError(
                f"no pair is left: all have more than --max-length {options.max_length} tokens; "
                "raise it."
            )
        choose(options, size, tokenizer.vocab_size)
    with stage("splitting the text into subwords", quiet=options.quiet):
        train, valid = batches(texts, tokenizer, options)
    return TrainingData(texts, files | corpora, tokenizer, train, valid)


def choose_metric(options, valid) -> None:
    """Has chrF tell the best epoch where BLEU sees no words; a given --metric stays."""
    is_given = "metric" in getattr(options, "typed", ("metric",))
    if valid is None or is_given or not bleu_note(valid.targets, options.bleu_tokenize):
        return
    options.metric = "chrf"
    options.chosen = [*options.chosen, "metric"]


def text_size(texts, tokenizer, max_length) -> Text:
    """Returns the size of the text to train on, without pairs of more than `max_length` tokens.

    Without a store, it is estimated from a sample.
    """
    if isinstance(texts.train, TokenStore):
        pairs, count = texts.train.pairs, len(texts.train) - len(texts.train.left_out)
    else:
        count = len(texts.train.sources)
        samples = (side[:: -(-count // MOST_SAMPLED)] for side in texts.train[:2])
        pairs = TokenPairs(*(tokenize_rows(sample, tokenizer) for sample in samples))
    is_kept = pairs.lengths <= max_length
    # The end token counts, too.
    kept, tokens = is_kept.sum(), (pairs.targets.lengths + 1).sum(where=is_kept)
    numbers = (int(number) * count // len(is_kept) for number in (kept, tokens))
    return Text(*numbers, texts.valid is not None)


def set_last_epoch(batches, num_steps) -> None:
    """Tells batches of a store how long the training is, so that no epoch is split in vain."""
    if isinstance(batches.sample, SampledEpochs):
        batches.sample.end = -(-num_steps // batches.num_batches)


def make_tokenizer(texts, options, record) -> Tokenizer:
    """Learns the vocabulary, or loads the one that is named or of a run that is resumed."""
    if record is not None:
        return Tokenizer.load(resume.tokenizer_path(options.out))
    if options.tokenizer is not None:
        return Tokenizer.load(options.tokenizer)
    if isinstance(texts.train, TokenStore):
        return Tokenizer(texts.train.tokenizer_model)
    pairs = zip(*texts.train[:2], strict=True)
    pairs = draw_sample(pairs, max(options.tokenizer_lines // 2, 1), options.seed)
    both_languages = chain.from_iterable(zip(*pairs, strict=True))
    return Tokenizer.train_on_texts(both_languages, vocab_size=options.vocab_size)


def refuse_other_vocabulary(store, tokenizer) -> None:
    """Raises a ValueError if the ids of a store come from another tokenizer than the run's."""
    if store is not None and store.tokenizer_model != tokenizer.model:
        raise ValueError(
            f"the ids in {store.path} are those of another vocabulary than the run's; restore it, "
            "or train again with --force and without --resume."
        )


def vocabulary_stage(options, is_known) -> str:
    """Says where the vocabulary comes from."""
    if is_known or options.tokenizer is not None:
        return "loading the vocabulary"
    return f"learning a vocabulary of up to {options.vocab_size:,} subwords"


def batches(texts, tokenizer, options):
    """Makes the `TokenBatches` to train and to validate on; the latter may be None."""
    sizes = {"batch_tokens": options.batch_tokens, "max_pair_length": options.max_length}
    sizes["num_buckets"] = options.num_buckets
    random = {"seed": options.seed, "bpe_dropout": options.bpe_dropout}
    if isinstance(texts.train, TokenStore):
        train = texts.train.batches(**sizes, **random, folder=Path(options.out) / SAMPLED)
    else:
        train = TokenBatches(*texts.train[:2], tokenizer, **sizes, **random)
    if texts.valid is None:
        return train, None
    # A batch then needs as much memory as a part of a training batch.
    sizes["batch_tokens"] = -(-options.batch_tokens // options.micro_batches)
    try:
        return train, TokenBatches(*texts.valid[:2], tokenizer, **sizes, shuffle=False)
    except ValueError as error:
        raise ValueError(f"the text to validate on: {error}") from error


def drop_sampled(folder, batches) -> None:
    """Removes what BPE-dropout has made of a store, after the epoch that is made has ended."""
    if isinstance(batches.sample, SampledEpochs):
        batches.sample.close()
    shutil.rmtree(folder, ignore_errors=True)


def stream_of(batches, *place):
    """Returns the endless batches to train on, on JAX as arrays: this process's rows."""
    if STEPS_ARE_PURE:
        share = share_of_process()
        return (share.of(batch) for batch in endless_ahead(batches, *place))
    return batches.stream(*place)


def dataset_of(batches):
    """Returns the batches to validate on, on JAX as arrays: this process's rows."""
    if STEPS_ARE_PURE:
        return EpochSequence(batches, share=share_of_process())
    return batches.dataset()


def share_of_process() -> Share:
    """Returns which rows of each batch this process takes, on JAX."""
    return Share(*process(), num_batch_shards())


def report(data, total_steps, options) -> None:
    """Logs what there is to train on, what was left out and why, and what looks like a mistake."""
    texts, train = data.texts, data.train
    pairs = counted(len(train.kept), "training pair")
    log(f"{pairs} (skipped: {skipped(texts.train, train) or 'none'})")
    subwords = f"{data.tokenizer.vocab_size:,} subwords"
    log(f"{subwords}, {train.num_target_tokens:,} target tokens per epoch")
    for note in chain(notes_on(texts.train, texts.valid), notes_on_subwords(data, options)):
        log(note)
    if data.valid is None:
        log(missing_note(texts.train, len(train.kept)))
    else:
        report_validation(texts.valid, data.valid, options)
    if total_steps <= options.warmup_steps and "warmup_steps" not in options.chosen:
        log(
            f"note: the training ends after {counted(total_steps, 'step')}, within --warmup-steps "
            f"{options.warmup_steps}, before the learning rate is at its largest; give more "
            "--epochs, fewer --batch-tokens or fewer --warmup-steps (a quarter of the steps is "
            "usual)"
        )


def report_validation(corpus, batches, options) -> None:
    """Logs what of the text to validate on was left out, and whether BLEU sees its words."""
    if note := bleu_note(corpus.targets, options.bleu_tokenize):
        instead = "; chrF tells the best epoch (--metric chrf)"
        log(note + (instead if "metric" in options.chosen else ""))
    if reasons := skipped(corpus, batches):
        # Pairs with too many tokens are still translated for BLEU.
        log(f"{counted(len(batches.kept), 'validation pair')} (skipped: {reasons})")


def missing_note(corpus, num_pairs: int) -> str:
    """Returns the note that there is no text to validate on, and what helps."""
    remedy = "name some with --valid-source and --valid-target"
    # Of a split, training sees no source that is held out.
    if isinstance(corpus, TokenStore) or len(set(corpus.sources)) > 1:
        remedy += f", or add --valid-split {min(MOST_VALID, -(-num_pairs // 10))}"
    return (
        "note: no text to validate on, so nothing shows whether the model learns its text by "
        f"heart; {remedy}"
    )


def notes_on_subwords(data, options) -> Iterator[str]:
    """Yields what looks like a mistake in the vocabulary, or in the lengths of the pairs."""
    train, size = data.train, data.tokenizer.vocab_size
    is_given = options.vocab_size is not None and "vocab_size" not in options.chosen
    if is_given and size < options.vocab_size:
        yield (
            f"note: the text has only {size} subwords, fewer than --vocab-size "
            f"{options.vocab_size}; give fewer (a few thousand is usual for little text), or more "
            "text"
        )
    if train.num_too_long > len(train.kept):
        yield (
            f"note: most pairs have more tokens than --max-length {options.max_length}; give a "
            "larger one, or one sentence per line"
        )
    # A search counts the end tokens, too.
    long = num_out_of_reach(*(side.lengths_of(train.kept) + 1 for side in train.tokenized))
    if 10 * long > len(train.kept):
        yield (
            f"note: {long:,} of {counted(len(train.kept), 'target')} are longer than a translation "
            "may be (three tokens for each of the source, and 20)"
        )


def num_out_of_reach(sources, targets) -> int:
    """Returns how many targets are longer than every search is for their source.

    Args:
        sources, targets: the tokens of each with its end token, integers (N,).
    """
    return int((targets > sources * TOKENS_PER_SOURCE_TOKEN + EXTRA_TOKENS).sum())


def skipped(corpus, batches) -> str:
    """Says why pairs of a corpus are not in its batches, and how many."""
    reasons = corpus.skipped | {"more tokens than --max-length": batches.num_too_long}
    return ", ".join(f"{count} {reason}" for reason, count in reasons.items() if count)
