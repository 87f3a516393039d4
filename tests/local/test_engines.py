"""Set-up of the engines: locks, hashes, ports, processes."""

from __future__ import annotations

import hashlib
import io
import socket
import sys
import tarfile
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from local.engines import installation, payloads, servers
from local.engines.endpoints import Endpoints
from local.engines.installation import LockedFile, locked_files
from local.processes.managed import ManagedProcess, accepts_connections
from local.triggers.sources import EngineStream
from local.workspace import LocalError, Ports, Workspace, choose_port

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def test_the_lock_names_the_engine_by_coordinates_and_hashes_alone() -> None:
    files = locked_files()
    assert len(files) == 82
    assert "DynamoDBLocal-3.1.0.jar" in {file.name for file in files}
    assert all(len(file.sha256) == 64 for file in files)
    assert "://" not in installation.LOCK_FILE.read_text(encoding="utf-8")


def test_a_malformed_lock_is_refused(tmp_path: Path) -> None:
    lock = tmp_path / "bad.lock"
    lock.write_text("# fine\nnot a locked file\n", encoding="utf-8")
    with pytest.raises(LocalError, match="not a locked file"):
        locked_files(lock)


class FakeMaven:
    """A resolver of one file that returns given contents in turn."""

    def __init__(self, cache: Path, contents: list[bytes]) -> None:
        self.cache, self.contents = cache, contents

    def project(self, *_: str) -> FakeMaven:
        return self

    def at_version(self, _: str) -> FakeMaven:
        return self

    def artifact(self, **_: str) -> FakeMaven:
        return self

    def resolve(self) -> Path:
        if not self.cache.is_file():
            self.cache.write_bytes(self.contents.pop(0))
        return self.cache


def one_file_lock(tmp_path: Path, content: bytes) -> Path:
    lock = tmp_path / "one.lock"
    file = LockedFile("g", "a", "1", "jar", hashlib.sha256(content).hexdigest())
    lock.write_text(f"{file.line}\n", encoding="utf-8")
    return lock


def install_with(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, lock: Path, contents: list[bytes]
) -> bool:
    maven = FakeMaven(tmp_path / "cached.jar", contents)
    monkeypatch.setattr(installation, "maven", lambda _: maven)
    return installation.install(Workspace(root=tmp_path / "local"), lock_file=lock)


def test_what_an_interrupted_download_left_is_fetched_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    lock = one_file_lock(tmp_path, b"whole")
    assert install_with(monkeypatch, tmp_path, lock, [b"who", b"whole"])
    assert not install_with(monkeypatch, tmp_path, lock, [])
    (jar,) = (tmp_path / "local" / "engines").glob("dynamodb-local-*/a-1.jar")
    assert jar.read_bytes() == b"whole"


def test_a_file_with_another_hash_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    lock = one_file_lock(tmp_path, b"whole")
    with pytest.raises(LocalError, match=r"a-1\.jar has sha256"):
        install_with(monkeypatch, tmp_path, lock, [b"other", b"other"])
    assert not (tmp_path / "cached.jar").exists()


def archive(folder: Path) -> Path:
    path = folder / "package.tgz"
    content = b'[{"name": "push", "examples": [{"a": 1}]}]'
    with tarfile.open(path, "w:gz") as opened:
        member = tarfile.TarInfo(payloads.MEMBER)
        member.size = len(content)
        opened.addfile(member, io.BytesIO(content))
    return path


def test_payloads_with_another_integrity_are_refused_and_removed(tmp_path: Path) -> None:
    workspace = Workspace(root=tmp_path)
    with pytest.raises(LocalError, match="is pinned"):
        payloads.install(workspace, pack=archive)
    assert not (workspace.payloads / "package.tgz").exists()
    with pytest.raises(LocalError, match="make engines"):
        payloads.load(workspace)


def test_the_pinned_payloads_are_unpacked_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    workspace = Workspace(root=tmp_path)
    content = archive(workspace.folder(tmp_path / "elsewhere")).read_bytes()
    monkeypatch.setattr(payloads, "INTEGRITY", payloads.integrity(content))
    assert payloads.install(workspace, pack=archive)
    assert not payloads.install(workspace, pack=archive)
    assert payloads.load(workspace) == [("push", {"a": 1})]


@pytest.mark.engine
def test_the_installed_payloads_are_329_in_a_fixed_order() -> None:
    loaded = payloads.load()
    assert len(loaded) == 329
    assert loaded[0][0] == "branch_protection_rule"
    assert loaded == payloads.load()


def test_a_taken_port_is_named_with_the_variable_that_moves_it() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(LocalError, match=f"port {port} .*FAIRBOX_LOCAL_API_PORT"):
            choose_port(port, "api")


def test_a_chosen_port_is_none_that_a_connection_may_take_before_it_is_listened_on() -> None:
    first = choose_port(0, "api", Random(1))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", first))
        taken.listen()
        second = choose_port(0, "api", Random(1))
    assert first != second
    assert max(first, second) < 32_768


def test_ports_are_read_from_the_environment() -> None:
    given = {"FAIRBOX_LOCAL_API_PORT": "18080", "FAIRBOX_LOCAL_FEEDS_PORT": "18081"}
    ports = Ports.from_environment(given)
    assert ports == Ports(api=18080, dynamodb=8000, services=5000, feeds=18081)


@pytest.mark.parametrize("text", ["http", "-1", "70000"])
def test_a_port_that_is_none_is_refused_by_name(text: str) -> None:
    with pytest.raises(LocalError, match="FAIRBOX_LOCAL_SERVICES_PORT"):
        Ports.from_environment({"FAIRBOX_LOCAL_SERVICES_PORT": text})


def test_a_missing_java_is_named_with_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(LocalError, match="Java 17 or 21 is missing"):
        servers.find_java()


def test_an_old_java_does_not_count(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    java = tmp_path / "java"
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n", encoding="utf-8")
    java.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(LocalError, match="missing"):
        servers.find_java()


def program(tmp_path: Path, code: str) -> ManagedProcess:
    command = [sys.executable, "-c", code]
    return ManagedProcess(name="a program", command=command, log_file=tmp_path / "log" / "p.log")


def test_a_process_that_ends_while_starting_names_its_log(tmp_path: Path) -> None:
    process = program(tmp_path, "print('why'); raise SystemExit(1)")
    process.start()
    with pytest.raises(LocalError, match=r"p\.log"):
        process.wait_until(lambda: False, seconds=60)
    assert (tmp_path / "log" / "p.log").read_text(encoding="utf-8") == "why\n"


def test_a_process_that_is_not_ready_in_time_is_ended(tmp_path: Path) -> None:
    process = program(tmp_path, "import time; time.sleep(60)")
    process.start()
    with pytest.raises(LocalError, match="not ready"):
        process.wait_until(lambda: False, seconds=0.2)
    assert process.pid is None


def test_a_process_whose_start_is_interrupted_is_ended(tmp_path: Path) -> None:
    def interrupted() -> bool:
        raise KeyboardInterrupt

    process = program(tmp_path, "import time; time.sleep(60)")
    process.start()
    with pytest.raises(KeyboardInterrupt):
        process.wait_until(interrupted, seconds=60)
    assert process.pid is None


def test_a_process_that_ignores_the_request_to_end_is_killed(tmp_path: Path) -> None:
    code = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
        "print('up', flush=True); time.sleep(60)"
    )
    process = program(tmp_path, code)
    process.start()
    process.wait_until(lambda: process.log_file.read_bytes() != b"", seconds=60)
    process.stop(seconds=0.2)
    assert process.pid is None


def test_an_engine_that_does_not_answer_is_refused(tmp_path: Path) -> None:
    nowhere = f"http://127.0.0.1:{choose_port(0, 'dynamodb')}"
    with pytest.raises(LocalError, match="FAIRBOX_LOCAL_DYNAMODB_ENDPOINT"):
        servers.start_dynamodb(
            port=0, durable=None, workspace=Workspace(root=tmp_path), given=nowhere
        )


@pytest.fixture
def durable(tmp_path: Path, engine_root: Any) -> Iterator[servers.DynamoDbLocal]:
    """An engine with a folder, and a streamed table `kept`."""
    engine = servers.DynamoDbLocal(durable=tmp_path / "data", workspace=engine_root).start()
    try:
        clients_of(engine)["dynamodb"].create_table(
            TableName="kept",
            KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": "pk", "AttributeType": "S"}],
            BillingMode="PAY_PER_REQUEST",
            StreamSpecification={"StreamEnabled": True, "StreamViewType": "KEYS_ONLY"},
        )
        yield engine
    finally:
        engine.stop()


def clients_of(engine: servers.DynamoDbLocal) -> Any:
    url = engine.endpoint
    return Endpoints(dynamodb=url, services=url, firehose=url).clients()


@pytest.mark.extended  # a durable engine of its own, for chaos runs only
@pytest.mark.engine
def test_a_durable_engine_that_is_asked_to_end_keeps_the_transaction_that_it_just_acknowledged(
    durable: servers.DynamoDbLocal,
) -> None:
    client = clients_of(durable)["dynamodb"]
    names = {f"{number}" for number in range(4)}
    puts = [{"Put": {"TableName": "kept", "Item": {"pk": {"S": name}}}} for name in names]
    client.transact_write_items(TransactItems=puts)
    durable.stop()
    durable.restart()
    found = client.scan(TableName="kept", ConsistentRead=True)["Items"]
    assert {item["pk"]["S"] for item in found} == names


@pytest.mark.extended  # a durable engine of its own, for chaos runs only
@pytest.mark.engine
def test_a_durable_engine_keeps_its_tables_and_their_streams_over_a_kill(
    durable: servers.DynamoDbLocal,
) -> None:
    engine, clients = durable, clients_of(durable)
    client = clients["dynamodb"]
    for name in "abc":
        client.put_item(TableName="kept", Item={"pk": {"S": name}})
    stream = EngineStream("kept", clients)
    before = records(stream, after=None)
    port = engine.port
    engine.kill()
    assert not accepts_connections(port)
    engine.restart()
    assert engine.port == port
    assert client.get_item(TableName="kept", Key={"pk": {"S": "a"}})["Item"]

    client.put_item(TableName="kept", Item={"pk": {"S": "d"}})
    after = records(stream, after=None)
    assert [name for name, _ in after] == list("abcd")
    assert after[:3] == before
    assert int(after[3][1]) > int(after[2][1])
    assert records(stream, after=before[1][1]) == after[2:]


def records(stream: EngineStream, *, after: str | None) -> list[tuple[str, str]]:
    """Return key and sequence number of the records after a number, or of all."""
    (shard,) = stream.shards()
    wires, _ = stream.records(stream.iterator(shard.shard_id, after=after, latest=False))
    found = (wire["dynamodb"] for wire in wires)
    return [(one["Keys"]["pk"]["S"], one["SequenceNumber"]) for one in found]
