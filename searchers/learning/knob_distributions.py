"""Independent categorical distributions over the knobs of a sketch."""

from dataclasses import dataclass

import numpy as np

from costmodels.base import Column, Indices
from costmodels.dense_layers import Adam
from searchers.learning.knobs import Knobs, Mask, pick
from searchers.tile_factorizations import Rows

SMOOTHING = 0.2  # uniform share of a distribution fit by counting


@dataclass(frozen=True, slots=True)
class Draw:
    """Rows of one sketch, the option drawn for each knob, and the options that were legal."""

    rows: Rows
    places: Indices  # rows x knobs
    legal: Mask  # rows x knobs x options


class KnobDistributions:
    """Logits for each knob; rows are drawn knob by knob from the legal options."""

    def __init__(self, knobs: Knobs, logits: Column, rate: float) -> None:
        self.knobs = knobs
        self.logits = logits
        self._adam = Adam([self.logits], rate)

    def draw(self, rng: np.random.Generator, count: int) -> Draw:
        rows = self.knobs.blank(count)
        places = np.zeros((count, len(self.knobs)), dtype=np.int64)
        legal = np.zeros((count, *self.logits.shape), dtype=np.bool_)
        for index in range(len(self.knobs)):
            legal[:, index] = self.knobs.legal(index, rows)
            places[:, index] = pick(rng, self.logits[index], legal[:, index])
            self.knobs.set(index, rows, places[:, index])
        return Draw(rows, places, legal)

    def learn(self, draw: Draw, advantage: Column, entropy: float) -> None:
        """Make one policy-gradient step; `entropy` is the weight of the entropy bonus."""
        chances = softmax(self.logits, draw.legal)
        logs = np.log(np.maximum(chances, 1e-12))
        surprise = -(chances * logs).sum(axis=2, keepdims=True)
        slope = -np.einsum("n,nko->ko", advantage, chances)
        np.add.at(slope, (np.arange(len(self.knobs)), draw.places), advantage[:, None])
        slope -= entropy * (chances * (logs + surprise)).sum(axis=0)
        self._adam.step([-slope / max(1, len(advantage))])


def softmax(logits: Column, legal: Mask) -> Column:
    """Return the softmax over the last axis, with 0 for illegal options."""
    legal_logits = np.where(legal, logits, -np.inf)
    powers = np.exp(legal_logits - legal_logits.max(axis=-1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=-1, keepdims=True))


def counted(knobs: Knobs, rows: Rows, weight: Column) -> Column:
    """Return the logits with least cross-entropy on weighted rows, mixed with uniform ones."""
    uniform = knobs.exists / np.maximum(1, knobs.exists.sum(axis=1, keepdims=True))
    counts = np.zeros(knobs.exists.shape)
    np.add.at(counts, (np.arange(len(knobs)), knobs.places(rows)), weight[:, None])
    total = weight.sum()
    share = counts / total if total else uniform
    return np.asarray(np.log(np.maximum(SMOOTHING * uniform + (1 - SMOOTHING) * share, 1e-12)))
