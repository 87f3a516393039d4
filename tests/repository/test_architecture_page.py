"""The architecture page: its journeys name the files that run, its folders are there."""

from __future__ import annotations

import pytest

from scripts.architecture_page import FOLDERS, JOURNEYS, LIBRARY, Journey
from scripts.architecture_page import ROOT as REPOSITORY
from scripts.trace_journey import JOURNEYS as TRACED
from scripts.trace_journey import trace


def test_each_traced_journey_is_on_the_page() -> None:
    assert [journey.name for journey in JOURNEYS] == list(TRACED)


@pytest.mark.parametrize("journey", JOURNEYS, ids=lambda journey: journey.name)
def test_the_steps_of_a_journey_are_files_that_run_in_it(journey: Journey) -> None:
    ran = {file for file, _, _ in trace(journey.name, LIBRARY).functions()}
    assert {file for file, _ in journey.steps} <= ran


def test_the_folders_are_there() -> None:
    assert [folder for folder in FOLDERS if not (REPOSITORY / folder).is_dir()] == []
