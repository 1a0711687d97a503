"""A plain loop over `torch.nn.Transformer`: tied embeddings, batches of one length each."""

import math

import numpy as np
import torch
from torch import nn

WIDTH_MULTIPLE = 4


class Engine:
    def __init__(self, case, directory, compiled=False):
        torch.manual_seed(0)
        self.random = np.random.default_rng(0)
        self.case = case
        with np.load(directory / "ids.npz") as arrays:
            self.source, self.target = arrays["source"], arrays["target"]
        # The accelerator's settings are for gpu_training.py; on a CPU float32 is the faster one.
        self.device = case.get("device", "cpu")
        self.autocast = self.device != "cpu" and case["precision"] == "bfloat16"
        self.model = Model(case).to(self.device)
        self.optimizer = torch.optim.Adam(self.model.parameters(), betas=(0.9, 0.98), eps=1e-9)
        self.loss = nn.CrossEntropyLoss(ignore_index=0, label_smoothing=0.1)
        self.forward = torch.compile(self._loss) if compiled else self._loss

    def epoch(self):
        self.model.train()
        for rows, width in self._plan():
            source, target = (
                torch.from_numpy(ids[rows, : width + 1].astype("int64")).to(self.device)
                for ids in (self.source, self.target)
            )
            loss = self.forward(source[:, :width], target)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
        if self.device == "cuda":
            torch.cuda.synchronize()
        return float(loss)

    def device_mib(self):
        """The most memory that this process has had on the accelerator; 0 without one."""
        return torch.cuda.max_memory_allocated() / 2**20 if self.device == "cuda" else 0

    def _loss(self, source, target):
        with torch.autocast(self.device, torch.bfloat16, enabled=self.autocast):
            logits = self.model(source, target[:, :-1])
        return self.loss(logits.float().flatten(0, 1), target[:, 1:].flatten())

    def _plan(self):
        lengths = np.maximum((self.source != 0).sum(1), (self.target != 0).sum(1) - 1)
        widths = -(-lengths // WIDTH_MULTIPLE) * WIDTH_MULTIPLE
        plan = []
        for width in np.unique(widths):
            rows = self.random.permutation(np.flatnonzero(widths == width))
            size = max(self.case["batch_tokens"] // width, 1)
            plan += [(rows[i : i + size], int(width)) for i in range(0, len(rows), size)]
        return [plan[i] for i in self.random.permutation(len(plan))]


class Model(nn.Module):
    def __init__(self, case):
        super().__init__()
        self.d_model = case["d_model"]
        self.embedding = nn.Embedding(case["vocab_size"], self.d_model, padding_idx=0)
        nn.init.normal_(self.embedding.weight, std=self.d_model**-0.5)
        self.transformer = nn.Transformer(
            self.d_model,
            case["num_heads"],
            case["num_layers"],
            case["num_layers"],
            case["d_ff"],
            case["dropout"],
            batch_first=True,
        )
        position = torch.arange(512)[:, None]
        step = torch.exp(torch.arange(0, self.d_model, 2) * (-math.log(10000) / self.d_model))
        table = torch.stack([torch.sin(position * step), torch.cos(position * step)], dim=2)
        self.register_buffer("table", table.flatten(1))
        self.dropout = nn.Dropout(case["dropout"])

    def forward(self, source, target):
        mask = nn.Transformer.generate_square_subsequent_mask(target.shape[1], source.device)
        padding = torch.zeros(source.shape, device=source.device).masked_fill(source == 0, -1e9)
        x = self.transformer(
            self._embed(source),
            self._embed(target),
            tgt_mask=mask,
            src_key_padding_mask=padding,
            memory_key_padding_mask=padding,
            tgt_is_causal=True,
        )
        return x @ self.embedding.weight.T

    def _embed(self, ids):
        x = self.embedding(ids) * self.d_model**0.5
        return self.dropout(x + self.table[: ids.shape[1]])
