"""What stands beside `viewers_load`: sums of the kernel where it has them, nothing where the server is elsewhere."""

from __future__ import annotations

import os
import sys

import pytest

from bench.viewers import Load, read_schedule, tell_loads

NOBODY = 2**22 + 1  # no process has a number above the kernel's largest


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux keeps these sums")
def test_schedule_of_a_process_is_known_here_and_nothing_elsewhere() -> None:
    ran, _ = read_schedule(os.getpid())
    assert ran > 0
    assert read_schedule(NOBODY) == (0, 0)


def test_loads_are_told_as_medians_of_both_sides_and_ratios_of_each_run() -> None:
    pairs = [
        (Load(200.0, 150, 100.0, 40.0), Load(100.0, 100, 100.0, 10.0)),
        (Load(300.0, 120, 120.0, 50.0), Load(200.0, 100, 100.0, 20.0)),
        (Load(400.0, 110, 140.0, 60.0), Load(100.0, 100, 70.0, 30.0)),
    ]
    facts = tell_loads(pairs)
    assert (facts["many_viewers_active_ms"], facts["one_viewer_active_ms"]) == (300.0, 100.0)
    assert facts["active_ms_ratios"] == [2.0, 1.5, 4.0]
    assert facts["transactions_ratios"] == [1.5, 1.2, 1.1]


def test_loads_without_sums_of_the_kernel_have_no_ratio_of_them() -> None:
    facts = tell_loads([(Load(200.0, 150, 0.0, 0.0), Load(100.0, 100, 0.0, 0.0))])
    assert facts["active_ms_ratios"] == [2.0]
    assert "processor_ms_ratios" not in facts
