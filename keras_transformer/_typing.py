"""Names for type hints: tensors of any backend, paths, extras that may not be installed."""

from os import PathLike
from typing import TYPE_CHECKING, Any, TypeAlias

# A tensor of the Keras backend in use, or a NumPy array. Backends have no common class of tensors,
# so the docstrings say the shape and the dtype of each.
Tensor: TypeAlias = Any
# The path of a file or a folder.
StrPath: TypeAlias = str | PathLike
if TYPE_CHECKING:
    from matplotlib.figure import Figure as Figure
else:
    Figure = Any
