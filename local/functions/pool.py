"""Process pools of all functions: started on demand, kept warm, replaced, limited in number."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from local.functions.runtime import Instance, failure
from local.workspace import LocalError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from local.functions.invoker import InvokeResult
    from local.functions.runtime import Log
    from local.functions.specs import FunctionSpec


@dataclass(frozen=True, kw_only=True)
class PoolSettings:
    """Number and lifetime of the processes of a function."""

    processes: int = 4  # for each function; fewer where it reserves fewer
    most: int = 16  # where its queues ask for more, so that one queue leaves processes to another
    recycle_after: int = 10_000  # invocations
    freeze: bool = True  # stop a process between invocations


class FunctionPool:
    """The processes of one function; the most recently used one is used next, as on AWS."""

    def __init__(
        self,
        spec: FunctionSpec,
        *,
        settings: PoolSettings,
        log: Log,
        new_id: Callable[[], str],
    ) -> None:
        self.spec = spec
        wanted = max(settings.processes, min(settings.most, spec.from_queues))
        reserved = wanted if spec.reserved is None else spec.reserved
        self._limit = max(1, min(wanted, reserved))
        self._settings = settings
        self._log = log
        self._new_id = new_id
        self._idle: list[Instance] = []
        self._busy: set[Instance] = set()
        self._retired: set[Instance] = set()
        self._changed = threading.Condition()
        self._closed = False

    def invoke(self, payload: bytes) -> InvokeResult:
        """Call the function; wait while all its processes are busy."""
        request_id = self._new_id()
        instance = self._acquire()
        if instance is None:
            return failure("Sandbox.Shutdown", f"RequestId: {request_id} Error: shutting down")
        try:
            if instance.pid is None:
                instance.start()
            return instance.invoke(payload, request_id=request_id)
        finally:
            self._release(instance)

    def _acquire(self) -> Instance | None:
        with self._changed:
            while not self._closed:
                while self._idle:
                    instance = self._idle.pop()
                    if instance.alive:
                        self._busy.add(instance)
                        return instance
                if len(self._busy) < self._limit:
                    instance = self._new_instance()
                    self._busy.add(instance)
                    return instance
                self._changed.wait()
        return None

    def _new_instance(self) -> Instance:
        name = self._new_id().replace("-", "")
        return Instance(self.spec, name=name, log=self._log, freeze=self._settings.freeze)

    def _release(self, instance: Instance) -> None:
        with self._changed:
            self._busy.discard(instance)
            worn = instance.invocations >= self._settings.recycle_after
            keep = instance.alive and not worn and instance not in self._retired
            self._retired.discard(instance)
            if keep and not self._closed:
                self._idle.append(instance)
            self._changed.notify()
        if not keep or self._closed:
            instance.stop()

    def kill(self) -> int:
        """SIGKILL the busy processes, or the idle ones if none is busy; return the number."""
        with self._changed:
            chosen = [i for i in (self._busy or self._idle) if i.pid is not None]
        for instance in chosen:
            instance.kill()
        return len(chosen)

    def busy(self) -> list[Instance]:
        """Return the processes that run an invocation or initialise for one."""
        with self._changed:
            return [instance for instance in self._busy if instance.pid is not None]

    def recycle(self) -> None:
        """Give every later invocation a new process."""
        with self._changed:
            idle, self._idle = self._idle, []
            self._retired |= self._busy
        for instance in idle:
            instance.stop()

    def pids(self, *, calls: int = 0) -> list[int]:
        """Return the ids of the processes with at least so many calls."""
        with self._changed:
            instances = [i for i in (*self._busy, *self._idle) if i.invocations >= calls]
            return [i.pid for i in instances if i.pid is not None]

    def close(self) -> None:
        """End all processes; calls under way fail."""
        with self._changed:
            self._closed = True
            instances = [*self._busy, *self._idle]
            self._idle = []
            self._changed.notify_all()
        for instance in instances:
            instance.stop()


class LocalInvoker:
    """All functions of the template, by logical id, physical name or ARN."""

    def __init__(
        self,
        specs: Mapping[str, FunctionSpec],
        *,
        settings: PoolSettings,
        log: Log,
        new_id: Callable[[], str],
    ) -> None:
        self._pools = {
            name: FunctionPool(spec, settings=settings, log=log, new_id=new_id)
            for name, spec in specs.items()
        }
        self._names = {name: name for name in specs}
        for name, spec in specs.items():
            self._names[spec.physical] = name
            self._names[spec.arn] = name

    def invoke(self, function: str, payload: bytes) -> InvokeResult:
        """Call a function and wait for its result, also while all processes are busy; thread-safe.

        Raises:
            LocalError: there is no such function.
        """
        return self.pool(function).invoke(payload)

    def kill(self, function: str) -> int:
        """SIGKILL the busy processes, or the idle ones if none is busy; return the number."""
        return self.pool(function).kill()

    def recycle(self, function: str) -> None:
        """Give every later invocation a new process."""
        self.pool(function).recycle()

    def functions(self) -> list[str]:
        """Return the logical ids."""
        return list(self._pools)

    def pool(self, function: str) -> FunctionPool:
        """Return a function's processes.

        Raises:
            LocalError: there is no such function.
        """
        if function not in self._names:
            raise LocalError(f"there is no function {function}")
        return self._pools[self._names[function]]

    def close(self) -> None:
        """End all processes."""
        for pool in self._pools.values():
            pool.close()
