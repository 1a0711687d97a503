"""Tells in which of 24 languages a name is written, and exports the classifier from text.

    python examples/classification.py --out exports/languages

The names of countries, languages, scripts and currencies come with Babel (Unicode's CLDR). What a
name stands for is either in training or in the test, in all languages: where "Deutschland" is
trained on, "Allemagne" is not tested. Names spelled alike in two languages are left out. Beside
the model, as a baseline, naive Bayes over runs of letters, the usual method for this task.
"""

import argparse
import collections
import time

import keras
import numpy as np
from babel import Locale

from keras_transformer import SequenceClassifier, Tokenizer, export_classifier

LANGUAGES = (
    "ca cs da de en es et fi fr hr hu is it lt lv nb nl pl pt ro sk sl sv tr"  # in Latin letters
).split()
BATCH_SIZE = 64


def names() -> dict[tuple[str, str], dict[str, str]]:
    """The name of each thing in each language: {thing: {language: name}}."""
    found: dict[tuple[str, str], dict[str, str]] = collections.defaultdict(dict)
    for language in LANGUAGES:
        locale = Locale.parse(language)
        for kind in ("territories", "languages", "scripts", "currencies"):
            for code, name in getattr(locale, kind).items():
                found[kind, code][language] = name
    spelled = collections.Counter(name for of in found.values() for name in of.values())
    return {
        thing: {language: name for language, name in of.items() if spelled[name] == 1}
        for thing, of in sorted(found.items())
    }


def splits(seed=0):
    """Names and the numbers of their languages, of things drawn for (train, validation, test)."""
    things = list(names().values())
    order = np.random.default_rng(seed).permutation(len(things))
    parts = np.split(order, [int(0.8 * len(order)), int(0.9 * len(order))])
    result = []
    for part in parts:
        pairs = [pair for i in part for pair in things[i].items()]
        labels = np.array([LANGUAGES.index(language) for language, _ in pairs])
        result.append(([name for _, name in pairs], labels))
    return result


class NaiveBayes:
    """Multinomial naive Bayes over runs of 1 to `longest` characters, with additive smoothing."""

    def __init__(self, texts, labels, longest, smoothing):
        self.longest = longest
        counts: dict[str, np.ndarray] = collections.defaultdict(lambda: np.zeros(len(LANGUAGES)))
        for text, label in zip(texts, labels, strict=True):
            for run in self.runs(text):
                counts[run][label] += 1
        total = np.sum(list(counts.values()), axis=0) + smoothing * len(counts)
        self.log_probs = {run: np.log((c + smoothing) / total) for run, c in counts.items()}
        self.prior = np.log(np.bincount(labels, minlength=len(LANGUAGES)) / len(labels))

    def runs(self, text):
        text = f" {text} "
        for size in range(1, self.longest + 1):
            yield from (text[i : i + size] for i in range(len(text) - size + 1))

    def predict(self, texts):
        zero = np.zeros(len(LANGUAGES))
        scores = [
            self.prior + sum(self.log_probs.get(run, zero) for run in self.runs(text))
            for text in texts
        ]
        return np.argmax(scores, axis=1)


def padded(rows) -> np.ndarray:
    """Lists of ids as one array, padded at the end."""
    ids = np.zeros((len(rows), max(map(len, rows))), "int32")  # 0 is padding
    for row, of in zip(ids, rows, strict=True):
        row[: len(of)] = of
    return ids


def train(texts, labels, options):
    """A tokenizer and a classifier; every epoch splits the names anew (BPE-dropout)."""
    tokenizer = Tokenizer.train_on_texts(texts, vocab_size=options.vocab_size)
    rng, rows, order = np.random.default_rng(0), [], []
    for epoch in range(options.epochs):
        sampled = tokenizer.sample(texts, options.split_dropout, seed=epoch)
        order.append(rng.permutation(len(texts)))
        rows += [sampled[i] for i in order[-1]]
    model = SequenceClassifier(
        num_classes=len(LANGUAGES),
        vocab_size=tokenizer.vocab_size,
        num_layers=2,
        d_model=options.d_model,
        num_heads=4,
        d_ff=2 * options.d_model,
        dropout=options.dropout,
    )
    steps = -(-len(rows) // BATCH_SIZE)
    schedule = keras.optimizers.schedules.CosineDecay(
        0.0, steps, warmup_target=options.learning_rate, warmup_steps=steps // 10
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(schedule, global_clipnorm=1.0), loss)
    labels = labels[np.concatenate(order)]
    model.fit(padded(rows), labels, batch_size=BATCH_SIZE, shuffle=False, verbose=0)
    return tokenizer, model


def accuracy(model, tokenizer, texts, labels) -> float:
    ids = padded(tokenizer.tokenize(texts).to_list())
    return float(np.mean(model.predict(ids, batch_size=512, verbose=0).argmax(1) == labels))


def main():
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--out", help="directory to export to")
    parser.add_argument("--limit", type=int, help="train on the first so many names only")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--vocab-size", type=int, default=1000)
    parser.add_argument("--d-model", type=int, default=64)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--split-dropout", type=float, default=0.1, help="rate of BPE-dropout")
    parser.add_argument("--learning-rate", type=float, default=2e-3)
    options = parser.parse_args()

    (texts, labels), valid, test = splits()
    texts, labels = texts[: options.limit], labels[: options.limit]
    print(f"{len(texts)} names to train on, {len(valid[0])} to validate, {len(test[0])} to test")
    print("| model | parameters | validation | test | seconds of training |")
    print("|---|---|---|---|---|")
    most = np.bincount(labels).argmax()
    shares = [np.mean(part[1] == most) for part in (valid, test)]
    print(f"| the most frequent language | 1 | {shares[0]:.1%} | {shares[1]:.1%} | |")
    start = time.perf_counter()
    bayes = NaiveBayes(texts, labels, longest=5, smoothing=0.01)
    seconds, count = time.perf_counter() - start, len(bayes.log_probs) * len(LANGUAGES)
    shares = [np.mean(bayes.predict(part[0]) == part[1]) for part in (valid, test)]
    print(f"| naive Bayes | {count:,} | {shares[0]:.1%} | {shares[1]:.1%} | {seconds:.0f} |")
    start = time.perf_counter()
    keras.utils.set_random_seed(0)
    tokenizer, model = train(texts, labels, options)
    seconds = time.perf_counter() - start
    shares = [accuracy(model, tokenizer, *part) for part in (valid, test)]
    name, count = "SequenceClassifier", model.count_params()
    print(f"| {name} | {count:,} | {shares[0]:.1%} | {shares[1]:.1%} | {seconds:.0f} |")
    if options.out:
        print("exported to", export_classifier(model, options.out, tokenizer=tokenizer))


if __name__ == "__main__":
    main()
