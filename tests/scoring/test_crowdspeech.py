"""CrowdSpeech: all transcripts of seven annotators go through the aligner into slots."""

import importlib.util
import os
from pathlib import Path

import pytest

CROWD = os.environ.get("WILDCTC_CROWDSPEECH")
SCRIPT = Path(__file__).parents[2] / "benchmarks" / "crowdspeech_slots.py"


@pytest.mark.slow
@pytest.mark.skipif(not CROWD, reason="WILDCTC_CROWDSPEECH does not name the folder of CrowdSpeech")
def test_the_slots_of_the_whole_crowd_hold_more_of_the_truth_than_any_transcript():
    spec = importlib.util.spec_from_file_location("crowdspeech_slots", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    lines = module.report(Path(CROWD)).splitlines()
    assert lines[0].startswith("2,703 utterances, 18,921 transcripts, aligned in ")
    rates = {line.split("  ")[0]: line.split("  ", 1)[1].split()[:2] for line in lines[5:]}
    assert rates == {
        "one transcript, the mean of all": ["16.35%", "62,261"],
        "the nearest of the seven": ["3.58%", "1,947"],
        "the majority in each slot": ["6.14%", "3,338"],
        "the nearest path through the slots": ["1.68%", "916"],
    }
