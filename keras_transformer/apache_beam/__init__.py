"""Translation in pipelines of Apache Beam, which run on one machine or on a cluster.

It needs the extra `beam`: `pip install "keras-transformer-layers[beam]"`. The command
`python -m keras_transformer.apache_beam` translates files. Names are imported when you first use
them.
"""

from keras_transformer import lazy

__getattr__, __dir__, __all__ = lazy.lazy_names(__name__)
