"""Names for what type hints cannot say of Keras, and of extras that may not be installed."""

from typing import TYPE_CHECKING, Any, TypeAlias

# A tensor of the Keras backend in use, or a NumPy array. Backends have no common class of tensors,
# so the docstrings say the shape and the dtype of each.
Tensor: TypeAlias = Any
if TYPE_CHECKING:
    from matplotlib.figure import Figure as Figure
else:
    Figure = Any
