"""R-Drop that begins after some epochs."""

import keras

from keras_transformer.checks import check_positive_int


class DelayRDrop(keras.callbacks.Callback):
    """Leaves R-Drop out of the first epochs.

    A model that knows little has little to agree on with itself, and a step with R-Drop takes twice
    as long. The model is compiled with the `r_drop` that it is to have after them. The step is
    traced anew when R-Drop begins.

    Args:
        epochs: how many epochs go without it, counted from the first of all, also in a `fit` that
            goes on from an `initial_epoch`.

    Raises:
        ValueError: if `epochs` is no positive integer, or, when `fit` begins, if the model was
            compiled without R-Drop.

    Example:
        >>> model = LanguageModel(
        ...     num_layers=1, d_model=8, num_heads=2, d_ff=8, vocab_size=9, dropout=0.1
        ... )
        >>> model.compile("adam", MaskedCrossentropy(), r_drop=3.0)
        >>> ids = np.array([[2, 4, 5, 6], [2, 7, 8, 4]])
        >>> logs = model.fit(ids, ids, epochs=3, callbacks=[DelayRDrop(2)], verbose=0)
    """

    def __init__(self, epochs):
        super().__init__()
        self.epochs = check_positive_int("epochs", epochs)

    def on_train_begin(self, logs=None):
        if not getattr(self.model, "r_drop", 0):
            raise ValueError(
                f"DelayRDrop({self.epochs}) has nothing to delay: the model was compiled without "
                "R-Drop; add r_drop=5 to compile, or leave the callback out."
            )

    def on_epoch_begin(self, epoch, logs=None):
        self._pause(epoch < self.epochs)

    def on_train_end(self, logs=None):
        self._pause(False)

    def _pause(self, paused):
        if paused != self.model.r_drop_paused:
            self.model.r_drop_paused = paused
            self.model.make_train_function(force=True)
