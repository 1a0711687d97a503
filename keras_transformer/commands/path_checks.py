"""Checks the paths of a command: each by the metavar of its option, before anything is read."""

import os
from collections.abc import Callable
from pathlib import Path

from keras_transformer.checks import check_directory, check_local, check_new_file
from keras_transformer.commands.options import OPTIONS, Option
from keras_transformer.files import naming
from keras_transformer.inference.run_files import is_run
from keras_transformer.version_directory import saved_model_path


def check_paths(options, names=None) -> None:
    """Checks each path of a command, or those of the options with the given keys."""
    paths = []
    for option in options_of_kind(options, *PATHS):
        if names is None or option.key in names:
            value = getattr(options, option.key)
            name = option.name if option.name.startswith("-") else option.values
            values = value if isinstance(value, list) else [value]
            paths += [(option.values, name, path) for path in values if path is not None]
    for _, name, path in paths:
        if not path:
            raise ValueError(f"{name} must not be empty; give a path.")
        check_local(name, path)
    for kind, name, path in paths:
        PATHS[kind](name, path)


def options_of_kind(options, *metavars) -> list[Option]:
    """Returns the options of a command that take one of these metavars."""
    known = (option for option in OPTIONS[options.command] if isinstance(option, Option))
    return [option for option in known if option.values in metavars]


def check_readable(name: str, path: str) -> None:
    """Raises a ValueError if there is no file to read; a pipe is one, too."""
    if os.path.isdir(path):
        raise ValueError(f"{name} {path} is a directory; name a file in it.")
    if not os.path.exists(path):
        raise ValueError(f"{name} {path} does not exist{_like(path)}; check the path.")
    if not os.access(path, os.R_OK):
        raise ValueError(f"{name} {path} may not be read; check its permissions.")


def _like(path: str) -> str:
    """Returns a question with the name in the same directory that is most like a missing one."""
    from difflib import get_close_matches

    folder, name = os.path.split(path)
    try:
        found = get_close_matches(name, os.listdir(folder or "."), 1, 0.7)
    except OSError:
        found = []
    return f" (did you mean {os.path.join(folder, found[0])}?)" if found else ""


def check_out_file(name: str, path: str) -> None:
    """Raises a ValueError if no file can be written there."""
    check_new_file(name, path)
    if os.path.exists(path) and not os.path.isfile(path):
        return  # a pipe or a device
    if path.endswith(".gz"):
        raise ValueError(f"{name} {path} is written without compression; leave out .gz.")
    _check_writable(path, Path(path).parent)


def check_out_directory(name: str, path: str) -> None:
    """Raises a ValueError if no directory can be made or filled there."""
    check_directory(name, path)
    folders = (Path(path), *Path(path).absolute().parents)
    _check_writable(path, next(folder for folder in folders if folder.is_dir()))


def _check_writable(path, folder: Path) -> None:
    import tempfile

    with naming(path), tempfile.TemporaryFile(dir=folder):
        pass  # more than os.access knows: also of a disk that is mounted for reading


def check_run(name: str, path: str) -> None:
    """Raises a ValueError if a path is not a directory that `train` has written."""
    if not is_run(path):
        what = "is no run" if os.path.exists(path) else f"does not exist{_like(path)}"
        raise ValueError(f"{path} {what}; name a directory that train has written.")


def check_run_or_export(name: str, path: str) -> None:
    """Raises a ValueError if a path is neither what `train` nor what `export` has written."""
    if not is_run(path) and saved_model_path(path) is None:
        found = os.path.exists(path)
        what = "is neither a run nor an export" if found else f"does not exist{_like(path)}"
        if os.path.isfile(os.path.join(path, "model.bin")):
            what = "is a model for CTranslate2, which only CTranslate2 reads"
        raise ValueError(f"{path} {what}; name a directory that train or export has written.")


def check_store(name: str, path: str) -> None:
    """Raises a ValueError if a path is not a directory that `prepare` has written."""
    from keras_transformer.data.store_files import is_store

    if not is_store(path):
        what = "is no store" if os.path.exists(path) else f"does not exist{_like(path)}"
        raise ValueError(f"{name} {path} {what}; name a directory that prepare has written.")


# The check of each metavar that stands for a path.
PATHS: dict[str, Callable[[str, str], None]] = {
    "FILE": check_readable,
    "OUT_FILE": check_out_file,
    "OUT": check_out_directory,
    "DIRECTORY": check_out_directory,
    "STORE": check_store,
    "RUN": check_run,
    "RUN_OR_EXPORT": check_run_or_export,
}


def check_output_is_no_input(options) -> None:
    """Refuses an output that would replace what is read."""
    (output,) = options_of_kind(options, "OUT_FILE")
    written = getattr(options, output.key)
    if written is None:
        return
    for option in options_of_kind(options, "FILE"):
        value = getattr(options, option.key)
        refuse_same_file(output.name, written, option.name, value)


def refuse_same_file(output: str, written: str, name: str, paths) -> None:
    """Raises a ValueError if a file to write is one that is read.

    Args:
        output, written: the name of the option, and the path.
        name, paths: of what is read; a path, several or None.
    """
    for path in paths if isinstance(paths, list) else filter(None, [paths]):
        if os.path.exists(written) and os.path.exists(path) and os.path.samefile(path, written):
            raise ValueError(
                f"{output} {written} would replace what {name} reads; name another file."
            )
