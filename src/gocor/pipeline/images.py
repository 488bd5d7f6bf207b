"""Pictures of image files. A file that occurs in many pairs is read once, as long as memory allows."""

import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

from ..matching.images import as_picture
from ..utils.arrays import Picture


class ImageCache:
    """The pictures that were used last, for any number of threads.

    Args:
        limit: bytes of pictures to keep, at most. A larger picture is read and not kept.
        read: reads a file.
    """

    def __init__(self, limit: int, read: Callable[[Path], Picture] = as_picture) -> None:
        self._limit, self._read = limit, read
        self._lock = threading.Lock()
        self._kept: OrderedDict[Path, Picture] = OrderedDict()  # the one that was used last is last
        self._being_read: dict[Path, Future[Picture]] = {}
        self._bytes = 0

    def get(self, path: Path) -> Picture:
        """The picture of a file. Threads that ask for a file that another one is reading wait for it."""
        with self._lock:
            if path in self._kept:
                self._kept.move_to_end(path)
                return self._kept[path]
            waiting = self._being_read.get(path)
            if waiting is None:
                mine = self._being_read[path] = Future[Picture]()
        if waiting is not None:
            return waiting.result()
        try:
            picture = self._read(path)
        except BaseException as error:
            mine.set_exception(error)
            raise
        else:
            mine.set_result(picture)
            self._keep(path, picture)
        finally:
            with self._lock:
                del self._being_read[path]
        return picture

    def _keep(self, path: Path, picture: Picture) -> None:
        with self._lock:
            self._kept[path] = picture
            self._bytes += picture.nbytes
            while self._bytes > self._limit:
                _, oldest = self._kept.popitem(last=False)
                self._bytes -= oldest.nbytes
