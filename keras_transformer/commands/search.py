"""The options of a search: which were given, which exclude one another, and what they make."""

from contextlib import suppress

from keras_transformer.checks import LARGEST_INT32
from keras_transformer.commands.options import SAMPLING, SEARCH, dashed, given_options
from keras_transformer.files import FileError, read_json
from keras_transformer.version_directory import EXPORT_CARD, saved_model_path

# The signature for what is asked, without options of each line and with them.
PLAIN = {"best": "serving_default", "nbest": "nbest", "align": "align", "score": "score"}
WITH_OPTIONS = {"best": "translate"}
SEARCH_OPTIONS = [option.key for option in SEARCH]
SAMPLE_OPTIONS = [option.key for option in SAMPLING]
ALL_OPTIONS = [*SEARCH_OPTIONS, *SAMPLE_OPTIONS]
# The options that are arguments of a `Translator`; the others are fields of its strategy.
LENGTHS = ("max_source_length", "max_length")
LONGEST = 256  # tokens, where no --max-length is given
OF_BEAMS = ("beam_size", "coverage_penalty")


def check_search(options) -> None:
    """Raises a ValueError if options of a search exclude one another."""
    given, nbest = given_options(options, ALL_OPTIONS), getattr(options, "nbest", None)
    if nbest and ("sample" in given or given.get("search") == "greedy"):
        raise ValueError("--nbest needs a beam search; leave out --sample and --search greedy.")
    if nbest and nbest > given.get("beam_size", nbest):
        raise ValueError(
            f"--nbest must be at most --beam-size {given['beam_size']}, but is {nbest}; widen the "
            "beam."
        )
    if given.get("max_source_length", 2) < 2:
        raise ValueError(
            "--max-source-length must be at least 2, a token and the end, but is "
            f"{given['max_source_length']}."
        )
    longest = given.get("max_length", LONGEST)
    if given.get("min_length", 0) > longest:
        raise ValueError(
            f"--min-length {given['min_length']} is more than --max-length {longest}; give a "
            "larger --max-length."
        )
    if "sample" in given:
        others = [name for name in ("search", *OF_BEAMS) if name in given]
        if others:
            raise ValueError(f"{dashed(others)} is no option of --sample; leave one of them out.")
    elif others := [name for name in SAMPLE_OPTIONS if name in given]:
        raise ValueError(f"{dashed(others)} needs --sample; add it, or leave the others out.")
    if given.get("search") == "greedy" and (others := [name for name in OF_BEAMS if name in given]):
        raise ValueError(f"{dashed(others)} needs a beam search; leave it out, or --search greedy.")


def search_options(options) -> dict:
    """Returns the arguments of a `Translator` that were given on the command line.

    Raises:
        ValueError: if a value is out of range.
    """
    from keras_transformer.decoding.strategies import Beam, Greedy, Sample

    given = given_options(options, ALL_OPTIONS)
    lengths = {name: given.pop(name) for name in LENGTHS if name in given}
    kind = {"greedy": Greedy, "beam": Beam}[given.pop("search", "beam")]
    kind = Sample if given.pop("sample", False) else kind
    if kind is Beam and (nbest := getattr(options, "nbest", None)):
        given.setdefault("beam_size", max(nbest, Beam().size))
    size = {"size": given.pop("beam_size")} if "beam_size" in given else {}
    return {"strategy": kind(**size, **given), **lengths}


def what_is_asked(options) -> str:
    """Returns what a command asks of a model: "best", "nbest", "align" or "score"."""
    if options.command == "score":
        return "score"
    if getattr(options, "nbest", None):
        return "nbest"
    return "align" if getattr(options, "alignments", False) else "best"


def export_signature(options, what) -> tuple[str, dict]:
    """Returns the signature of an export that does what is asked, and its inputs for all rows.

    Args:
        options: of the command line.
        what: "best", "nbest", "align" or "score".

    Raises:
        ValueError: if no signature does it.
    """
    given, path = given_options(options, ALL_OPTIONS), options.model
    wanted = [name for name in ("length_penalty", "max_length") if name in given]
    taken = {"search", *wanted} if what == "best" else set()
    if fixed := [name for name in given if name not in taken]:
        raise ValueError(f"{path} is an export with a fixed search; leave out {dashed(fixed)}.")
    if getattr(options, "prefix_file", None) is not None:
        wanted = ["prefix_file", *wanted]
    if not wanted:
        return given.get("search", PLAIN[what]), {}
    if what != "best" or "search" in given:
        others, has = "--nbest and --alignments", "the best translation alone"
        if "search" in given:
            others, has = "--search", "the search of the export"
        raise ValueError(
            f"{path} is an export, which takes {dashed(wanted)} without {others}, since its "
            f"signature {WITH_OPTIONS['best']} has {has}; leave one out, or name the run."
        )
    alpha = given.get("length_penalty", _own_length_penalty(path))
    if alpha is None:
        raise ValueError(
            f"{path} is an export that does not say its length penalty; add --length-penalty to "
            f"{dashed(wanted)}: 0.6 is the default of other searches."
        )
    inputs = {"length_penalty": alpha, "max_length": given.get("max_length", LARGEST_INT32)}
    return WITH_OPTIONS[what], inputs


def _own_length_penalty(path):
    """Returns the length penalty that the card of an export names, or None."""
    with suppress(FileError, AttributeError):
        search = read_json(saved_model_path(path) / EXPORT_CARD).get("search")
        alpha = search.get("length_penalty")
        return alpha if isinstance(alpha, float | int) else None
    return None
