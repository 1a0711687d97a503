"""Public names that are imported when they are first used.

A package's `__init__.pyi` lists its public names once, as ordinary imports, for editors and type
checkers. At run time `lazy_names` reads the same file: importing the package needs neither Keras
nor TensorFlow.
"""

import ast
import pkgutil
import sys
from importlib import import_module

from keras_transformer.keras_names import CLASSES


def lazy_names(package: str):
    """Makes the module functions that import a package's public names on first use (PEP 562).

    Args:
        package: the `__name__` of the package.

    Returns:
        Its `__getattr__`, its `__dir__`, and its `__all__`, sorted.
    """
    homes = _homes(pkgutil.get_data(package, "__init__.pyi"))
    module = sys.modules[package]

    def get(name):
        if name not in homes:
            hint = f"; here it is {CLASSES[name]}" if name in CLASSES else ""
            raise AttributeError(f"module {package!r} has no attribute {name!r}{hint}")
        home = homes[name]
        # A name that the package imports from itself is a module.
        is_module = home == package
        value = import_module(f"{home}.{name}") if is_module else getattr(import_module(home), name)
        setattr(module, name, value)
        return value

    def names():
        return sorted({*vars(module), *homes})

    return get, names, sorted(homes)


def _homes(source: bytes) -> dict[str, str]:
    """Maps every name that a stub imports to its module."""
    imports = [node for node in ast.parse(source).body if isinstance(node, ast.ImportFrom)]
    return {alias.name: node.module for node in imports for alias in node.names}
