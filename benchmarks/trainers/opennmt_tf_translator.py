"""Trains OpenNMT-tf for some epochs, averages the last checkpoints and translates files.

    python opennmt_tf_translator.py DIRECTORY

DIRECTORY holds what `write_case` of benchmarks/training.py writes and the texts to translate, in
pieces. The case's "translations" names each text, the file for its translations and the length
penalty. A checkpoint is kept after every epoch, from which a process that is started again goes on.
"""

import json
import sys
from pathlib import Path

import opennmt
import tensorflow as tf
from opennmt_tf_engine import Engine


def main():
    directory = Path(sys.argv[1])
    case = json.loads((directory / "case.json").read_text("utf-8"))
    engine = Engine(case, directory)
    train(engine, case["epochs"], case["average"])
    average(engine, case["average"])
    for search in case["translations"]:
        engine.model.params["length_penalty"] = search["length_penalty"]
        lines = translate(engine.model, directory / search["source"])
        (directory / search["translation"]).write_text("\n".join(lines) + "\n", "utf-8")


def train(engine, epochs, keep):
    engine.model.create_variables(optimizer=engine.optimizer)
    epoch = tf.Variable(0)
    checkpoint = tf.train.Checkpoint(model=engine.model, optimizer=engine.optimizer, epoch=epoch)
    manager = tf.train.CheckpointManager(checkpoint, engine.directory / "checkpoints", keep)
    if manager.latest_checkpoint:
        checkpoint.restore(manager.latest_checkpoint)
    while epoch < epochs:
        tf.random.set_seed(1000 * engine.case["seed"] + int(epoch))
        loss = engine.epoch()
        epoch.assign_add(1)
        manager.save(checkpoint_number=int(epoch))
        print(f"epoch {int(epoch)}: loss {loss:.3f}", flush=True)


def average(engine, count):
    """Gives the model the mean of its last checkpoints."""
    trackables = {"model": engine.model, "optimizer": engine.optimizer}
    paths = [str(engine.directory / name) for name in ("checkpoints", "average")]
    opennmt.utils.average_checkpoints(*paths, trackables, max_count=count)
    latest = tf.train.latest_checkpoint(paths[1])
    tf.train.Checkpoint(model=engine.model).restore(latest).expect_partial()


def translate(model, path):
    """The best translation of each line, in pieces, in the order of the lines."""
    # Its batches are of sentences of about one length, with the number of each as its index.
    dataset = model.examples_inputter.make_inference_dataset(
        str(path), batch_size=32, length_bucket_width=4
    )
    predict = tf.function(lambda source: model(source)[1], input_signature=[dataset.element_spec])
    lines = {}
    for source in dataset:
        prediction = predict(source)
        tokens, lengths = prediction["tokens"][:, 0].numpy(), prediction["length"][:, 0].numpy()
        for index, row, length in zip(source["index"].numpy(), tokens, lengths, strict=True):
            lines[index] = " ".join(token.decode() for token in row[:length])
    return [lines[index] for index in range(len(lines))]


if __name__ == "__main__":
    main()
