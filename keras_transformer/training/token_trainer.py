"""The training step of every model that predicts tokens."""

import keras
from keras import ops

from keras_transformer.checks import check_positive_int
from keras_transformer.training.distribution import replicas, sum_over_replicas
from keras_transformer.training.gradients import (
    accumulate,
    clipped,
    global_norm,
    sum_over_parts,
)
from keras_transformer.training.losses import (
    MaskedCrossentropy,
    check_labels,
    ids_of_labels,
    token_weights,
)
from keras_transformer.training.metrics import LatestValue, TokenPerplexity
from keras_transformer.training.projected_crossentropy import projected_crossentropy
from keras_transformer.training.streams import default_streams


class TokenTrainer:
    """Mixed into a `keras.Model`, it makes `fit` fast, exact and frugal with memory.

    With `MaskedCrossentropy` on TensorFlow, the loss is worked out from the decoder's output
    (`projected_crossentropy`), so that no tensor of logits is kept; the mean is that over the real
    tokens of the global batch, of all replicas and micro-batches; and gradients are clipped once
    they are summed. Other losses and backends take Keras's own step, which gives the same
    gradients with more memory; so do models with `loss_weights`, a regularizer or a subclass's own
    `call`, `logits` or `compute_loss`.

    The model offers `hidden(inputs, training)`, a tensor (B, T, D), for ids or a tuple of them, and
    `output_embeddings()`, the matrix (V, D) whose product with it are the logits.
    """

    trackers = None  # until `compile`
    r_drop_paused = False  # by `DelayRDrop`

    def compile(
        self,
        optimizer="adam",
        loss=None,
        *,
        metrics=None,
        micro_batches=1,
        num_streams="auto",
        r_drop=0.0,
        **kwargs,
    ):
        """Prepares for `fit`, as in `keras.Model`, with three more arguments.

        Args:
            optimizer: a Keras optimizer. `clipnorm`, `global_clipnorm` and `clipvalue` see the
                gradient of the whole batch.
            loss: a `MaskedCrossentropy`, or another loss of labels (B, T) and logits (B, T, V).
            metrics: Keras metrics of labels and logits. They need the logits, in training, too,
                in a forward pass of their own; what the callback `TokenLogs` shows is free.
            micro_batches: parts that a batch is cut into, one after another, for less memory. The
                gradient is that of the whole batch.
            num_streams: parts that each of these is cut into once more, and which are worked on at
                the same time, each by a core; "auto" for `default_streams()`, and for one with
                `jit_compile` or several devices. The gradient is again that of the whole batch.
            r_drop: alpha of R-Drop (Liang et al., 2021, "R-Drop: Regularized Dropout for Neural
                Networks"): each sentence goes through the model twice, with different dropout, and
                a quarter of alpha times the sum of the two KL divergences between its predictions
                is added to their mean loss. 0 for none.
            **kwargs: further arguments of `keras.Model.compile`.

        Raises:
            ValueError: if a value is out of range, or needs `MaskedCrossentropy` on TensorFlow.
        """
        check_positive_int("micro_batches", micro_batches)
        if num_streams != "auto":
            check_positive_int("num_streams", num_streams)
        if not 0 <= r_drop < float("inf"):
            raise ValueError(f"r_drop must be at least 0, but is {r_drop!r}.")
        changed = kwargs.get("loss_weights") is not None or self._has_another_loss()
        on_tensorflow = keras.backend.backend() == "tensorflow"
        own_step = on_tensorflow and type(loss) is MaskedCrossentropy and not changed
        for name, value, *defaults in (
            ("micro_batches", micro_batches, 1),
            ("num_streams", num_streams, "auto", 1),
            ("r_drop", r_drop, 0),
        ):
            if value not in defaults and changed:
                raise ValueError(
                    f"{name}={value!r} is only for the model's own loss, but loss_weights, a "
                    "regularizer or a subclass with a call, logits or compute_loss of its own make "
                    f"it another; leave {name} at {defaults[0]}."
                )
            if value not in defaults and not own_step:
                raise ValueError(
                    f"{name}={value!r} needs loss=MaskedCrossentropy(...) and the TensorFlow "
                    f"backend, but the loss is {loss!r} and the backend "
                    f"{keras.backend.backend()}; leave {name} at {defaults[0]}."
                )
        self.micro_batches, self.num_streams, self.r_drop = micro_batches, num_streams, r_drop
        self.r_drop_paused = False
        self.trackers = Trackers() if own_step else None
        self.has_metrics = bool(metrics or kwargs.get("weighted_metrics"))
        super().compile(optimizer, loss, metrics=metrics, **kwargs)

    def _has_another_loss(self) -> bool:
        """Whether Keras would minimize something else than the loss of `call`'s logits."""
        model = next(cls for cls in type(self).__mro__ if TokenTrainer in cls.__bases__)
        names = ("call", "logits", "compute_loss")
        changed = any(getattr(type(self), x, None) is not getattr(model, x, None) for x in names)
        return changed or any(variable.regularizer for variable in self.trainable_variables)

    def get_compile_config(self):
        names = ("micro_batches", "num_streams", "r_drop") if self.compiled else ()
        return {**super().get_compile_config(), **{name: getattr(self, name) for name in names}}

    def compile_from_config(self, config):
        self.compile(**keras.saving.deserialize_keras_object(config))
        self.optimizer.build(self.trainable_variables)

    def make_train_function(self, force=False):
        if self.r_drop_paused and not force:  # left so by a `fit` that was interrupted
            self.r_drop_paused, force = False, True
        # An optimizer that makes its variables in the first step has it traced a second time.
        if self.built and not self.optimizer.built:
            self.optimizer.build(self.trainable_variables)
        super().make_train_function(force)

    def reset_metrics(self):
        super().reset_metrics()
        if self.trackers is not None:
            self.trackers.reset()

    def train_step(self, *args):
        if self.trackers is None:
            return super().train_step(*args)
        inputs, labels, sample_weight = keras.utils.unpack_x_y_sample_weight(*args)
        labels = ids_of_labels(labels)
        weights, count = token_weights(labels, sample_weight)
        r_drop = 0.0 if self.r_drop_paused else self.r_drop

        def part_loss(labels, weights, *ids):
            if r_drop:
                ids = [ops.concatenate([x, x]) for x in ids]
            hidden = self.hidden(keras.tree.pack_sequence_as(inputs, ids), training=True)
            sums = self._loss_sums(hidden, labels, weights, r_drop)
            return self.optimizer.scale_loss(sums[0] / count), sums

        variables = self.trainable_variables
        tensors = (labels, weights, *keras.tree.flatten(inputs))
        streams = self._streams()
        parts = self.micro_batches * streams
        gradients, sums = accumulate(part_loss, tensors, parts, variables, at_once=streams)
        # Keras would clip the gradient of each replica, of which the optimizer then makes the sum.
        gradients = [sum_over_replicas(gradient) for gradient in gradients]
        norm = global_norm(gradients) / self.optimizer.scale_loss(1.0)
        if replicas() > 1:  # else it clips them itself, where it accumulates them: their sum
            gradients = [x / replicas() for x in clipped(gradients, norm, self.optimizer)]
        if variables:  # not all are frozen
            self.optimizer.apply_gradients(zip(gradients, variables, strict=True))
        self.trackers.gradient_norm.update_state(norm)
        self.trackers.step_loss.update_state(sum_over_replicas(sums[0]) / count)
        return self._logs(inputs, labels, sample_weight, sums, weights, count)

    def test_step(self, *args):
        if self.trackers is None:
            return super().test_step(*args)
        inputs, labels, sample_weight = keras.utils.unpack_x_y_sample_weight(*args)
        labels = ids_of_labels(labels)
        weights, count = token_weights(labels, sample_weight)

        def part_sums(labels, weights, *ids):
            hidden = self.hidden(keras.tree.pack_sequence_as(inputs, ids), training=False)
            return list(self._loss_sums(hidden, labels, weights))

        tensors = (labels, weights, *keras.tree.flatten(inputs))
        streams, zeros = self._streams(), [ops.zeros(())] * 2
        sums = sum_over_parts(part_sums, tensors, streams, zeros, at_once=streams)
        return self._logs(inputs, labels, sample_weight, sums, weights, count)

    def _streams(self) -> int:
        if self.num_streams != "auto":
            return self.num_streams
        # What XLA has compiled runs one iteration of a loop after another.
        return 1 if replicas() > 1 or self.jit_compile else default_streams()

    def _loss_sums(self, hidden, labels, weights, r_drop=0.0):
        """The sums over tokens of the loss, and of the loss without smoothing and R-Drop."""
        check_labels(labels, hidden.shape[1])
        embeddings = self.output_embeddings()
        smoothing = self.loss.label_smoothing
        return projected_crossentropy(hidden, embeddings, labels, weights, smoothing, r_drop)

    def _logs(self, inputs, labels, sample_weight, sums, weights, count):
        """What a step reports: the loss and the compiled metrics."""
        loss, nll = sums
        # A metric is averaged over replicas, the loss is a sum over them.
        tracker = next(metric for metric in self.metrics if metric.name == "loss")
        tracker.update_state(loss / count * replicas(), sample_weight=count)
        self.trackers.perplexity.update_state(nll, ops.sum(weights))
        self.trackers.tokens.update_state(count / replicas())
        if not self.has_metrics:
            return {"loss": tracker.result()}
        logits = self(inputs, training=False)
        return self.compute_metrics(inputs, labels, logits, sample_weight)


class Trackers:
    """What `TokenTrainer` knows of a step or an epoch without logits; `TokenLogs` shows it.

    Not among the model's metrics: `fit` and `train_on_batch` report what was compiled.
    """

    def __init__(self):
        self.perplexity = TokenPerplexity()
        self.tokens = keras.metrics.Sum(name="tokens")
        self.gradient_norm = LatestValue(name="gradient_norm")
        self.step_loss = LatestValue(name="step_loss")

    def reset(self):
        for metric in (self.perplexity, self.tokens, self.gradient_norm, self.step_loss):
            metric.reset_state()
