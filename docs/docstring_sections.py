"""How the site shows docstrings, where Griffe, which reads them, has to be told."""

import re
import textwrap

import griffe

import keras_transformer
from keras_transformer import visualization

PACKAGES = {
    name: package.__name__
    for package in (keras_transformer, visualization)
    for name in package.__all__
}
TITLES = {
    "Args:": "Args: Arguments:",
    "Call arguments:": "Other Parameters: Call arguments:",
    "Attributes:": "Attributes: Attributes:",
    "Raises:": "Raises: Raises:",
    "Example:": "Examples: Example:",
}
RETURNS = re.compile(r"^Returns:\n((?:    .*\n?|\n)+)", re.MULTILINE)
SEVERAL = re.compile(r"^    (\w+(?:, \w+)+): (.+(?:\n {8}.+)*)", re.MULTILINE)


class DocstringSections(griffe.Extension):
    """Knows Keras's sections, and says how each class or function is imported."""

    def on_object(self, *, obj, **kwargs):
        if obj.docstring is None:
            return
        text = "\n".join(TITLES.get(line, line) for line in obj.docstring.value.split("\n"))
        # Griffe would look for a type before a colon; here the shape is a part of the sentence.
        text = RETURNS.sub(lambda found: f"**Returns:**\n\n{textwrap.dedent(found[1])}", text)
        # Griffe knows one name per line, and checks that the signature has it.
        text = SEVERAL.sub(lambda found: one_by_one(*found.groups()), text)
        if not obj.is_module and obj.parent.is_module:
            module = PACKAGES.get(obj.name, obj.parent.path)
            text = f"`from {module} import {obj.name}`\n\n{text}"
        obj.docstring.value = text


def one_by_one(names, text):
    """`a, b: text` as a line for each name."""
    return "\n".join(f"    {name}: {text}" for name in names.split(", "))
