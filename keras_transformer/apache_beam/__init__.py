"""Translation in pipelines of Apache Beam, which run on one machine or on a cluster.

It needs the extra `beam`: `pip install "keras-transformer-layers[beam]"`. The command
`keras-transformer pipeline` translates files. Names are imported when you first use
them.
"""

from keras_transformer import lazy

__getattr__, __dir__, __all__ = lazy.lazy_names(__name__)
