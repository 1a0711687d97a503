"""Reader of the translation sets of tensorflow-datasets."""

from collections.abc import Iterator

from keras_transformer.data.corpus import MAX_CHARS, Corpus, checked_corpus
from keras_transformer.data.text_lines import CorpusError
from keras_transformer.type_hints import StrPath


def read_tfds(
    name: str,
    *,
    split: str = "train",
    data_dir: StrPath | None = None,
    download: bool = True,
    languages: tuple[str, str] | None = None,
    errors: str = "strict",
    max_chars: int = MAX_CHARS,
) -> Corpus:
    """Reads a translation set of tensorflow-datasets.

    Args:
        name: the set and its configuration, such as "ted_hrlr_translate/pt_to_en".
        split: the part to read, such as "train", "validation" or "train[:10%]".
        data_dir: the folder of prepared sets, None for `~/tensorflow_datasets`.
        download: whether to download and prepare a set that is not there yet.
        languages: (source, target) among the set's text features, None for its own direction.
        errors: as for `read_files`.
        max_chars: as for `read_files`.

    Returns:
        The `Corpus` of the pairs with text on both sides, in the set's order.

    Raises:
        ValueError: for bad options; `CorpusError` if the set cannot be loaded or has no direction.

    Example:
        >>> import tensorflow_datasets as tfds
        >>> with tfds.testing.mock_data(num_examples=3):  # random letters, no download
        ...     len(read_tfds("ted_hrlr_translate/pt_to_en").sources)
        3
    """
    pairs = _tfds_pairs(name, split, data_dir, download, languages)
    return checked_corpus(pairs, errors, max_chars, [f"{name}[{split}]"])


def _tfds_pairs(name, split, data_dir, download, languages) -> Iterator[tuple[bytes, bytes]]:
    try:
        import tensorflow_datasets as tfds

        builder = tfds.builder(name, data_dir=data_dir)
        texts = [k for k, v in builder.info.features.items() if isinstance(v, tfds.features.Text)]
        pair = languages or builder.info.supervised_keys or ()
        if len(pair) != 2 or not all(key in texts for key in pair):
            fault = f"its direction cannot be {pair!r}, its text features are {texts}"
            raise CorpusError(f"{name}: {fault}; pass two of them, languages=(source, target).")
        if download:
            builder.download_and_prepare()
        for batch in builder.as_dataset(split=split).batch(1024).as_numpy_iterator():
            yield from zip(*(batch[key].tolist() for key in pair), strict=True)
    except CorpusError:
        raise
    except ImportError as error:
        remedy = "pip install tensorflow-datasets importlib_resources"
        raise CorpusError(f"{name}: tensorflow-datasets is missing ({error}); {remedy}.") from error
    except Exception as error:  # anything from AssertionError to what an HTTP library raises
        remedy = "check name, split and network, or pass the data_dir of a prepared copy"
        raise CorpusError(
            f"{name}[{split}]: cannot be loaded ({error!r:.300}); {remedy}."
        ) from error
