"""The base of the models that predict tokens: logits, the step of a search, the step of `fit`."""

import math
from functools import partial

import keras
from keras import ops

from keras_transformer import backend, pure_steps
from keras_transformer.checks import check_number, check_positive_int
from keras_transformer.layers.attention_memory import ScoreRecorder
from keras_transformer.models import search_cache
from keras_transformer.models.sequence_model import SequenceModel
from keras_transformer.training import step
from keras_transformer.training.distribution import (
    WorkerModel,
    logs_for_fit,
    replicas,
    sum_over_replicas,
)
from keras_transformer.training.losses import (
    MaskedCrossentropy,
    check_labels,
    check_reads_logits,
    check_weights,
)
from keras_transformer.training.metrics import StepMetrics
from keras_transformer.training.shards import default_shards


class TokenModel(WorkerModel, SequenceModel):
    """The base of `Transformer` and `LanguageModel`: makes `fit` fast, exact, small in memory.

    A subclass defines `hidden_states(inputs, training=None)`, a tensor (B, T, D) for ids or a tuple
    of ids, and `lm_head_kernel()`, the matrix (V, D) that turns it into logits. For a search it
    needs a `decoder`, a `target_embedding` and an `init_cache`.

    With `MaskedCrossentropy` on TensorFlow or JAX, the loss comes from the hidden states
    (`projected_crossentropy`), so no tensor of all logits is kept. It is the mean over the real
    tokens of the global batch, of all replicas and parts, plus what layers and regularizers add.
    Gradients are clipped after they are summed. Other losses and backends take Keras's own step,
    which gives the same gradients with more memory. So do models with `loss_weights`, and
    subclasses with a `call`, `logits` or `compute_loss` of their own.
    """

    step_metrics = None  # until `compile`
    r_drop_paused = False  # by `DelayRDrop`

    def hidden_states(self, inputs, training=None):
        """Computes the last layer's output (B, T, D); times `lm_head_kernel` it is the logits.

        Subclasses may take more arguments: `Transformer` takes `scores`, `LanguageModel` `cache`.
        """
        raise NotImplementedError

    def lm_head_kernel(self):
        """Returns the matrix (V, D) of the logits, a tensor."""
        raise NotImplementedError

    def call(self, inputs, training=None):
        return self.logits(self.hidden_states(inputs, training))  # (B, T, V)

    def logits(self, hidden_states):
        """Scores the whole vocabulary: `hidden_states E^T` (paper, section 3.4).

        Args:
            hidden_states: tensor (..., D).

        Returns:
            Tensor (..., V), float32.
        """
        kernel = ops.transpose(ops.cast(self.lm_head_kernel(), self.compute_dtype))  # (D, V)
        x = ops.reshape(ops.cast(hidden_states, self.compute_dtype), (-1, kernel.shape[0]))
        scores = ops.cast(ops.matmul(x, kernel), "float32")  # (rows, V)
        return ops.reshape(scores, (*ops.shape(hidden_states)[:-1], kernel.shape[1]))

    def decode_step(self, token_ids, cache, position, *, in_place=False):
        """One token for every hypothesis: the `step_fn` of the searches.

        Args:
            token_ids, cache, position, in_place: as in `decode_states`.

        Returns:
            Logits (B * K, V), float32, and the new cache.
        """
        states, cache = self.decode_states(token_ids, cache, position, in_place=in_place)
        return self.logits(states), cache  # (B * K, V)

    def decode_states(self, token_ids, cache, position, *, in_place=False):
        """Reads one token of every hypothesis.

        Args:
            token_ids: integers (B * K,), the last token of each hypothesis, a sentence's K
                hypotheses side by side.
            cache: from `init_cache`, `reorder_cache`, `compact_cache` or the last step.
            position: integer scalar, the number of earlier steps.
            in_place: whether nobody else holds `cache`, so that its memory may be written.

        Returns:
            Hidden states (B * K, D), and the new cache.
        """
        cache = search_cache.with_new_key(cache)
        beam_size, caches = cache["visible"].shape[1], search_cache.layer_caches(cache, in_place)
        scores = ScoreRecorder() if "coverage" in cache else None
        position_ids = ops.zeros((beam_size,), "int32") + position  # (K,)
        if "context_lengths" in cache:
            position_ids = ops.expand_dims(cache["context_lengths"], 1) + position_ids  # (B, K)
        # The K hypotheses of a sentence are K queries of one sequence. Each sees keys of its own.
        token_ids = ops.reshape(token_ids, (-1, beam_size))  # (B, K)
        x = self.decoder(
            self.target_embedding(token_ids, position_ids=position_ids, training=False),
            cache.get("memory"),
            source_padding_mask=cache.get("source_padding_mask"),
            attention_mask=cache["visible"],
            position_ids=position_ids,
            cache=caches,
            scores=scores,
            training=False,
        )  # (B, K, D)
        cache = search_cache.advance(cache, caches)
        if scores is not None:
            attended = ops.mean(scores.cross_attention[-1], axis=1)  # (B, K, S)
            cache["coverage"] = cache["coverage"] + attended
        return ops.reshape(x, (-1, x.shape[-1])), cache  # (B * K, D)

    reorder_cache = staticmethod(search_cache.reorder)
    compact_cache = staticmethod(search_cache.compact)

    def compile(
        self,
        optimizer="adam",
        loss=None,
        *,
        metrics=None,
        micro_batches=1,
        num_shards="auto",
        r_drop=0.0,
        **kwargs,
    ):
        """Prepares the model for `fit`, as `keras.Model.compile` does, with three more arguments.

        A batch is cut into micro-batches, which are computed one after another, and a micro-batch
        into shards, which are computed at the same time. Each shard of each micro-batch is a part.
        The gradient is that of the whole batch.

        Args:
            optimizer: a Keras optimizer; it clips the gradient of the whole batch.
            loss: a `MaskedCrossentropy`, or another loss of labels (B, T) and logits (B, T, V).
            metrics: Keras metrics of labels and logits. They see the logits of the step's own
                forward pass, which take memory; what the callback `TokenLogs` shows is free.
            micro_batches: the number of micro-batches in a batch; more of them save memory.
            num_shards: the number of shards in a micro-batch, each for a core. "auto" is
                `default_shards()`, but 1 where shards do not help (`run_eagerly`, `jit_compile`,
                several devices) or layers add losses.
            r_drop: alpha of R-Drop (Liang et al., 2021, "R-Drop: Regularized Dropout for Neural
                Networks"), or 0. Each sentence goes through the model twice, with different
                dropout. The loss is the mean of both, plus `alpha / 4` times the sum of the two KL
                divergences between the predictions.
            **kwargs: further arguments of `keras.Model.compile`.

        Raises:
            ValueError: if a value is out of range, or needs the step of `MaskedCrossentropy`.
        """
        loss = loss() if loss is MaskedCrossentropy else loss
        check_reads_logits(loss, type(self).__name__)
        check_positive_int("micro_batches", micro_batches)
        if num_shards != "auto":
            check_positive_int("num_shards", num_shards)
        check_number("r_drop", r_drop, float, "a number of at least 0", lambda x: 0 <= x < math.inf)
        reasons = self._reasons_for_keras_step(loss, kwargs.get("loss_weights"))
        for name, value, *defaults in (
            ("micro_batches", micro_batches, 1),
            ("num_shards", num_shards, "auto", 1),
            ("r_drop", r_drop, 0),
        ):
            if reasons and value not in defaults:
                raise ValueError(
                    f"{name}={value!r} needs the model's own training step, but it takes Keras's: "
                    f"{'; '.join(reasons)}. Change that, or leave {name} at {defaults[0]}."
                )
        self.micro_batches, self.num_shards, self.r_drop = micro_batches, num_shards, r_drop
        self.shards = default_shards() if num_shards == "auto" else num_shards
        self.r_drop_paused = False
        self.step_metrics = None if reasons else StepMetrics()
        self.metrics_need_logits = bool(metrics or kwargs.get("weighted_metrics")) or (
            type(self).compute_metrics is not keras.Model.compute_metrics
        )
        super().compile(optimizer, loss, metrics=metrics, **kwargs)

    def _reasons_for_keras_step(self, loss, loss_weights) -> list[str]:
        """Lists why the model must take Keras's own step; empty if it can take its own."""
        own = type(self)
        methods = (own.call, own.logits, own.compute_loss)
        reasons = {
            "the backend is neither TensorFlow nor JAX": not (
                backend.on_tensorflow() or backend.STEPS_ARE_PURE
            ),
            f"loss is {loss!r}, not a MaskedCrossentropy": type(loss) is not MaskedCrossentropy,
            "it has loss_weights": loss_weights is not None,
            "it has an activity_regularizer of logits": self.activity_regularizer is not None,
            "it has a call, logits or compute_loss of its own": methods
            != (TokenModel.call, TokenModel.logits, keras.Model.compute_loss),
        }
        return [reason for reason, holds in reasons.items() if holds]

    def get_compile_config(self):
        names = ("micro_batches", "num_shards", "r_drop") if self.compiled else ()
        return {**super().get_compile_config(), **{name: getattr(self, name) for name in names}}

    def compile_from_config(self, config):
        self.compile(**keras.saving.deserialize_keras_object(config))
        self.optimizer.build(self.trainable_variables)

    def builds_from_data(self):
        return self.step_metrics is None or self.metrics_need_logits or not self.built

    def check_batch(self, inputs, labels=None, sample_weight=None):
        super().check_batch(inputs, labels, sample_weight)
        if labels is None or not isinstance(self.loss, MaskedCrossentropy):
            return
        predicted = keras.tree.flatten(inputs)[-1]  # each id predicts the next one
        check_labels(labels, None if predicted is None else predicted.shape[1])
        if sample_weight is not None:
            check_weights(sample_weight, labels.shape)

    def make_train_function(self, force=False):
        if self.r_drop_paused and not force:  # an interrupted `fit` left it so
            self.r_drop_paused, force = False, True
        # Build the optimizer first; otherwise the step is traced twice.
        if self.built and not self.optimizer.built:
            self.optimizer.build(self.trainable_variables)
        is_new = force or self.train_function is None
        if is_new and backend.STEPS_ARE_PURE:
            # Bound methods compare equal, so JAX would take the old trace; partials do not.
            self.train_step = partial(type(self).train_step, self)
        super().make_train_function(force)
        if is_new and backend.STEPS_ARE_PURE and self.step_metrics is not None:
            groups = self._train_state()
            self.train_function = pure_steps.showing_numbers(self.train_function, groups)

    def check_class_weight(self, class_weight):
        """Refuses it: Keras would read each row of labels as one class."""
        raise ValueError(
            "class_weight has no meaning for sequences of labels: Keras would read each row as one "
            "class. Give sample_weight of shape (B, T), such as a table of weights at the labels."
        )

    def reset_metrics(self):
        super().reset_metrics()
        if self.step_metrics is not None:
            self.step_metrics.reset()

    def train_step(self, *args):
        if self.step_metrics is None:
            return logs_for_fit(super().train_step(*args))
        if backend.STEPS_ARE_PURE:
            return pure_steps.as_pure_step(self._train, self._train_state())(*args)
        return self._train(*args)

    def test_step(self, *args):
        if self.step_metrics is None:
            return logs_for_fit(super().test_step(*args))
        if backend.STEPS_ARE_PURE:
            groups = self.trainable_variables, self.non_trainable_variables, self.metrics_variables
            return pure_steps.as_pure_step(self._test, groups)(*args)
        return self._test(*args)

    def _train_state(self):
        """Lists what a training step changes, in the order of Keras's step on JAX."""
        weights = self.trainable_variables, self.non_trainable_variables
        return *weights, self.optimizer.variables, self.metrics_variables

    @property
    def metrics_variables(self):
        """The variables of all metrics, those of `step_metrics` included."""
        own = () if self.step_metrics is None else self.step_metrics.variables
        return [*super().metrics_variables, *own]

    def _train(self, *args):
        batch = step.unpack(*args)
        r_drop = 0.0 if self.r_drop_paused else self.r_drop
        gradients, loss, logits = self._run_batch(batch, training=True, r_drop=r_drop)
        gradients = step.add_regularization(self, gradients)
        regularization = step.regularization(self)  # before the weights change
        gradients, norm = step.reduce_gradients(gradients, self.optimizer)
        if gradients:  # not all weights are frozen
            backend.apply_gradients(self.optimizer, gradients, self.trainable_variables)
        self.step_metrics.gradient_norm.update_state(norm)
        return self._logs(batch, loss, regularization, logits)

    def _test(self, *args):
        batch = step.unpack(*args)
        _, loss, logits = self._run_batch(batch, training=False)
        return self._logs(batch, loss, step.regularization(self), logits)

    def _run_batch(self, batch, **options):
        """Runs a batch in the chosen number of parts, and makes logits if metrics need them."""
        # XLA and eager code run the iterations of a loop one after another.
        in_turn = replicas() > 1 or self.jit_compile or self.run_eagerly
        shards = 1 if self.num_shards == "auto" and in_turn else self.shards
        options["with_states"] = self.metrics_need_logits
        parts = {"parts": self.micro_batches * shards, "at_once": shards}
        try:
            gradients, loss, states = step.run_batch(self, batch, **parts, **options)
        except step.AddedLossError:
            if self.num_shards != "auto" or self.micro_batches > 1:
                raise
            gradients, loss, states = step.run_batch(self, batch, **options)
        return gradients, loss, None if states is None else self.logits(states)

    def _logs(self, batch, loss, regularization, logits):
        """Updates the metrics and returns what a step reports: the loss and compiled metrics."""
        metrics, number = self.step_metrics, replicas()
        metrics.perplexity.update_state(loss.nll, ops.sum(batch.token_weights))
        metrics.tokens.update_state(batch.num_tokens / number)
        # Keras averages a metric over replicas, but the loss is a sum over them.
        mean = loss.total / batch.num_tokens * number + loss.added + regularization
        # Keras has a metric of this name, which `fit` shows.
        tracker = next(metric for metric in self.metrics if metric.name == "loss")
        tracker.update_state(mean, sample_weight=batch.num_tokens)
        metrics.step_loss.update_state(sum_over_replicas(mean) / number)
        if logits is None:
            logs = self.get_metrics_result()
        else:
            logs = self.compute_metrics(batch.inputs, batch.labels, logits, batch.sample_weight)
        return logs if number == 1 else logs_for_fit(logs)
