"""The public names, for editors and type checkers; `__init__.py` imports them on first use."""

from keras_transformer.apache_beam.translation import Translate as Translate
from keras_transformer.apache_beam.translation import TranslationHandler as TranslationHandler
