"""Pages by the data in them, and in a browser where there is one."""

import html
import json
import re
import shutil
import subprocess
from html.parser import HTMLParser

import numpy as np
import pytest

from keras_transformer.visualization import attention_page
from keras_transformer.visualization.pages import (
    form,
    heading,
    note,
    page,
    script_json,
    table,
    words_of,
    words_with_notes,
)

BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), ""
)
HOSTILE = ["</script><b>x</b>", "\"'`${1}", "\u2028", "שלום", "<!--", "{{data}}", "&amp;", "\n"]


class Reader(HTMLParser):
    """The text of each element by tag, and every address that an attribute names."""

    def __init__(self, text):
        super().__init__()
        self.texts, self.open, self.addresses, self.tags = {}, [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.open.append(tag)
        self.texts.setdefault(tag, []).append("")
        self.addresses += [v for k, v in attributes if k in ("src", "href", "action", "data")]

    def handle_endtag(self, tag):
        while self.open and self.open.pop() != tag:
            pass

    def handle_data(self, data):
        if self.open:
            self.texts[self.open[-1]][-1] += data


@pytest.fixture
def maps(random):
    def scores(*shape):
        scores = np.exp(2 * random(*shape))
        return scores / scores.sum(-1, keepdims=True)

    return {
        "Encoder": (scores(2, 3, 8, 8), HOSTILE, HOSTILE),
        "Cross": (scores(2, 3, 4, 8), list("abcd"), HOSTILE),
    }


def test_the_page_holds_all_scores_and_pieces_and_no_address(maps):
    text = attention_page(maps, title="</title><script>alert(1)</script>", shown=("Cross", 2))
    reader = Reader(text)
    assert reader.addresses == []
    assert set(re.findall(r"https?://[^\"'<> ]+", text)) == {"http://www.w3.org/2000/svg"}
    assert reader.tags.count("script") == 2 and "b" not in reader.tags
    assert reader.texts["title"] == reader.texts["h1"] == ["</title><script>alert(1)</script>"]
    data = json.loads(reader.texts["script"][0])
    assert data["shown"] == {"map": 1, "word": 2}
    visible = [*HOSTILE[:-1], "↵"]
    assert [m["name"] for m in data["maps"]] == ["Encoder", "Cross"]
    assert [m["queries"] for m in data["maps"]] == [visible, list("abcd")]
    assert [m["keys"] for m in data["maps"]] == [visible, visible]
    for shown, (scores, *_) in zip(data["maps"], maps.values(), strict=True):
        np.testing.assert_allclose(np.array(shown["scores"]) / 1000, scores, atol=5.1e-4)
    assert "default-src 'none'" in text and "{{" not in text.replace("{{data}}", "")


def test_json_in_a_script_is_ascii_and_has_no_tags():
    text = script_json(HOSTILE)
    assert text.isascii() and not set("<>&") & set(text)
    assert json.loads(text) == HOSTILE


def test_parts_of_a_page_take_any_text():
    words = HOSTILE[:3]
    text = page(
        "t",
        [
            *(heading("<i>", "a & b"), form(HOSTILE[0]), note(HOSTILE[4])),
            *(table(words, [words]), words_with_notes(words, words, words)),
        ],
    )
    reader = Reader(text)
    assert not {"i", "b", "script"} & set(reader.tags)
    assert reader.texts["h2"] == ["<i>"]
    assert f'value="{html.escape(HOSTILE[0])}"' in text and HOSTILE[4] in reader.texts["p"]
    assert reader.texts["td"] == reader.texts["bdi"] == reader.texts["small"] == words
    assert '<td class="number">-0.50</td>' in table(["x"], [[-0.5]])
    assert '<td class="number">3</td>' in table(["x"], [[3]])


@pytest.mark.parametrize(
    "pieces, words",
    [
        ("A nna \u2581b ough t \u2581it . </s>", "Anna bought it. </s>"),
        ("<s> A nna \u2581sleeps", "<s> Anna sleeps"),
        ("\u2581 4 0 \u2581\u20ac", "40 \u20ac"),
        ("\u2581今日 は \u2581Tok yo", "今日 は Tokyo"),
        ("a b c", "a b c"),  # strings of others, which begin with no sign
    ],
)
def test_words_are_the_pieces_between_spaces(pieces, words):
    pieces = pieces.split(" ")
    groups = words_of(pieces)
    assert sum(groups, []) == list(range(len(pieces)))
    spelled = ["".join(pieces[i] for i in group).replace("\u2581", "") for group in groups]
    assert spelled == words.split(" ")


@pytest.mark.parametrize("shown", [("Cross", 4), ("Decoder", 0)])
def test_a_word_that_is_not_there_is_an_error(maps, shown):
    with pytest.raises(ValueError, match="shown must be the name of a map and an index of its"):
        attention_page(maps, shown=shown)


def test_no_map_is_an_error():
    with pytest.raises(ValueError, match="maps is empty"):
        attention_page({})


# What a reader does, one act after another; what is then to be read is collected.
READER = """
<script>
const read = () => document.querySelector(".summary").textContent;
const words = () => [...document.querySelectorAll(".queries button")];
const choose = (label, name) => [...document.querySelectorAll(`[aria-label="${label}"] button`)]
  .find((button) => button.textContent === name).click();
const seen = [read()];
words()[1].dispatchEvent(new Event("mouseenter"));
seen.push(read());
words()[1].dispatchEvent(new Event("mouseleave"));
seen.push(read());
words()[3].focus();
seen.push(read());
choose("Layer", "1");
choose("Head", "3");
seen.push(read());
choose("Attention", "Cross");
words()[2].click();
seen.push(read());
const shares = [...document.querySelectorAll(".keys .percent")].map((x) => parseInt(x.textContent));
const wide = document.documentElement.scrollWidth > innerWidth;
const rows = document.querySelectorAll(".heads tbody tr").length;
const paths = document.querySelectorAll(".lines path").length;
document.body.textContent = JSON.stringify({ seen, shares, wide, rows, paths });
</script></body>"""


def read_in_a_browser(page, script, tmp_path, *options):
    """What a script at the end of a page leaves as its text, as JSON."""
    path = tmp_path / "page.html"
    path.write_text(page.replace("</body>", script), "utf-8")
    always = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--dump-dom"]
    profile = f"--user-data-dir={tmp_path / 'profile'}"
    command = [BROWSER, *always, profile, *options, path.as_uri()]
    result = subprocess.run(command, capture_output=True, timeout=60)
    (body,) = Reader(result.stdout.decode()).texts["body"]
    return json.loads(body)


# The same, of words and pieces, and what the page looks like.
WORD_READER = """
<script>
const words = () => [...document.querySelectorAll(".queries button")].map((x) => x.textContent);
const choose = (name) => [...document.querySelectorAll(`[aria-label="Show"] button`)]
  .find((button) => button.textContent === name).click();
const read = () => [words(), document.querySelector(".summary").textContent,
  [...document.querySelectorAll(".keys .percent")].map((x) => parseInt(x.textContent))];
const seen = [read()];
choose("pieces");
seen.push(read());
choose("words");
seen.push(read());
const dark = getComputedStyle(document.body).backgroundColor;
const [left, right] = [...document.querySelector(".sides").children]
  .map((side) => side.getBoundingClientRect());
document.body.textContent = JSON.stringify({ seen, dark, used: right.right / innerWidth,
  beside: left.top === right.top });
</script></body>"""


@pytest.mark.slow
@pytest.mark.skipif(not BROWSER, reason="no chromium or google-chrome is found; make browser")
def test_in_a_browser_words_are_sums_of_pieces_in_the_dark_and_on_the_whole_width(random, tmp_path):
    pieces = ["A", "nna", "\u2581b", "ough", "t", "\u2581it", "</s>"]
    scores = np.exp(random(1, 2, 7, 7))
    scores /= scores.sum(-1, keepdims=True)
    page = attention_page({"Encoder": (scores, pieces, pieces)}, shown=("Encoder", 3))
    options = ["--window-size=1600,900", "--blink-settings=preferredColorScheme=0"]
    read = read_in_a_browser(page, WORD_READER, tmp_path, *options)
    assert [seen[0] for seen in read["seen"]] == [
        ["Anna", "bought", "it", "</s>"],
        pieces,
        ["Anna", "bought", "it", "</s>"],
    ]
    row = np.rint(1000 * scores)[0].mean(0)[2:5].mean(0)
    shares = [row[:2].sum(), row[2:5].sum(), row[5], row[6]]
    assert read["seen"][0][1].startswith("“\u2068bought\u2069”, layer 1, all heads together: ")
    np.testing.assert_allclose(read["seen"][0][2], np.array(shares) / 10, atol=0.51)
    assert read["seen"][1][1].startswith("“\u2068\u2581b\u2069”, ")
    assert read["seen"][2] == read["seen"][0]
    assert max(map(int, re.findall(r"\d+", read["dark"])[:3])) < 64
    assert read["used"] > 0.9 and read["beside"]


@pytest.mark.skipif(not BROWSER, reason="no chromium or google-chrome is found; make browser")
def test_in_a_browser_words_answer_to_mouse_focus_and_choosers(maps, tmp_path):
    read = read_in_a_browser(attention_page(maps), READER, tmp_path, "--window-size=500,800")

    def expected(name, word, layer, head):
        scores, queries, keys = maps[name]
        heads = np.rint(1000 * scores)[layer, :, word]
        row = heads.mean(0) if head is None else heads[head]
        best = np.argsort(-row, kind="stable")[:3]
        shares = [f"“\u2068{show(keys[i])}\u2069” {round_half_up(row[i])}\u00a0%" for i in best]
        which = "all heads together" if head is None else f"head {head + 1}"
        word = f"“\u2068{show(queries[word])}\u2069”"
        return f"{word}, layer {layer + 1}, {which}: {', '.join(shares)}."

    assert read["seen"] == [
        expected("Encoder", 0, 1, None),
        expected("Encoder", 1, 1, None),
        expected("Encoder", 0, 1, None),
        expected("Encoder", 3, 1, None),
        expected("Encoder", 3, 0, 2),
        expected("Cross", 2, 0, None),
    ]
    mean = np.rint(1000 * maps["Cross"][0])[0, :, 2].mean(0)
    assert read["shares"] == [round_half_up(weight) for weight in mean]
    assert (read["rows"], read["paths"], read["wide"]) == (3, 8, False)


def show(piece):
    return piece.replace("\n", "↵")


def round_half_up(thousandths):
    return int(np.floor(thousandths / 10 + 0.5))
