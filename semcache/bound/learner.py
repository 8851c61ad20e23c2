"""Learns online what may be served, and keeps the share of wrong answers among the served ones under a bound.

Every miss teaches for free: the fresh answer is compared with the one that would have been served. Nothing is served
before the bound is shown on labelled examples. Of what could be served a small share is asked all the same
("explored"): it keeps the labels coming from where it matters, and watches over the promise.
"""

import zlib
from typing import Literal

import msgspec
import numpy as np

from semcache.bound.alarm import Alarm
from semcache.bound.calibration import CLOSED, calibrate
from semcache.bound.labels import Labels
from semcache.bound.logistic import Array, predict
from semcache.errors import CacheError

Decision = Literal["serve", "explore", "ask"]

FIRST_FIT = 100  # labels
REFIT_GROWTH = 0.04  # and then each time the labels have grown by this share, but by FIRST_FIT at least
MIN_RIGHT = 20  # examples of one kind that a fit needs


class _State(msgspec.Struct, frozen=True):
    max_error_rate: float
    explored_share: float
    doubt: float
    seed: int
    threshold: float
    num_alarms: int
    num_new: int
    fortunes: list[float]
    coefficients: list[float] | None
    labels: bytes


class Learner:
    """One for each kind of traffic: a route, a tenant. Not thread-safe; the same calls give the same results."""

    def __init__(
        self,
        max_error_rate: float,
        num_features: int,
        *,
        explored_share: float = 0.02,
        doubt: float = 0.02,
        seed: int = 0,
    ) -> None:
        """`max_error_rate` bounds the wrong among the served. Raises CacheError for a rate or share not in (0, 1)."""
        for name, value in (("max_error_rate", max_error_rate), ("explored_share", explored_share), ("doubt", doubt)):
            if not 0.0 < value < 1.0:
                raise CacheError(f"{name} must be above 0 and below 1, not {value!r}")
        self.max_error_rate = max_error_rate
        self.explored_share = explored_share
        self.doubt = doubt
        self.seed = seed
        self.threshold = CLOSED
        self.labels = Labels(num_features)
        self.num_alarms = 0
        self._coefficients: Array | None = None
        self._alarm = Alarm(max_error_rate)
        self._num_new = 0
        self._random = np.random.default_rng(seed)

    @property
    def is_open(self) -> bool:
        return self.threshold <= 1.0

    def probability(self, features: Array) -> float:
        """How likely the answer serves; 0 before anything was learned, and for features that aren't finite."""
        if self._coefficients is None or not np.isfinite(features).all():
            return 0.0
        return float(predict(self._coefficients, features))

    def decide(self, features: Array) -> Decision:
        """Serve the answer; explore: ask though it could be served; or ask. After the latter two, `observe`."""
        if self.probability(features) < self.threshold:
            return "ask"
        return "explore" if self._random.random() < self.explored_share else "serve"

    def observe(self, features: Array, same: bool, *, explored: bool = False) -> None:
        """A (f,) neighbourhood and whether the fresh answer was the same as the stored one.

        Features that aren't finite are left out. Raises CacheError for another number of features.
        """
        if not self.labels.add(features, same):
            return
        self._num_new += 1
        if explored and self._alarm.observe(wrong=not same):
            self._close()
        elif self._num_new >= max(FIRST_FIT, REFIT_GROWTH * len(self.labels)):
            self.refit()

    def refit(self) -> None:
        """Learns from all labels at hand; does nothing while there are too few of either kind."""
        self._num_new = 0
        rows, labels = self.labels.rows, self.labels.values
        if min(labels.sum(), len(labels) - labels.sum()) < MIN_RIGHT:
            return
        self._coefficients, self.threshold = calibrate(rows, labels, self.max_error_rate, self.doubt)

    def _close(self) -> None:
        """The promise is broken: what was learned no longer holds, so it is learned anew."""
        self.num_alarms += 1
        self.threshold = CLOSED
        self._coefficients = None
        self._alarm = Alarm(self.max_error_rate)
        self._num_new = 0
        self.labels.clear()

    def state(self) -> bytes:
        """All that was learned, for `restored`."""
        learned = self._coefficients
        state = _State(
            self.max_error_rate,
            self.explored_share,
            self.doubt,
            self.seed,
            self.threshold,
            self.num_alarms,
            self._num_new,
            self._alarm.fortunes,
            learned.tolist() if learned is not None else None,
            self.labels.packed(),
        )
        return msgspec.msgpack.encode(state)

    @classmethod
    def restored(cls, data: bytes) -> "Learner":
        """The learner of a `state`; only the coming draws are others. Raises CacheError if it can't be read."""
        try:
            state = msgspec.msgpack.decode(data, type=_State)
            labels = Labels.unpacked(state.labels)
            learned = np.array(state.coefficients) if state.coefficients is not None else None
            if learned is not None and learned.shape != (labels.num_features + 1,):
                raise ValueError(f"{learned.shape} coefficients for {labels.num_features} features")
        except (msgspec.MsgspecError, ValueError, zlib.error) as error:
            raise CacheError(f"no state of a learner: {error}") from error
        learner = cls(
            state.max_error_rate,
            labels.num_features,
            explored_share=state.explored_share,
            doubt=state.doubt,
            seed=state.seed,
        )
        learner.labels, learner.threshold, learner._coefficients = labels, state.threshold, learned
        learner.num_alarms, learner._num_new = state.num_alarms, state.num_new
        learner._alarm.fortunes = state.fortunes
        learner._random = np.random.default_rng([state.seed, len(labels)])
        return learner
