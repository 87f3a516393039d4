"""The fault proxy: faults in the database's own wire format."""

from __future__ import annotations

import http.client
import json
import random
import threading
import zlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError, HTTPClientError

from local.faults.proxy import FaultProxy, Faults, _Handler

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

OPERATIONS: list[tuple[str, dict[str, Any]]] = [
    ("PutItem", {"TableName": "t", "Item": {"pk": {"S": "a"}}}),
    ("GetItem", {"TableName": "t", "Key": {"pk": {"S": "a"}}}),
    ("Query", {"TableName": "t", "KeyConditionExpression": "pk = :p"}),
    ("TransactWriteItems", {"TransactItems": [{"Put": {"TableName": "t", "Item": {}}}] * 3}),
]


class Upstream(ThreadingHTTPServer):
    """A fake engine that records requests and returns given answers."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Engine)
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.answers: dict[str, dict[str, Any]] = {}
        self.hang_up = 0
        self.connections = 0
        self.endpoint = f"http://127.0.0.1:{self.server_address[1]}"

    def asked(self) -> list[str]:
        return [operation for operation, _ in self.calls]


class _Engine(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Upstream

    def setup(self) -> None:
        super().setup()
        self.server.connections += 1

    def log_message(self, *args: Any) -> None: ...

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.server.hang_up:
            self.server.hang_up -= 1
            self.close_connection = True
            return
        operation = self.headers["X-Amz-Target"].rpartition(".")[2]
        self.server.calls.append((operation, json.loads(body)))
        text = json.dumps(self.server.answers.get(operation, {})).encode()
        head = (
            "HTTP/1.1 200 OK\r\nContent-Type: application/x-amz-json-1.0\r\n"
            f"x-amz-crc32: {zlib.crc32(text)}\r\nContent-Length: {len(text)}\r\n\r\n"
        )
        self.wfile.write(head.encode() + text)


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    server = Upstream()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def proxy(upstream: Upstream) -> Iterator[FaultProxy]:
    made = FaultProxy(upstream.endpoint, rng=random.Random(7))
    made.start()
    yield made
    made.stop()


def client_of(endpoint: str, service: Any = "dynamodb", tries: int = 1) -> Any:
    return boto3.client(
        service,
        endpoint_url=endpoint,
        region_name="us-east-1",
        aws_access_key_id="local",
        aws_secret_access_key="local",
        config=Config(retries={"total_max_attempts": tries, "mode": "standard"}),
    )


@pytest.fixture
def call(proxy: FaultProxy) -> Iterator[Callable[..., Any]]:
    clients: list[Any] = []

    def make(operation: str, *, service: str = "dynamodb", tries: int = 1, **given: Any) -> Any:
        clients.append(client_of(proxy.endpoint, service, tries))
        return clients[-1]._make_api_call(operation, given)

    yield make
    for client in clients:
        client.close()


def test_without_faults_calls_pass_and_answers_come_back_whole(
    upstream: Upstream, call: Callable[..., Any]
) -> None:
    upstream.answers["GetItem"] = {"Item": {"pk": {"S": "ä" * 5000}}}
    answer = call("GetItem", TableName="t", Key={"pk": {"S": "a"}})
    assert answer["Item"]["pk"]["S"] == "ä" * 5000
    assert upstream.calls == [("GetItem", {"TableName": "t", "Key": {"pk": {"S": "a"}}})]


@pytest.mark.parametrize(("operation", "given"), OPERATIONS)
def test_throttled_calls_are_refused_in_both_ways_and_not_applied(
    proxy: FaultProxy,
    upstream: Upstream,
    call: Callable[..., Any],
    operation: str,
    given: dict[str, Any],
) -> None:
    proxy.set_faults(operation, Faults(throttled=1.0))
    codes = set()
    for _ in range(12):
        with pytest.raises(ClientError) as caught:
            call(operation, **given)
        codes.add(caught.value.response["Error"]["Code"])
        assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == 400
    assert codes == {"ProvisionedThroughputExceededException", "ThrottlingException"}
    assert upstream.calls == []
    assert proxy.injected == {("throttled", operation): 12}


def test_a_failure_of_the_database_is_an_internal_server_error(
    proxy: FaultProxy, upstream: Upstream, call: Callable[..., Any]
) -> None:
    proxy.set_faults("*", Faults(failed=1.0))
    with pytest.raises(ClientError) as caught:
        call("PutItem", **OPERATIONS[0][1])
    assert caught.value.response["Error"]["Code"] == "InternalServerError"
    assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == 500
    assert upstream.calls == []


def test_a_conflict_cancels_a_transaction_with_a_reason_for_each_action(
    proxy: FaultProxy, upstream: Upstream, call: Callable[..., Any]
) -> None:
    proxy.set_faults("TransactWriteItems", Faults(conflicted=1.0))
    with pytest.raises(ClientError) as caught:
        call("TransactWriteItems", **OPERATIONS[3][1])
    response = caught.value.response
    assert response["Error"]["Code"] == "TransactionCanceledException"
    codes = [reason["Code"] for reason in response["CancellationReasons"]]
    assert len(codes) == 3
    assert set(codes) == {"TransactionConflict", "None"}
    assert f"[{', '.join(codes)}]" in response["Error"]["Message"]
    assert upstream.calls == []


def test_a_conflict_refuses_a_single_write_and_leaves_reads_alone(
    proxy: FaultProxy, upstream: Upstream, call: Callable[..., Any]
) -> None:
    proxy.set_faults("*", Faults(conflicted=1.0, unprocessed=1.0))
    with pytest.raises(ClientError) as caught:
        call("PutItem", **OPERATIONS[0][1])
    assert caught.value.response["Error"]["Code"] == "TransactionConflictException"
    call("GetItem", **OPERATIONS[1][1])
    assert upstream.asked() == ["GetItem"]


def puts(*keys: str) -> list[dict[str, Any]]:
    return [{"PutRequest": {"Item": {"pk": {"S": key}}}} for key in keys]


def test_of_a_batch_write_only_a_part_is_applied_and_the_rest_is_named(
    proxy: FaultProxy, upstream: Upstream, call: Callable[..., Any]
) -> None:
    upstream.answers["BatchWriteItem"] = {"UnprocessedItems": {}}
    proxy.set_faults("BatchWriteItem", Faults(unprocessed=1.0))
    for _ in range(10):
        upstream.calls.clear()
        given = {"a": puts(*"1234"), "b": puts("5", "6")}
        left = call("BatchWriteItem", RequestItems=given)["UnprocessedItems"]
        applied = upstream.calls[0][1]["RequestItems"]
        assert left
        assert applied
        assert all(left.values())
        for table, entries in given.items():
            both = applied.get(table, []) + left.get(table, [])
            assert sorted(map(json.dumps, both)) == sorted(map(json.dumps, entries))
    assert proxy.injected["unprocessed", "BatchWriteItem"] == 10


def test_of_a_batch_get_only_a_part_is_read_and_the_rest_keeps_its_settings(
    proxy: FaultProxy, upstream: Upstream, call: Callable[..., Any]
) -> None:
    engine_left = {"t": {"Keys": [{"pk": {"S": "engine"}}], "ConsistentRead": True}}
    upstream.answers["BatchGetItem"] = {"Responses": {}, "UnprocessedKeys": engine_left}
    proxy.set_faults("BatchGetItem", Faults(unprocessed=1.0))
    keys = [{"pk": {"S": key}} for key in "123456"]
    given = {"t": {"Keys": keys, "ConsistentRead": True, "ProjectionExpression": "pk"}}
    left = call("BatchGetItem", RequestItems=given)["UnprocessedKeys"]["t"]
    asked = upstream.calls[0][1]["RequestItems"]["t"]
    assert asked["ConsistentRead"]
    assert left["ConsistentRead"]
    assert left["ProjectionExpression"] == "pk"
    found = [key for key in left["Keys"] if key["pk"]["S"] != "engine"]
    assert len(found) == len(left["Keys"]) - 1
    assert sorted(key["pk"]["S"] for key in asked["Keys"] + found) == list("123456")


def test_of_a_batch_of_statements_some_report_that_they_were_throttled(
    proxy: FaultProxy, upstream: Upstream, call: Callable[..., Any]
) -> None:
    proxy.set_faults("BatchExecuteStatement", Faults(unprocessed=1.0))
    proxy._rng = random.Random(1)
    expected = random.Random(1)
    expected.random()
    left_out = set(expected.sample(range(4), expected.randrange(1, 4)))
    upstream.answers["BatchExecuteStatement"] = {
        "Responses": [{"TableName": "t"}] * (4 - len(left_out))
    }
    statements = [{"Statement": f"DELETE {n}"} for n in range(4)]
    answers = call("BatchExecuteStatement", Statements=statements)["Responses"]
    errors = {n for n, one in enumerate(answers) if "Error" in one}
    assert len(answers) == 4
    assert errors == left_out
    assert {answers[n]["Error"]["Code"] for n in errors} == {"ThrottlingError"}
    applied = [one["Statement"] for one in upstream.calls[0][1]["Statements"]]
    assert applied == [f"DELETE {n}" for n in range(4) if n not in left_out]


def test_a_batch_of_one_entry_is_throttled_where_it_cannot_be_split(
    proxy: FaultProxy, upstream: Upstream, call: Callable[..., Any]
) -> None:
    proxy.set_faults("BatchWriteItem", Faults(unprocessed=1.0))
    with pytest.raises(ClientError):
        call("BatchWriteItem", RequestItems={"t": puts("1")})
    assert upstream.calls == []
    assert proxy.injected == {("throttled", "BatchWriteItem"): 1}


def test_a_lost_answer_was_applied_and_the_client_tries_again(
    proxy: FaultProxy, upstream: Upstream, call: Callable[..., Any]
) -> None:
    proxy.set_faults("PutItem", Faults(lost=1.0))
    with pytest.raises(HTTPClientError):
        call("PutItem", **OPERATIONS[0][1])
    assert upstream.asked() == ["PutItem"]
    with pytest.raises(HTTPClientError):
        call("PutItem", tries=2, **OPERATIONS[0][1])
    assert upstream.asked() == ["PutItem"] * 3
    assert proxy.injected == {("lost", "PutItem"): 3}


def test_rates_hold_by_operation_and_change_at_run_time(
    proxy: FaultProxy, upstream: Upstream, call: Callable[..., Any]
) -> None:
    proxy.set_faults("*", Faults(failed=1.0))
    proxy.set_faults("GetItem", Faults())
    call("GetItem", **OPERATIONS[1][1])
    upstream.answers["DescribeTable"] = {"Table": {}}
    call("DescribeTable", TableName="t")
    upstream.answers["ListStreams"] = {"Streams": []}
    call("ListStreams", service="dynamodbstreams")
    with pytest.raises(ClientError):
        call("Query", **OPERATIONS[2][1])
    proxy.clear()
    call("Query", **OPERATIONS[2][1])
    assert upstream.asked() == ["GetItem", "DescribeTable", "ListStreams", "Query"]


def test_a_share_of_calls_goes_wrong_the_same_way_for_the_same_seed(upstream: Upstream) -> None:
    def draws() -> list[str | None]:
        rates = Faults(throttled=0.2, conflicted=0.1, lost=0.1)
        made = FaultProxy(upstream.endpoint, rng=random.Random(9), faults={"PutItem": rates})
        found = [made.choose("PutItem") for _ in range(2000)]
        made.stop()
        return found

    first = draws()
    assert first == draws()
    for fault, share in (("throttled", 0.2), ("conflicted", 0.1), ("lost", 0.1), (None, 0.6)):
        assert abs(first.count(fault) / 2000 - share) < 0.03


def test_a_connection_that_the_engine_closed_is_opened_again(
    proxy: FaultProxy, upstream: Upstream
) -> None:
    client = client_of(proxy.endpoint)
    client.get_item(TableName="t", Key={"pk": {"S": "a"}})
    upstream.hang_up = 1
    client.get_item(TableName="t", Key={"pk": {"S": "a"}})
    assert upstream.connections == 2
    client.close()


def test_an_engine_that_is_away_makes_the_proxy_unavailable() -> None:
    made = FaultProxy("http://127.0.0.1:9", rng=random.Random(1))
    made.start()
    client = client_of(made.endpoint)
    with pytest.raises(ClientError) as caught:
        client.get_item(TableName="t", Key={"pk": {"S": "a"}})
    assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == 503
    client.close()
    made.stop()


def test_headers_and_body_go_out_in_one_write(
    proxy: FaultProxy, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    writes: list[int] = []
    plain = _Handler._send

    def counting(handler: Any, *answer: Any) -> None:
        write = handler.wfile.write

        def counted(data: bytes) -> int:
            writes.append(len(data))
            return int(write(data))

        handler.wfile.write = counted
        plain(handler, *answer)

    monkeypatch.setattr(_Handler, "_send", counting)
    client = client_of(proxy.endpoint)
    client.get_item(TableName="t", Key={"pk": {"S": "a"}})
    client.close()
    assert len(writes) == 1


@pytest.mark.parametrize("rates", [Faults(), Faults(unprocessed=1.0), Faults(throttled=1.0)])
def test_every_answer_has_its_own_checksum_once(
    proxy: FaultProxy, upstream: Upstream, rates: Faults
) -> None:
    proxy.set_faults("BatchWriteItem", rates)
    host = proxy.endpoint.removeprefix("http://")
    connection = http.client.HTTPConnection(host)
    body = json.dumps({"RequestItems": {"t": puts("1", "2")}})
    connection.request("POST", "/", body, {"X-Amz-Target": "DynamoDB_20120810.BatchWriteItem"})
    answer = connection.getresponse()
    text = answer.read()
    connection.close()
    assert answer.msg.get_all("x-amz-crc32") == [str(zlib.crc32(text))]


def test_a_rate_that_is_no_share_is_refused() -> None:
    with pytest.raises(ValueError, match="throttled"):
        Faults(throttled=1.5)
