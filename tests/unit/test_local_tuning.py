"""Server settings as a function of the machine."""

from __future__ import annotations

import pytest

from makegood.local.tuning import GB, MB, Machine, render, server_settings, size_settings


@pytest.mark.parametrize(
    ("memory", "shared_buffers", "work_mem", "maintenance"),
    [
        (128 * MB, "32MB", "4MB", "64MB"),  # never less than a server needs
        (8 * GB, "1024MB", "10MB", "512MB"),  # an eighth, and so on
        (24 * GB, "2048MB", "30MB", "1024MB"),  # shared buffers are capped
        (512 * GB, "2048MB", "64MB", "1024MB"),  # everything is capped
    ],
)
def test_size_follows_memory_within_bounds(memory: int, shared_buffers: str, work_mem: str, maintenance: str) -> None:
    settings = size_settings(Machine(memory, 100 * GB, GB))
    assert settings["shared_buffers"] == shared_buffers
    assert settings["work_mem"] == work_mem
    assert settings["maintenance_work_mem"] == maintenance


@pytest.mark.parametrize(
    ("free", "max_wal_size"),
    [(0, "256MB"), (8 * GB, "1024MB"), (500 * GB, "4096MB")],
)
def test_wal_leaves_room_on_a_small_disk(free: int, max_wal_size: str) -> None:
    assert size_settings(Machine(8 * GB, free, GB))["max_wal_size"] == max_wal_size


def test_small_shared_memory_is_not_used_for_parallel_queries() -> None:
    assert size_settings(Machine(8 * GB, GB, 64 * MB))["dynamic_shared_memory_type"] == "sysv"


def test_server_is_reached_on_loopback_and_nowhere_else() -> None:
    settings = server_settings(Machine(8 * GB, GB, GB), 23456, "makegood-x")
    assert settings["listen_addresses"] == "127.0.0.1"
    assert settings["unix_socket_directories"] == ""
    assert settings["password_encryption"] == "scram-sha-256"
    assert settings["port"] == "23456"


def test_render_quotes_every_value() -> None:
    assert "log_line_prefix = 'it''s %m '" in render({"log_line_prefix": "it's %m "}).splitlines()
