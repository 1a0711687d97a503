"""OpenNMT-tf 2.32: its Transformer, its bucketed dataset, the loop of its own training example."""

import opennmt
import tensorflow as tf
import tensorflow_addons as tfa


class Engine:
    def __init__(self, case, directory):
        tf.random.set_seed(case.get("seed", 0))
        self.directory, self.case = directory, case
        self.model = opennmt.models.Transformer(
            num_layers=case["num_layers"],
            num_units=case["d_model"],
            num_heads=case["num_heads"],
            ffn_inner_dim=case["d_ff"],
            dropout=case["dropout"],
            attention_dropout=0.0,
            ffn_dropout=0.0,
            share_embeddings=opennmt.models.EmbeddingsSharingLevel.ALL,
            pre_norm=case.get("pre_norm", False),
        )
        vocabulary = str(directory / "vocabulary.txt")
        self.model.initialize(
            {"source_vocabulary": vocabulary, "target_vocabulary": vocabulary},
            params={"label_smoothing": 0.1, **case.get("search", {})},
        )
        schedule = opennmt.schedules.NoamDecay(
            scale=case.get("learning_rate_scale", 1.0),
            model_dim=case["d_model"],
            warmup_steps=case["warmup_steps"],
        )
        self.optimizer = tfa.optimizers.LazyAdam(schedule, beta_1=0.9, beta_2=0.98, epsilon=1e-9)
        self.step = tf.function(self._step, input_signature=self._dataset().element_spec)

    def epoch(self):
        losses = [self.step(source, target) for source, target in self._dataset()]
        return float(tf.reduce_mean(losses))

    def _dataset(self):
        return self.model.examples_inputter.make_training_dataset(
            str(self.directory / "source.txt"),
            str(self.directory / "target.txt"),
            batch_size=self.case["batch_tokens"],
            batch_type="tokens",
            shuffle_buffer_size=-1,
            length_bucket_width=self.case.get("length_bucket_width", 1),
            maximum_features_length=200,
            maximum_labels_length=200,
            single_pass=True,
            prefetch_buffer_size=4,
        )

    def _step(self, source, target):
        outputs, _ = self.model(source, target, training=True)
        loss = self.model.compute_loss(outputs, target, training=True)
        loss = loss[0] / loss[2]  # the tokens, not the sentences
        variables = self.model.trainable_variables
        gradients = self.optimizer.get_gradients(loss, variables)
        self.optimizer.apply_gradients(list(zip(gradients, variables, strict=True)))
        return loss
