"""Nouns `dlq` and `topic`: dead letters purged and edited, topics deleted, asked for first."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from fairbox import Message, MessageRef, PartitionedQueue, RetryPolicy, Topic

from tests.cli.test_queue import kill, receive, send

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.cli_runs import Cli


@pytest.fixture
def jobs(cli: Cli) -> Cli:
    """`fairbox` with the pulled topic `jobs`."""
    retry = RetryPolicy(max_attempts=2)
    cli.application.outbox.create_topic(Topic("jobs", shards=1, retry=retry))
    return cli


def left(cli: Cli) -> list[str]:
    return [letter["ref"] for letter in cli.ok("dlq", "list", "jobs", "--json").objects]


class TestPurge:
    def test_a_purge_asks_and_takes_what_was_chosen(self, jobs: Cli) -> None:
        refs = kill(jobs, "no account", "no money", "no account at all")
        assert jobs("dlq", "purge", "jobs", stdin="n\n").code == 1
        assert left(jobs) == refs
        asked = jobs("dlq", "purge", "jobs", "--reason", "account", stdin="y\n")
        assert (asked.code, "Delete 2 dead letter(s)" in asked.err) == (0, True)
        assert "2 purged" in asked.out
        assert left(jobs) == [refs[1]]
        done = jobs.ok("dlq", "purge", "jobs", "--yes", "--note", "of no use", "--json").json
        assert (done["count"], done["names"], done["more"]) == (1, [refs[1]], False)
        jobs.application.run()
        lines = jobs.application.archive.lines
        assert sum(b'"purged"' in line for line in lines) == 3
        assert sum(b'"of no use"' in line for line in lines) == 1

    def test_a_dry_run_changes_nothing(self, jobs: Cli) -> None:
        refs = kill(jobs, "a", "b")
        before = jobs.stored()
        run = jobs.ok("dlq", "purge", "jobs", "--dry-run", "--limit", "1", "--json")
        assert (run.json["names"], run.json["more"], run.json["dry_run"]) == (refs[:1], True, True)
        assert jobs.ok("dlq", "purge", "jobs", "--dry-run").lines[-1] == "2 would be purged"
        assert jobs.stored() == before

    def test_by_argument_and_by_option_and_one_that_is_none_changes_nothing(
        self, jobs: Cli
    ) -> None:
        refs = kill(jobs, "a", "b", "c")
        (alive,) = send(jobs, b"alive")
        run = jobs("dlq", "purge", "jobs", refs[0], "--id", alive, "--yes", "--json")
        assert (run.code, run.problem["missing"]) == (1, [alive])
        assert left(jobs) == refs
        jobs.ok("dlq", "purge", "jobs", refs[0], "--id", refs[2], "--yes")
        assert left(jobs) == [refs[1]]
        assert jobs("dlq", "purge", "jobs", "nonsense", "--yes").code == 2
        assert jobs("dlq", "purge", "nowhere", "--yes").code == 1

    def test_what_died_while_somebody_was_asked_stays(
        self, jobs: Cli, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        first = kill(jobs, "a")
        later: list[str] = []
        monkeypatch.setattr(
            "fairbox.cli.session.Session.confirm",
            lambda *_args, **_options: later.extend(kill(jobs, "b")),
        )
        assert jobs.ok("dlq", "purge", "jobs", "--json").json["names"] == first
        assert left(jobs) == later != []


class TestRedriveEdited:
    def test_the_body_comes_from_a_file_or_from_standard_input(
        self, jobs: Cli, tmp_path: Path
    ) -> None:
        refs = kill(jobs, "a", "b")
        path = tmp_path / "body"
        path.write_bytes(b"from a file")
        jobs.ok("dlq", "redrive", "jobs", "--id", refs[0], "--body", str(path), "--yes")
        jobs.ok(
            "dlq", "redrive", "jobs", refs[1], "--body", "-", "--header", "a=b",
            "--content-type", "text/plain", "--yes", stdin="from standard input",
        )  # fmt: skip
        jobs.application.run()
        jobs.clock.advance(2)
        found = {one["body"]: one for one in receive(jobs)}
        assert set(found) == {"from a file", "from standard input"}
        other = found["from standard input"]
        assert (other["headers"], other["content_type"]) == ({"a": "b"}, "text/plain")

    def test_content_for_other_than_one_is_usage(self, jobs: Cli) -> None:
        refs = kill(jobs, "a", "b")
        for ids in ([], refs):
            run = jobs("dlq", "redrive", "jobs", *ids, "--body", "-", "--yes", stdin="x")
            assert (run.code, "one id" in run.err) == (2, True)
        assert jobs("dlq", "redrive", "jobs", refs[0], "--body", "/nowhere", "--yes").code == 2
        assert jobs("dlq", "redrive", "jobs", refs[0], "--header", "a", "--yes").code == 2
        assert left(jobs) == refs


class TestDelete:
    def test_it_asks_waits_and_is_gone(self, jobs: Cli) -> None:
        assert jobs("topic", "delete", "jobs", stdin="n\n").code == 1
        assert jobs.ok("topic", "show", "jobs", "--json").json["deleting_at"] is None
        jobs.clock.sleeps.clear()
        run = jobs.ok("topic", "delete", "jobs", "--yes")
        assert (run.out, sum(jobs.clock.sleeps)) == ("jobs is deleted\n", 60)
        assert jobs("topic", "show", "jobs").code == 1
        assert jobs("topic", "delete", "jobs", "--yes").code == 1

    def test_without_waiting_it_is_called_again(self, jobs: Cli) -> None:
        run = jobs.ok("topic", "delete", "jobs", "--no-wait", "--yes", "--json")
        assert run.json == {"topic": "jobs", "deleted": False, "seconds": 60}
        refused = jobs("message", "send", "jobs", "x", "--json")
        assert (refused.code, refused.problem["type"]) == (1, "urn:fairbox:problem:conflict")
        jobs.clock.advance(60)
        assert jobs.ok("topic", "delete", "jobs", "--yes", "--json").json["deleted"]

    def test_one_that_holds_messages_or_dead_letters_stays(self, jobs: Cli) -> None:
        (ref,) = kill(jobs, "a")
        run = jobs("topic", "delete", "jobs", "--yes")
        assert (run.code, run.err) == (1, "fairbox: topic 'jobs': it holds dead letters\n")
        jobs.ok("dlq", "redrive", "jobs", "--yes")
        assert "holds messages" in jobs("topic", "delete", "jobs", "--yes").err
        jobs.application.outbox.cancel([MessageRef.parse(ref)])
        jobs.ok("topic", "delete", "jobs", "--yes")

    def test_a_partitioned_queue_goes_whole(self, cli: Cli) -> None:
        outbox = cli.application.outbox
        PartitionedQueue("email", 3).create(outbox, shards=1)
        assert "whole" in cli("topic", "delete", "email__p1", "--yes").err
        assert cli("topic", "delete", "email", "--yes").code == 1
        outbox.add(Message(topic="email__p2", body=b"x", id=cli.application.ids.next()))
        assert "email__p2" in cli("topic", "delete", "email", "--whole", "--yes").err
        place = outbox.topic("email__p2")
        outbox.mark_delivered([place.ref(m) for m in outbox.outstanding("email__p2")])
        cli.ok("topic", "delete", "email", "--whole", "--yes")
        assert outbox.topics() == []
