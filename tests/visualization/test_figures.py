"""Pictures by their data: what the axes hold."""

import re
import sys
import warnings
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
from matplotlib.text import Text

from keras_transformer import Beam, TransformerSchedule, visualization
from keras_transformer.decoding.history import Hypothesis, beam_history
from keras_transformer.layers.positional_embedding import sinusoidal_positions
from keras_transformer.visualization import (
    attention_maps,
    beam_tree,
    learning_rates,
    mask_maps,
    position_map,
    position_similarity,
    word_attention,
)
from keras_transformer.visualization.attention import mean_attention
from keras_transformer.visualization.beam import best_scores, tree_rows
from keras_transformer.visualization.figures import (
    as_png,
    as_svg,
    heat_map,
    label_axis,
    new_figure,
)
from keras_transformer.visualization.masks import attention_masks
from keras_transformer.visualization.samples import samples_figure
from tests.decoding.conftest import END, PrefixModels

STRANGE = ["$x^2$", "</script>", "עברית", "\n", "日本", "_a"]


def labels_of(axis):
    return [label.get_text() for label in axis.get_ticklabels()]


def ticks_in(axis):
    """The numbers at an axis."""
    low, high = sorted(axis.get_view_interval())
    return [place for place in axis.get_majorticklocs() if low <= place <= high]


def data_of(axes):
    (image,) = axes.images
    return np.asarray(image.get_array())


@pytest.fixture
def scores(random):
    """Attention scores (2, 3, 4, 6): layers, heads, queries, keys."""
    scores = np.exp(random(2, 3, 4, 6))
    return scores / scores.sum(-1, keepdims=True)


def test_every_name_of_the_package_is_a_function_with_a_docstring():
    for name in visualization.__all__:
        assert callable(getattr(visualization, name)) and getattr(visualization, name).__doc__
    assert set(visualization.__all__) <= set(dir(visualization))
    with pytest.raises(AttributeError, match="has no attribute 'attention_map'"):
        _ = visualization.attention_map


# Attention


def test_maps_hold_the_scores_layer_by_layer_and_head_by_head(scores):
    figure = attention_maps(scores, list("abcd"), STRANGE, title="$t")
    maps = figure.axes[:6]
    for number, axes in enumerate(maps):
        layer, head = divmod(number, 3)
        np.testing.assert_array_equal(data_of(axes), scores[layer, head])
        assert axes.images[0].get_clim() == (0, scores.max())
        assert axes.get_title() == (f"head {head + 1}" if layer == 0 else "")
        assert axes.get_ylabel() == (f"layer {layer + 1}" if head == 0 else "")
        assert labels_of(axes.yaxis) == (list("abcd") if head == 0 else [])
        shown = ["$x^2$", "</script>", "עברית", "↵", "日本", "_a"]
        assert labels_of(axes.xaxis) == (shown if layer == 1 else [])
    # The first row is on top.
    assert maps[0].get_ylim()[0] > maps[0].get_ylim()[1]


def test_one_word_is_a_row_for_each_head(scores):
    figure = word_attention(scores, list("abcd"), STRANGE, 2)
    assert figure.get_suptitle() == "What “c” attends to, in percent"
    for layer, axes in enumerate(figure.axes):
        np.testing.assert_array_equal(data_of(axes), scores[layer, :, 2])
        assert labels_of(axes.yaxis) == ["head 1", "head 2", "head 3"]
        for head, text in enumerate(axes.texts):
            best = scores[layer, head, 2].argmax()
            assert text.get_position() == (best, head)
            assert text.get_text() == f"{100 * scores[layer, head, 2, best]:.0f}"


@pytest.mark.parametrize("size", [(4, 6), (30, 20), (1, 60)])
def test_a_map_for_a_card_has_its_words_its_scale_and_twice_the_width(random, size):
    scores = np.abs(random(1, *size))
    queries, keys = ([f"w{i}" for i in range(length)] for length in size)
    figure = mean_attention(scores, queries, keys)
    axes, scale = figure.axes
    np.testing.assert_array_equal(data_of(axes), scores[0])
    assert (labels_of(axes.yaxis), labels_of(axes.xaxis)) == (queries, keys)
    assert scale.get_ylim() == (0, pytest.approx(scores.max()))
    width, height = figure.get_size_inches()
    assert width == pytest.approx(2 * height)


def test_translations_are_read_with_their_sources_and_references():
    samples = [("a dog", "$x^2$\n<b>", "ein Hund"), ("word " * 50, "  ", "日本" * 40)]
    texts = [text.get_text() for text in samples_figure(samples).texts]
    assert texts.count("source") == texts.count("model") == texts.count("reference") == 2
    assert {"a dog", "$x^2$↵<b>", "ein Hund", "(empty)"} <= set(texts)
    assert sum(text.endswith("…") for text in texts) == 2


@pytest.mark.parametrize("text", ["x" * 200, "Щ" * 200, "MW " * 60, "word " * 50, "i" * 300])
@pytest.mark.parametrize("dpi", [80, 90, 100])
def test_lines_of_translations_end_within_the_picture_and_use_its_width(text, dpi):
    figure = samples_figure([(text, text, text)])
    figure.dpi = dpi
    figure.draw_without_rendering()
    ends = [line.get_window_extent().x1 for line in figure.texts]
    assert 0.8 * figure.bbox.x1 < max(ends) <= figure.bbox.x1


@pytest.mark.parametrize("shape", [(3, 4, 6), (2, 1, 3, 4, 6), (2, 3, 6, 4), (0, 3, 4, 6)])
def test_scores_that_do_not_fit_the_pieces_are_an_error(shape):
    with pytest.raises(ValueError, match=r"scores must have the shape .* here \(N, H, 4, 6\)"):
        attention_maps(np.zeros(shape), list("abcd"), STRANGE)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_scores_that_are_no_numbers_are_an_error(scores, value):
    scores = scores.copy()
    scores[0, 0, 0, 0] = value
    with pytest.raises(ValueError, match="scores must be finite, but hold NaN or infinity"):
        attention_maps(scores, list("abcd"), STRANGE)


def test_a_word_that_is_not_there_is_an_error(scores):
    for word in (4, -1, "a"):
        with pytest.raises(
            ValueError, match=rf"word must be an index in \[0, 4\), but is {word!r}"
        ):
            word_attention(scores, list("abcd"), STRANGE, word)


# Sizes


@pytest.mark.parametrize(
    "draw",
    [
        lambda words: attention_maps(np.ones((6, 8, 60, 60)), words, words),
        lambda words: word_attention(np.ones((1, 2, 60, 180)), words, words * 3, 0),
        lambda words: mask_maps([5] * 180, [2] * 60, words * 3, words),
    ],
)
def test_a_figure_stays_below_60_inches_and_has_all_labels_for_which_there_is_room(draw):
    words = [f"w{i}" for i in range(60)]
    figure = draw(words)
    assert 50 < figure.get_size_inches().max() < 60
    axes = figure.axes[40 % len(figure.axes)]  # below the maps that share its labels
    assert labels_of(axes.xaxis) in (words, words * 3)


def test_labels_are_left_out_where_they_would_lie_on_others():
    words = [f"w{i}" for i in range(1000)]
    (axes, _) = attention_maps(np.ones((1, 1, 1, 1000)), ["a"], words).axes
    assert labels_of(axes.xaxis) == words[::2]
    np.testing.assert_array_equal(axes.get_xticks(), np.arange(0, 1000, 2))


def test_masks_keep_their_size_beside_long_pieces():
    words = [f"Donaudampfschifffahrtsgesellschaft{i}" for i in range(4)]
    figure = mask_maps([5, 6, 7, 0], [2, 5, 0, 0], words, words)
    figure.draw_without_rendering()
    for axes in figure.axes:
        assert min(axes.bbox.size / figure.dpi) > 1.7  # inches
        for text in (axes.title, *axes.get_xticklabels(), *axes.get_yticklabels()):
            extent = text.get_window_extent()
            assert min(extent.x0, extent.y0) >= 0
            assert extent.x1 <= figure.bbox.x1 and extent.y1 <= figure.bbox.y1


# Positions and schedule


def test_few_positions_have_whole_numbers_and_a_single_one_has_a_dot():
    for size in (1, 3):
        positions = sinusoidal_positions(size, 4)
        axes = position_map(positions).axes[0]
        assert ticks_in(axes.yaxis) == list(range(size))
        assert ticks_in(axes.xaxis) == [0, 1, 2, 3]
        left, right, _ = position_similarity(positions).axes
        assert ticks_in(left.xaxis) == ticks_in(left.yaxis) == list(range(size))
        assert ticks_in(right.xaxis) == [i - size // 2 for i in range(size)]
        assert right.lines[0].get_marker() == ("o" if size == 1 else "")


def test_few_steps_have_whole_numbers_and_dots_and_every_line_is_in_the_legend():
    names = ["_a", "$x^2$", "日本"]
    schedules = {name: TransformerSchedule(64, 5) for name in names}
    (axes,) = learning_rates(schedules, 2, measured=([1], [0.01])).axes
    assert ticks_in(axes.xaxis) == [0, 1, 2]
    assert {line.get_marker() for line in axes.lines} == {"o"}
    legend = axes.get_legend().get_texts()
    assert [text.get_text() for text in legend] == [*names, "this run"]
    assert not any(text.get_parse_math() for text in legend)


@pytest.mark.parametrize("d_model", [8, 7])
def test_positions_are_shown_as_they_are(d_model):
    positions = sinusoidal_positions(20, d_model)
    image = position_map(positions).axes[0].images[0]
    np.testing.assert_array_equal(image.get_array(), positions)
    low, high = image.get_clim()
    assert -low == high == np.abs(positions).max()  # white is 0


def test_similarity_is_the_cosine_and_depends_on_the_distance_alone():
    positions = sinusoidal_positions(21, 16)
    left, right, _ = position_similarity(positions).axes
    similarity = data_of(left)
    for a, b in ((0, 0), (3, 9), (20, 4)):
        norms = np.linalg.norm(positions[a]) * np.linalg.norm(positions[b])
        assert similarity[a, b] == pytest.approx(positions[a] @ positions[b] / norms, abs=1e-6)
    (line,) = right.lines
    np.testing.assert_array_equal(line.get_xdata(), np.arange(-10, 11))
    for distance, cosine in zip(*line.get_data(), strict=True):
        np.testing.assert_allclose(np.diagonal(similarity, distance), cosine, atol=1e-6)


@pytest.mark.parametrize("shape", [(4,), (0, 4), (2, 3, 4)])
def test_positions_that_are_no_matrix_are_an_error(shape):
    for draw in (position_map, position_similarity):
        with pytest.raises(ValueError, match=r"positions must have the shape \(positions, dim"):
            draw(np.zeros(shape))


def test_each_schedule_is_a_line_of_its_rates():
    schedules = {f"{d} {w}": TransformerSchedule(d, w) for d, w in ((64, 10), (64, 40), (512, 10))}
    measured = np.array([1, 30]), np.array([0.01, 0.02])
    (axes,) = learning_rates(schedules, 60, measured=measured).axes
    *lines, last = axes.lines
    assert [line.get_label() for line in lines] == list(schedules)
    for line, name in zip(lines, schedules, strict=True):
        d_model, warmup = map(int, name.split())
        steps, rates = line.get_data()
        np.testing.assert_array_equal(steps, np.arange(1, 61))
        expected = d_model**-0.5 * np.minimum(steps**-0.5, steps * warmup**-1.5)
        np.testing.assert_allclose(rates, expected, rtol=1e-5)
        assert steps[np.argmax(rates)] == warmup
    np.testing.assert_array_equal(last.get_data(), measured)
    with pytest.raises(ValueError, match="num_steps must be at least 2, but is 1"):
        learning_rates(schedules, 1)


# Masks


def test_masks_say_for_each_pair_of_positions_whether_one_may_see_the_other():
    source, target = [5, 9, 3, 0], [2, 7, 0]
    pieces = ["a", "b", "</s>", "<pad>"], ["<s>", "c", "<pad>"]
    figure = mask_maps(source, target, *pieces)
    masks = attention_masks(source, target)
    expected = {
        "encoder: padding": [[k != 0 for k in source] for _ in source],
        "decoder: causal": [[k <= q for k in range(3)] for q in range(3)],
        "decoder: causal and padding": [
            [k <= q and target[k] != 0 for k in range(3)] for q in range(3)
        ],
        "cross-attention: padding": [[k != 0 for k in source] for _ in target],
    }
    labels = [(0, 0), (1, 1), (1, 1), (1, 0)]  # of rows and columns
    assert [axes.get_title() for axes in figure.axes] == list(expected) == list(masks)
    for axes, name, (rows, columns) in zip(figure.axes, expected, labels, strict=True):
        np.testing.assert_array_equal(masks[name], expected[name])
        np.testing.assert_array_equal(data_of(axes), expected[name])
        assert labels_of(axes.yaxis) == pieces[rows]
        assert labels_of(axes.xaxis) == pieces[columns]


def test_the_masks_are_where_a_model_attends(trained):
    source = np.array([[5, 9, 7, 3, 0, 0]], "int32")
    target = np.array([[2, 7, 9, 0, 0]], "int32")
    masks = attention_masks(source[0], target[0])
    scores = [np.array(part)[:, 0] > 0 for part in trained.attention_scores((source, target))]
    names = ("encoder: padding", "decoder: causal and padding", "cross-attention: padding")
    for attends, name in zip(scores, names, strict=True):
        assert (attends <= masks[name]).all()
        assert attends.any(axis=(0, 1))[masks[name]].all()


def test_a_piece_is_missing():
    with pytest.raises(ValueError, match="target_pieces must be one string for each of the 2 ids"):
        mask_maps([5, 3], [2, 7], ["a", "</s>"], ["<s>"])


# The beam


@pytest.fixture(scope="module", params=[0, 1, 2])
def history(request):
    models = PrefixModels(1, end_logit=0.5, seed=request.param)
    start_ids, cache = models.start([0], 4)
    strategy = Beam(num_hypotheses=4)
    return beam_history(models.step, start_ids, cache, strategy, end_id=END, max_length=5)


def test_the_tree_shows_every_hypothesis_and_its_fate(history):
    pieces = [f"t{node.token}" for node in history]
    (axes,) = beam_tree(history, pieces, num_dead=4).axes
    shown = sorted(text.get_text() for text in axes.texts)
    ranks = sorted((n.score for n in history if n.fate == "returned"), reverse=True)
    expected = ["t1"]
    for node, piece in zip(history[1:], pieces[1:], strict=True):
        sign = {"dead": " ×"}.get(node.fate, "")
        score = ""
        if node.fate == "returned":
            sign = f"  #{ranks.index(node.score) + 1}"
            score = f" → {node.score:.2f}"
        expected.append(f"{piece}{sign}\n{node.log_prob:.2f}{score}")
    assert shown == sorted(expected)
    assert len(axes.lines) == len(history) - 1
    assert len([text for text in axes.texts if text.get_fontweight() == "bold"]) == 4


def test_fewer_dead_are_the_most_probable_ones(history):
    for num_dead in (0, 1):
        drawn = set(tree_rows(history, num_dead))
        for i in range(len(history)):
            dead = [j for j, n in enumerate(history) if n.parent == i and n.fate == "dead"]
            dead.sort(key=lambda j: -history[j].log_prob)
            assert [j for j in dead if j in drawn] == dead[:num_dead]
        assert {j for j, n in enumerate(history) if n.fate != "dead"} <= drawn


def test_the_best_result_is_a_straight_line_on_top(history):
    rows, best = tree_rows(history, 4), best_scores(history)
    i = max(range(len(history)), key=lambda i: (history[i].fate == "returned") * 99 + best[i])
    while i >= 0:
        assert rows[i] == 0 and best[i] == best[0]
        i = history[i].parent


def random_history(seed, size=60):
    """A tree such as no search of a small model grows: long lines beside short ones."""
    rng, nodes = np.random.default_rng(seed), [Hypothesis(-1, 2, 0, 0.0, 0.0, "kept")]
    for i in range(1, size):
        # Most continue one of the last: that gives lines.
        parent = max(0, i - 1 - int(rng.exponential(3)))
        nodes[parent] = nodes[parent]._replace(fate="kept")
        log_prob = -rng.exponential()
        nodes.append(Hypothesis(parent, 5, nodes[parent].length + 1, log_prob, log_prob, "dead"))
    leaves = [i for i, node in enumerate(nodes) if node.fate == "dead"]
    for i in rng.choice(leaves, 4, replace=False):
        nodes[i] = nodes[i]._replace(fate="returned")
    return nodes


@pytest.mark.parametrize("seed", range(10))
def test_no_label_lies_on_another_and_no_line_crosses_one(seed):
    history = random_history(seed)
    (axes,) = beam_tree(history, ["x"] * len(history), num_dead=9).axes
    places = [text.get_position() for text in axes.texts]
    assert len(set(places)) == len(places) == len(history)
    straight, bent = [], []
    for line in axes.lines:
        (start, bend, _, end), (top, _, bottom, _) = line.get_data()
        if top == bottom:
            straight.append((start, end, top))
        else:
            bent.append((bend, top, bottom, start))
    for bend, top, bottom, start in bent:
        assert not [run for run in straight if run[0] < bend < run[1] and top < run[2] <= bottom]
        for other, other_top, other_bottom, other_start in bent:
            if other == bend and (other_top, other_start) != (top, start):
                assert other_bottom <= top or bottom <= other_top


@pytest.mark.filterwarnings("ignore:Glyph")
@pytest.mark.parametrize("word", ["WMWMWMWMWM" * 2, "Щ" * 20, "日本" * 9, "i" * 30])
def test_wide_pieces_end_before_the_next_column_and_before_the_edge(word):
    history = [Hypothesis(-1, 2, 0, 0.0, 0.0, "kept")]
    for i in range(3):
        history.append(Hypothesis(i, 5, i + 1, -0.1, -0.1, "kept" if i < 2 else "returned"))
    figure = beam_tree(history, [word] * 4)
    figure.draw_without_rendering()
    extents = [text.get_window_extent() for text in figure.axes[0].texts]
    for extent, after in zip(extents, extents[1:], strict=False):
        assert extent.x1 < after.x0
    assert extents[-1].x1 <= figure.bbox.x1


def test_pieces_and_hypotheses_must_be_as_many():
    with pytest.raises(ValueError, match="one string for each of the 1 hypotheses, but there are"):
        beam_tree([Hypothesis(-1, 2, 0, 0.0, 0.0, "kept")], [])


# Files


def test_a_search_without_hypotheses_is_an_error():
    with pytest.raises(ValueError, match="history is empty"):
        beam_tree([], [])


def test_svg_is_valid_keeps_any_text_and_is_the_same_each_time(scores):
    def draw():
        return as_svg(attention_maps(scores, list("abcd"), STRANGE, title="$a & <b>"))

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        text = draw()
    root = ElementTree.fromstring(text)
    assert root.tag.endswith("svg")
    texts = {"".join(node.itertext()) for node in root.iter("{http://www.w3.org/2000/svg}text")}
    assert {"$x^2$", "</script>", "עברית", "↵", "日本", "$a & <b>", "layer 2"} <= texts
    assert text == draw()
    assert not re.search(r"(href|src)=\"(?!data:|#)", text)


@pytest.mark.parametrize("sign", ["\x01", "\ud800", "\ufffe", "\uffff"])
def test_svg_is_valid_with_what_xml_may_not_hold(scores, sign):
    words = ["a", "b", sign, "d"]
    for figure in (
        attention_maps(scores, words, STRANGE, title=f"<{sign}>"),
        word_attention(scores, words, STRANGE, 2, title=f"<{sign}>"),
    ):
        root = ElementTree.fromstring(as_svg(figure))
        assert root.tag.endswith("svg")


@pytest.mark.parametrize("word", ["Donaudampfschifffahrtsgesellschaft", "機械翻訳" * 5])
@pytest.mark.filterwarnings("ignore:Glyph")
def test_long_labels_and_titles_are_shown_and_leave_the_maps_their_size(scores, word):
    words, keys = [word, "b", "c", "d"], [*STRANGE[:5], word]
    title = " ".join([word] * 9)
    for figure in (
        attention_maps(scores, words, keys, title=title),
        word_attention(scores, words, keys, 0),
        word_attention(scores, words, keys, 0, title=title),
    ):
        figure.draw_without_rendering()
        (above,) = (text for text in figure.texts if text.get_text())
        assert "".join(above.get_text().split()).find("".join(word.split())) >= 0
        extent = above.get_window_extent()
        assert 0 <= extent.x0 and extent.x1 <= figure.bbox.x1 and extent.y1 <= figure.bbox.y1
        sizes = [axes.bbox.size / figure.dpi for axes in figure.axes if axes.images]
        assert np.min(sizes) > 0.6  # inches


def test_every_text_uses_the_installed_fonts_and_one_installed_later(scores, monkeypatch):
    installed, words = [], ["日本"] * 6
    monkeypatch.setattr("matplotlib.font_manager.get_font_names", lambda: installed)
    for _ in range(2):
        for figure in (
            attention_maps(scores, words[:4], words, title="日本"),
            word_attention(scores, words[:4], words, 0),
            beam_tree([Hypothesis(-1, 2, 0, 0.0, 0.0, "returned")], ["日本"]),
            learning_rates({"日本": TransformerSchedule(64, 5)}, 10),
            mask_maps([5], [5], ["日本"], ["日本"]),
            samples_figure([("日本",) * 3]),
        ):
            texts = [x for x in figure.findobj(Text) if x.get_visible() and "日本" in x.get_text()]
            assert texts
            for text in texts:
                assert text.get_fontfamily() == ["DejaVu Sans", *installed]
        installed.append("IPAexGothic")


def test_png_has_the_size_of_the_figure():
    data = as_png(new_figure(2, 1), dpi=50)
    assert data.startswith(b"\x89PNG")
    assert (int.from_bytes(data[16:20]), int.from_bytes(data[20:24])) == (100, 50)


def test_without_matplotlib_the_error_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r"pip install matplotlib"):
        position_map(np.ones((2, 2)))


def test_characters_that_no_font_has_are_named():
    figure = new_figure(2, 2)
    axes = figure.subplots()
    heat_map(axes, np.eye(2), limits=(0, 1))
    label_axis(axes.xaxis, ["a", "\n"])
    label_axis(axes.yaxis, ["\ue123", "b"])  # of no script
    with pytest.warns(
        UserWarning, match="has \ue123, drawn as boxes; install one, .* fonts-noto-core for other"
    ):
        assert as_png(figure).startswith(b"\x89PNG")
    assert "\ue123" in as_svg(figure)  # without a warning
