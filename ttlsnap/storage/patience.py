"""The time that ttlsnap waits for the answers of a store.

A store that accepts connections and never answers must not make a command wait forever. It must not make it wait for
each request, either: after the first one, ttlsnap undoes the run, removes what it staged and releases the lock. So a
store that has left one request unanswered gets less time, until it answers again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, TypeVar

ANSWER_S = 30.0
"""The seconds in which a store must answer a request."""

REPEAT_S = 25.0
"""The seconds after which a failed request is not repeated any more. The last try takes up to ``ANSWER_S``."""

HURRIED_S = 5.0
"""The seconds for a request, without repetitions, to a store that has left another one unanswered."""

Answer = TypeVar("Answer")


class Patience:
    """The patience with one store."""

    def __init__(self) -> None:
        self.is_hurried = False

    @property
    def answer_s(self) -> float:
        """The seconds in which the store must answer a request."""
        return min(HURRIED_S, ANSWER_S) if self.is_hurried else ANSWER_S

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Notice whether the store answers the requests of the block."""
        started, longest_s = time.monotonic(), self.answer_s
        try:
            yield
        except BaseException:
            self.is_hurried = time.monotonic() - started >= longest_s
            raise
        self.is_hurried = False

    def call(self, request: Callable[..., Answer], *arguments: Any, **options: Any) -> Answer:
        """Call a client that has no limit of its own. Raise TimeoutError if it does not return in time.

        The client may carry the request out later.
        """
        seconds = self.answer_s if self.is_hurried else REPEAT_S + self.answer_s
        answers: list[Answer] = []
        errors: list[BaseException] = []
        is_answered = threading.Event()

        def run() -> None:
            try:
                answers.append(request(*arguments, **options))
            except BaseException as error:
                errors.append(error)
            is_answered.set()

        # A pool would wait for its threads when the process ends.
        threading.Thread(target=run, name="ttlsnap-request", daemon=True).start()
        if not is_answered.wait(seconds):
            raise TimeoutError(f"no answer within {seconds:g} s")
        if errors:
            raise errors[0]
        return answers[0]


@cache
def patience_with(store: str) -> Patience:
    """Return the patience of this process with a store, such as a bucket or a name node."""
    return Patience()
