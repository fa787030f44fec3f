"""The contract of managers: what older scripts copy event files with."""

from __future__ import annotations

import abc
import os
from pathlib import PurePosixPath
from types import TracebackType

from determined.core.recording.event_upload import EventUploads


class TensorboardManager(EventUploads):
    """Uploads files of one directory that changed since they were last uploaded.

    Trouble with an upload is a warning, never an exception: the file is tried again with the next sync.

    Args:
        base_path: The directory that event files are written to.
        sync_path: Where they are kept, relative to the storage.
        async_upload: Upload in a thread of its own, between `start()` and `close()`.
        sync_on_close: Make a last sync in `close()`. One that was asked for and put off is made in any case.

    Example::

        with build("cluster", "1", "7", "/data/checkpoints") as manager:
            manager.sync()
    """

    def __init__(
        self,
        base_path: os.PathLike[str] | str,
        sync_path: os.PathLike[str] | str,
        async_upload: bool = True,
        sync_on_close: bool = True,
    ) -> None:
        super().__init__(base_path, async_upload, sync_on_close)
        self.sync_path = PurePosixPath(sync_path)

    @abc.abstractmethod
    def delete(self) -> None:
        """Remove everything under the sync path."""

    def __enter__(self) -> TensorboardManager:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
