"""Ready-made weather: how often each fault strikes each request.

| fault            | calm | stormy | black-friday |
|------------------|------|--------|--------------|
| rate_limited     |    – |    2 % |         10 % |
| error_503        |    – |    2 % |          5 % |
| reset_before     |    – |    1 % |          2 % |
| reset_after      |    – |    1 % |          2 % |
| timeout_before   |    – |  0.5 % |          1 % |
| timeout_after    |    – |  0.5 % |          1 % |
| error_500_after  |    – |  0.3 % |        0.5 % |
| error_500_stored |    – |  0.2 % |        0.5 % |
| truncated        |    – |  0.3 % |        0.5 % |
| malformed        |    – |  0.2 % |        0.5 % |
| slow_drip        |    – |  0.1 % |        0.2 % |
| wrong_amount     |    – |      – |        0.1 % |
| refused          |    – |  0.5 % |          1 % |

Stormy is a bad day: about one request in twelve meets something. Black Friday is the worst hour of the
year: one in five, mostly for want of capacity. The first rule that fires decides, so the later rows are a little rarer.
"""

from __future__ import annotations

from sandbox.faults import ANY, FaultPlan, Rule

PRESETS: dict[str, dict[str, float]] = {
    "calm": {},
    "stormy": {
        "rate_limited": 0.02,
        "error_503": 0.02,
        "reset_before": 0.01,
        "reset_after": 0.01,
        "timeout_before": 0.005,
        "timeout_after": 0.005,
        "error_500_after": 0.003,
        "error_500_stored": 0.002,
        "truncated": 0.003,
        "malformed": 0.002,
        "slow_drip": 0.001,
        "refused": 0.005,
    },
    "black-friday": {
        "rate_limited": 0.10,
        "error_503": 0.05,
        "reset_before": 0.02,
        "reset_after": 0.02,
        "timeout_before": 0.01,
        "timeout_after": 0.01,
        "error_500_after": 0.005,
        "error_500_stored": 0.005,
        "truncated": 0.005,
        "malformed": 0.005,
        "slow_drip": 0.002,
        "wrong_amount": 0.001,
        "refused": 0.01,
    },
}


def make_preset(name: str, seed: int) -> FaultPlan:
    return FaultPlan([Rule(ANY, fault, probability) for fault, probability in PRESETS[name].items()], seed=seed)
