"""GPUs read through the driver's own library, libnvidia-ml.so (NVML): memory, processes, MIG instances, errors.

`pynvml` (of the package nvidia-ml-py, NVIDIA's own, 0.3 MB of ctypes) calls it. It is read in a thread: a driver that
hangs hangs that thread, and nothing else. Errors that a card tells of once (XID) are heard in another one, as NVIDIA's
device plugin hears them, and stay until the driver is started anew.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any, Final

from deploy.local.gpu_readings import GpuSeen, NoDriver, is_empty
from deploy.local.inventory import InventoryFailed

logger = logging.getLogger(__name__)

OF_PROGRAMS: Final = frozenset({13, 31, 43, 45, 68, 109})
"""XIDs that a program's own mistakes make, as NVIDIA's device plugin leaves them out (internal/rm/health.go of
NVIDIA/k8s-device-plugin)."""
WAIT_MS: Final = 1000
"""Milliseconds for which an event is waited for: how long the end waits for that thread, at most."""
_MEMORY_V2: Final = 0x02000028
"""nvmlMemory_v2 of nvml.h: the structure's size and its version."""


def driver() -> NvmlDriver | NoDriver:
    """The driver where the Python half of its library is installed."""
    try:
        import pynvml  # noqa: PLC0415 - only agents read GPUs; 10 ms to import
    except ImportError:
        return NoDriver()
    return NvmlDriver(pynvml)


class NvmlDriver:
    """See `deploy.local.gpu_readings.Driver`."""

    def __init__(self, nvml: ModuleType) -> None:
        self._nvml: Any = nvml
        self._open = False
        self._xids: dict[str, int] = {}
        """By card: the first XID that was no program's mistake."""
        self._names: dict[int, str] = {}
        self._ends = threading.Event()
        self._hearing: threading.Thread | None = None

    async def read(self) -> tuple[GpuSeen, ...] | None:
        """See `Driver`."""
        return await asyncio.to_thread(self._read)

    async def close(self) -> None:
        """See `Driver`."""
        await asyncio.to_thread(self._close)

    # In threads.

    def _read(self) -> tuple[GpuSeen, ...] | None:
        nvml = self._nvml
        try:
            if not self._begin():
                return None
            seen: list[GpuSeen] = []
            for index in range(nvml.nvmlDeviceGetCount()):
                seen += self._card(index)
        except nvml.NVMLError as error:
            self._close()  # a driver that was taken out and put in again is another one
            raise InventoryFailed(f"the driver's library says: {error}") from error
        return tuple(seen)

    def _close(self) -> None:
        self._ends.set()
        if self._hearing is not None:
            self._hearing.join()
            self._hearing = None
        if self._open:
            self._open = False
            with contextlib.suppress(self._nvml.NVMLError):
                self._nvml.nvmlShutdown()

    def _begin(self) -> bool:
        """Whether there is a driver to read."""
        if self._open:
            return True
        nvml = self._nvml
        try:
            nvml.nvmlInit()
        except nvml.NVMLError as error:
            none = (nvml.NVML_ERROR_LIBRARY_NOT_FOUND, nvml.NVML_ERROR_DRIVER_NOT_LOADED)
            if error.value in none:
                return False
            raise
        self._open = True
        self._xids.clear()
        self._ends = threading.Event()
        self._hearing = threading.Thread(target=self._hear, args=(self._ends,), name="gpu-errors", daemon=True)
        self._hearing.start()
        return True

    # One card.

    def _card(self, index: int) -> list[GpuSeen]:
        nvml = self._nvml
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            uuid = self._names[index] = str(nvml.nvmlDeviceGetUUID(handle))
            return self._known(handle, uuid)
        except nvml.NVMLError as error:
            if error.value != nvml.NVML_ERROR_GPU_IS_LOST:
                raise
        name = self._names.get(index)  # it does not tell its name any more
        return [] if name is None else [GpuSeen(name, "", None, None, None, sick="it has fallen off the bus")]

    def _known(self, handle: Any, uuid: str) -> list[GpuSeen]:
        sick = self._sick(handle, uuid)
        instances = self._instances(handle, uuid, sick)
        card = self._seen(handle, uuid, sick, split=bool(instances))
        return [card, *instances]

    def _seen(self, handle: Any, uuid: str, sick: str, *, parent: str = "", split: bool = False) -> GpuSeen:
        nvml = self._nvml
        memory = self._try(lambda: nvml.nvmlDeviceGetMemoryInfo(handle, version=_MEMORY_V2))
        load = None if parent else self._try(lambda: nvml.nvmlDeviceGetUtilizationRates(handle))
        pids = self._pids(handle)
        used = None if memory is None else int(memory.used)
        return GpuSeen(
            id=uuid, product=str(self._try(lambda: nvml.nvmlDeviceGetName(handle)) or ""),
            memory_bytes=None if memory is None else int(memory.total), used_bytes=used,
            busy=None if load is None else load.gpu / 100, empty=is_empty(used, pids), pids=pids, sick=sick,
            parent=parent, split=split,
        )  # fmt: skip

    def _instances(self, handle: Any, card: str, sick: str) -> list[GpuSeen]:
        """The MIG instances of a card; none where it is not split."""
        nvml = self._nvml
        mode = self._try(lambda: nvml.nvmlDeviceGetMigMode(handle))
        if mode is None or mode[0] != nvml.NVML_DEVICE_MIG_ENABLE:
            return []
        found = []
        for index in range(self._try(lambda: nvml.nvmlDeviceGetMaxMigDeviceCount(handle)) or 0):
            part = self._try(lambda index=index: nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index))  # type: ignore[misc]  # mypy does not infer defaults of lambdas
            if part is not None:  # an index may be empty
                found.append(self._seen(part, str(nvml.nvmlDeviceGetUUID(part)), sick, parent=card))
        return found

    def _pids(self, handle: Any) -> tuple[int, ...]:
        found: set[int] = set()
        for kind in ("Compute", "Graphics", "MPSCompute"):
            for release in ("v3", "v2"):  # by these names, since without one it refuses what older drivers have
                ask = getattr(self._nvml, f"nvmlDeviceGet{kind}RunningProcesses_{release}")
                told = self._try(lambda ask=ask: ask(handle))  # type: ignore[misc]  # mypy does not infer defaults of lambdas
                if told is not None:
                    found.update(int(one.pid) for one in told)
                    break
        return tuple(sorted(found))

    def _sick(self, handle: Any, uuid: str) -> str:
        """What is wrong with a card. Memory errors that the card has mended by itself (rows that it put others in the
        place of, or will at its next reset) are not; those that it cannot mend are."""
        rows = self._try(lambda: self._nvml.nvmlDeviceGetRemappedRows(handle))
        if rows is not None and rows[3]:
            return "a row of its memory could not be replaced"
        xid = self._xids.get(uuid)
        return "" if xid is None else f"it has told of the error XID {xid}"

    def _try(self, ask: Callable[[], Any]) -> Any:
        """An answer; None for what this card or driver does not tell. Raises NVMLError for a card, or a driver,
        that is gone."""
        nvml = self._nvml
        try:
            return ask()
        except nvml.NVMLError as error:
            over = (nvml.NVML_ERROR_UNINITIALIZED, nvml.NVML_ERROR_DRIVER_NOT_LOADED, nvml.NVML_ERROR_GPU_IS_LOST)
            if error.value in over:
                raise
            return None

    # Errors that are told once.

    def _hear(self, ends: threading.Event) -> None:
        """In a thread of its own until the end."""
        nvml = self._nvml
        try:
            heard = nvml.nvmlEventSetCreate()
            for index in range(nvml.nvmlDeviceGetCount()):
                with contextlib.suppress(nvml.NVMLError):  # a card that tells of no errors
                    handle = nvml.nvmlDeviceGetHandleByIndex(index)
                    nvml.nvmlDeviceRegisterEvents(handle, nvml.nvmlEventTypeXidCriticalError, heard)
        except nvml.NVMLError as error:
            logger.debug("errors of GPUs are not heard: %s", error)
            return
        while not ends.is_set():
            try:
                told = nvml.nvmlEventSetWait_v2(heard, WAIT_MS)
                uuid = str(nvml.nvmlDeviceGetUUID(told.device))
            except nvml.NVMLError as error:
                if error.value != nvml.NVML_ERROR_TIMEOUT:
                    ends.wait(WAIT_MS / 1000)
                continue
            if told.eventData not in OF_PROGRAMS:
                self._xids.setdefault(uuid, int(told.eventData))
        with contextlib.suppress(nvml.NVMLError):
            nvml.nvmlEventSetFree(heard)
