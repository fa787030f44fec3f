"""`python -m tests.ray_launcher`: the Ray launcher in a process that answers questions, for one store after another."""

from __future__ import annotations

import threading
import time
from typing import Any

from determined.experiment.launchers.base import TaskSpec
from determined.experiment.launchers.ray import RayLauncher
from determined.store import attempts
from determined.store.database.connection import open_store
from tests.ray_cluster import answer_questions


class Answers:
    """Each method answers the question of its name."""

    def __init__(self) -> None:
        self.one_at_a_time = threading.Lock()
        self.launcher: Any = None

    def open(self, store: str, home: str) -> None:
        if self.launcher is not None:
            self.store.close()
        self.store = open_store(store)
        self.launcher = RayLauncher(self.store, home)

    def start(self, task: str) -> None:
        self.launcher.start(TaskSpec.from_json(task))

    def is_alive(self, allocation_id: str) -> bool:
        return bool(self.launcher.is_alive(self._row(allocation_id)))

    def kill(self, allocation_id: str) -> None:
        self.launcher.kill(self._row(allocation_id))

    def wait(self, seconds: float) -> None:
        self.launcher.wait(seconds)

    def waiting(self) -> dict[str, str]:
        return dict(self.launcher.waiting())

    def slots(self) -> Any:
        return self.launcher.slots().to_json()

    def go_on(self) -> None:
        """Place attempts, as a controller does between its rounds."""
        while True:
            time.sleep(0.01)
            with self.one_at_a_time:
                if self.launcher is not None:
                    self.launcher.wait(0.02)

    def answer(self, do: str, **question: Any) -> Any:
        with self.one_at_a_time:
            return getattr(self, do)(**question)

    def _row(self, allocation_id: str) -> attempts.AttemptRow:
        with self.store.read() as conn:
            return attempts.get(conn, allocation_id)


def main() -> None:
    answers = Answers()
    threading.Thread(target=answers.go_on, daemon=True).start()
    answer_questions(answers.answer)


if __name__ == "__main__":
    main()
