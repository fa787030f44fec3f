"""The controller's process: `python -m determined.experiment.controller`. `start` starts it; people need not."""

from __future__ import annotations

import logging
import os
import signal
import sys

from determined import errors
from determined._home import data_directory
from determined.experiment.attempt import working_directory
from determined.experiment.controller import start
from determined.experiment.controller.loop import Controller
from determined.experiment.launchers import choice
from determined.store.database.connection import open_store


def main() -> int:
    """Drive the experiments of the store until nothing is left to do."""
    logging.basicConfig(
        level=logging.DEBUG if os.environ.get("DET_DEBUG") else logging.INFO,
        format="%(asctime)s [%(process)d] %(levelname)s %(message)s",
        stream=sys.stderr,
    )
    logger = logging.getLogger("determined.experiment")
    try:
        if choice.chosen() != choice.LOCAL:
            start.watch_over()
        store = open_store()
        controller = Controller(store, choice.open_launcher(store))
        if not controller.take_lease():
            logger.info("Another controller drives %s.", store.url)
            return 0
    except errors.DeterminedError as failed:
        logger.error("The controller cannot start: %s", failed)
        return 1

    def leave(*_: object) -> None:
        controller.is_asked_to_leave = True

    signal.signal(signal.SIGTERM, leave)
    signal.signal(signal.SIGINT, leave)
    logger.info("Driving the experiments of %s.", store.url)
    working_directory.remove_abandoned(str(data_directory()))  # of agents that died with the last controller
    controller.run()
    working_directory.remove_abandoned(str(data_directory()))  # of agents that died after their attempt was given up
    logger.info("The controller leaves.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
