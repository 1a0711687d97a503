"""`distil`: one line in, one line out, by one teacher or several, of the best or the nearest."""

from types import SimpleNamespace

import pytest

from keras_transformer import Ensemble, Tokenizer, Transformer, Translator, save_run
from keras_transformer.cli import main
from keras_transformer.commands.lines import batches
from keras_transformer.evaluation.scores import nearest

LINES = ["a dog runs", "", "long", "endless", "nothing", "the cat", " "]
REFERENCES = ["ein Hund", "leer", "lang", "endlos", "nichts", "die Katze", ""]
ANSWERS = {
    "": ([""], [True]),
    " ": ([""], [True]),
    "a dog runs": (["ein Hund rennt", "Hund"], [True, True]),
    "the cat": (["eine Katze", "die Katze"], [True, True]),
    "endless": (["und und und", "und"], [False, False]),
    "nothing": (["\u200b", ""], [True, True]),
    "long": (["der Anfang", "Anfang"], [True, True]),
}


@pytest.fixture
def text(tmp_path):
    """Paths of the source, of the references, and of what to write."""
    paths = [tmp_path / name for name in ("train.en", "train.de", "out.de")]
    for path, lines in zip(paths, (LINES, REFERENCES), strict=False):
        path.write_text("".join(f"{line}\n" for line in lines), "utf-8")
    return list(map(str, paths))


@pytest.fixture
def teacher(monkeypatch):
    """Lets `distil` get the answers above; its list `asked` has the columns of each call."""

    def load(paths, options, what):
        def ask(columns):
            teacher.asked.append(columns)
            return [answer(text, what) for text in columns["text"]]

        return SimpleModel(ask, 2, 2, "are cut")

    teacher = SimpleNamespace(asked=[])
    monkeypatch.setattr("keras_transformer.commands.loading.load_runs", load)
    monkeypatch.setattr(batches, "LINES", 3)
    return teacher


class SimpleModel(SimpleNamespace):
    def __init__(self, ask, batch_size, threads, limit):
        super().__init__(ask=ask, batch_size=batch_size, threads=threads, limit=limit)

    def _replace(self, ask):
        return SimpleModel(ask, self.batch_size, self.threads, self.limit)


def answer(text, what):
    texts, ended = ANSWERS[text]
    fields = {"source_cut": text == "long"}
    if what == "nbest":
        return fields | {"translations": texts * 2, "ended": ended * 2}
    return fields | {"translation": texts[0], "ended": ended[0]}


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read().split("\n")[:-1]


def test_what_is_not_whole_is_empty_or_the_reference(run, text, teacher, capsys):
    source, target, out = text
    assert main(["distil", run, "--source", source, "--out", out, "--quiet"]) == 0
    assert read(out) == ["ein Hund rennt", "", "", "", "", "eine Katze", ""]
    said = capsys.readouterr().err
    assert "2 of 7 lines of" in said and "are blank, and so are those of" in said
    assert "3 of 7 lines have no whole translation: they are blank; train leaves" in said
    assert "note: 1 of 7 lines are cut" in said and "1 of 7 translations end at a limit" in said
    assert f"--source {source} --target {out} --tokenizer {run}/tokenizer.model" in said

    again = f"{out}.again"
    arguments = ["distil", run, "--source", source, "--target", target, "--quiet", "--out", again]
    assert main(arguments) == 0
    assert read(again) == ["ein Hund rennt", "", "lang", "endlos", "nichts", "eine Katze", ""]
    assert f"3 of 7 lines have no whole translation: they are those of {target}" in (
        capsys.readouterr().err
    )
    assert all(columns.keys() == {"text"} for columns in teacher.asked)


@pytest.mark.parametrize("by", [[], ["--by", "bleu"]])
def test_of_the_n_best_the_nearest_is_taken(run, text, teacher, by):
    source, target, out = text
    arguments = ["--source", source, "--target", target, "--out", out, "--nbest", "2", *by]
    assert main(["distil", run, *arguments]) == 0
    best = nearest(["ein Hund rennt", "Hund"], "ein Hund", by[-1] if by else "chrf")
    assert read(out)[0] == ANSWERS["a dog runs"][0][best] and read(out)[5] == "die Katze"


def test_the_parts_are_the_whole(run, text, teacher, tmp_path):
    source, target, out = text
    arguments = ["distil", run, "--source", source, "--target", target, "--out"]
    assert main([*arguments, out]) == 0
    parts = [f"{out}.{i}" for i in (1, 2, 3)]
    for i, part in enumerate(parts, start=1):
        assert main([*arguments, part, "--shard", f"{i}/3"]) == 0
    assert sum(map(read, parts), []) == read(out)


def test_a_stopped_command_goes_on(run, text, teacher, monkeypatch, capsys):
    source, _, out = text
    arguments = ["distil", run, "--source", source, "--out", out]
    with monkeypatch.context() as patch:
        patch.delitem(ANSWERS, " ")
        assert main(arguments) == 1
    done = len(read(out))
    teacher.asked.clear()
    assert main(arguments) == 0 and len(read(out)) == len(LINES)
    assert sum(len(columns["text"]) for columns in teacher.asked) == len(LINES) - done
    assert f"going on after line {done}" in capsys.readouterr().err and 0 < done < len(LINES)


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        (["--nbest", "2"], "--nbest takes what is nearest to --target; name it"),
        (["--by", "bleu"], "--by bleu chooses among the N best; add --nbest"),
        (["--nbest", "5", "--beam-size", "4"], "--nbest must be at most --beam-size 4"),
        (["--out", "{source}"], "would replace what --source reads"),
        (["--out", "{source}.gz"], "is written without compression; leave out .gz"),
        (["--target", "{source}.no"], "does not exist"),
        (["--shard", "3/2"], "must be I/N"),
    ],
)
def test_what_cannot_be_done_is_refused_at_once(run, text, extra, message, capsys):
    source, _, out = text
    arguments = ["distil", run, "--source", source, "--out", out]
    arguments += [word.format(source=source) for word in extra]
    try:
        assert main(arguments) == 1
    except SystemExit as end:
        assert end.code == 2
    assert message in capsys.readouterr().err


def test_teachers_share_a_tokenizer(tokenizer, text, tmp_path, capsys):
    other = Tokenizer.train_on_texts(["another text"] * 9, vocab_size=300)
    sizes = {"num_layers": 1, "d_model": 8, "num_heads": 2, "d_ff": 8}
    runs = [str(tmp_path / name) for name in ("one", "two")]
    for path, own in zip(runs, (tokenizer, other), strict=True):
        save_run(Transformer(**sizes, source_vocab_size=own.vocab_size), own, path)
    source, _, out = text
    assert main(["distil", *runs, "--source", source, "--out", out]) == 1
    said = capsys.readouterr().err
    assert f"{runs[1]} has another tokenizer than {runs[0]}" in said
    assert f"--tokenizer {runs[0]}/tokenizer.model" in said


@pytest.mark.slow
def test_several_teachers_are_their_ensemble(trained, tokenizer, sentences, tmp_path, randomize):
    import keras

    copy = keras.models.clone_model(trained)
    copy.set_weights(trained.get_weights())
    runs = [str(tmp_path / name) for name in ("one", "two")]
    for path, model in zip(runs, (trained, randomize(copy, 0.02)), strict=True):
        save_run(model, tokenizer, path)
    source, out = tmp_path / "source", tmp_path / "out"
    source.write_text("".join(f"{line}\n" for line in sentences[0]), "utf-8")
    assert main(["distil", *runs, "--source", str(source), "--out", str(out)]) == 0
    assert read(out) == Translator(Ensemble([trained, copy]), tokenizer)(sentences[0])
