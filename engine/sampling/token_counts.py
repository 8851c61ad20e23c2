"""How often each token occurs in a request's answer, kept up to date as it grows: what penalties need."""

import numpy as np
import numpy.typing as npt

from engine.request import Request


class TokenCounts:
    """One request's. A token that is in the prompt only has count 0.

    It follows `request.token_ids`, so chunks, preemption and resume leave it alone: they change no token.
    """

    def __init__(self, request: Request) -> None:
        self._request = request
        self._num_counted = request.num_prompt
        self._token_ids = np.unique(np.array(request.token_ids[: request.num_prompt], np.int32))
        self._counts = np.zeros(len(self._token_ids), np.float32)
        self._place = {token_id: i for i, token_id in enumerate(self._token_ids.tolist())}

    def update(self) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float32]]:
        """token_ids and counts [n] of the distinct tokens so far; views that the next update may change."""
        for token_id in self._request.token_ids[self._num_counted :]:
            place = self._place.setdefault(token_id, len(self._place))
            if place == len(self._counts):
                self._grow()
            self._token_ids[place] = token_id
            self._counts[place] += 1
        self._num_counted = len(self._request.token_ids)
        return self._token_ids[: len(self._place)], self._counts[: len(self._place)]

    def _grow(self) -> None:
        room = np.zeros(len(self._counts) // 2 + 64, np.int32)
        self._token_ids = np.concatenate([self._token_ids, room])
        self._counts = np.concatenate([self._counts, room.astype(np.float32)])
