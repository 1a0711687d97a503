"""Names for type hints: tensors of any backend, paths, extras that may not be installed."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from os import PathLike
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypedDict

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.figure import Figure as Figure

    # The path of a file or a folder.
    StrPath: TypeAlias = str | PathLike[str]

    class TensorLike(Protocol):
        """What the library takes for a tensor: of the Keras backend in use, or of NumPy."""

        @property
        def shape(self) -> object: ...

    class Tensor(Protocol):
        """A tensor that the library returns: what the classes of all backends share.

        The docstrings say the shape and the dtype of each.
        """

        @property
        def shape(self) -> tuple[int, ...]: ...
        @property
        def dtype(self) -> object: ...
        def numpy(self) -> np.ndarray: ...
        def __array__(self) -> np.ndarray: ...
        def __getitem__(self, place: object, /) -> "Tensor": ...
        def __iter__(self) -> "Iterator[Tensor]": ...
        def __len__(self) -> int: ...
        def __bool__(self) -> bool: ...
        def __int__(self) -> int: ...
        def __float__(self) -> float: ...
        def __index__(self) -> int: ...
        def __neg__(self) -> "Tensor": ...
        def __add__(self, other: object, /) -> "Tensor": ...
        def __radd__(self, other: object, /) -> "Tensor": ...
        def __sub__(self, other: object, /) -> "Tensor": ...
        def __rsub__(self, other: object, /) -> "Tensor": ...
        def __mul__(self, other: object, /) -> "Tensor": ...
        def __rmul__(self, other: object, /) -> "Tensor": ...
        def __truediv__(self, other: object, /) -> "Tensor": ...
        def __rtruediv__(self, other: object, /) -> "Tensor": ...
        def __lt__(self, other: object, /) -> "Tensor": ...
        def __le__(self, other: object, /) -> "Tensor": ...
        def __gt__(self, other: object, /) -> "Tensor": ...
        def __ge__(self, other: object, /) -> "Tensor": ...

    class DTypePolicy(Protocol):
        """A `keras.DTypePolicy`."""

        @property
        def compute_dtype(self) -> str: ...

    class KerasModel(Protocol):
        """A `keras.Model`."""

        def get_weights(self) -> Any: ...
        def set_weights(self, weights: Any) -> Any: ...

    class StepFunction(Protocol):
        """`step(token_ids, cache, position) -> (logits, cache)`."""

        def __call__(self, token_ids: Any, cache: Any, position: Any, /) -> tuple[Any, Any]: ...

    class CacheFunction(Protocol):
        """A function of a search's cache, and of integers about its rows; see `SearchModel`."""

        def __call__(self, cache: Any, /, *numbers: Any) -> Any: ...

    class Advancing(Protocol):
        """What counts the work that is done."""

        def advance(self, number: int, /) -> object: ...

    class StageShower(Protocol):
        """Makes what shows a stage of some work."""

        def __call__(
            self, what: str, total: int | None = None, unit: str = ""
        ) -> AbstractContextManager[Advancing]: ...

    class LogitsProcessor(Protocol):
        """Says which tokens are forbidden; see `decoding.processors`."""

        def __call__(self, ids: Any, position: Any, vocab_size: int, /) -> TensorLike: ...

    # What maps a tensor to another of its shape: an activation, dropout.
    Elementwise: TypeAlias = Callable[[Tensor], TensorLike]
    Floats: TypeAlias = np.ndarray[tuple[int, ...], np.dtype[np.float32 | np.float64]]
    Integers: TypeAlias = np.ndarray[tuple[int, ...], np.dtype[np.int32 | np.int64]]
    # Numbers for NumPy: an array, a table, or nested lists.
    Numbers: TypeAlias = TensorLike | Sequence[object] | float

else:
    Tensor = TensorLike = Figure = Floats = Integers = Numbers = Any
    Elementwise = StepFunction = CacheFunction = LogitsProcessor = StageShower = Callable
    DTypePolicy = KerasModel = Any
    StrPath = str | PathLike


class KerasOptions(TypedDict, total=False):
    """The arguments that every Keras layer and model takes."""

    name: str | None
    dtype: str | DTypePolicy | None
    trainable: bool
