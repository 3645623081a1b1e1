"""The server's settings, sized to the machine; a pure function of what was measured."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

from makegood.local.ports import LOOPBACK

MB = 1024 * 1024
GB = 1024 * MB
CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - its size is looked at, nothing is written


@dataclass(frozen=True)
class Machine:
    memory_bytes: int
    disk_free_bytes: int
    shared_memory_bytes: int


def measure(folder: Path) -> Machine:
    """What the server may use: the container's memory limit counts, not the host's."""
    limit = CGROUP_LIMIT.read_text().strip() if CGROUP_LIMIT.exists() else ""
    memory = min(psutil.virtual_memory().total, int(limit)) if limit.isdigit() else psutil.virtual_memory().total
    shared = shutil.disk_usage(SHARED_MEMORY).total if SHARED_MEMORY.exists() else GB
    return Machine(memory, shutil.disk_usage(folder).free, shared)


def size_settings(machine: Machine) -> dict[str, str]:
    """Memory, WAL and planner settings for this machine."""
    memory = machine.memory_bytes
    return {
        "shared_buffers": _megabytes(memory // 8, 32 * MB, 2 * GB),
        "effective_cache_size": _megabytes(memory // 2, 128 * MB, 64 * GB),
        "work_mem": _megabytes(memory // 800, 4 * MB, 64 * MB),  # 200 connections, up to four sorts each
        "maintenance_work_mem": _megabytes(memory // 16, 64 * MB, GB),
        "max_wal_size": _megabytes(machine.disk_free_bytes // 8, 256 * MB, 4 * GB),
        # A container's /dev/shm is often 64 MB, where a parallel join fails; System V has no such limit.
        "dynamic_shared_memory_type": "posix" if machine.shared_memory_bytes >= GB else "sysv",
        "max_connections": "200",
        "random_page_cost": "1.1",  # solid-state disks
        "jit": "off",  # compiling costs more than our short statements
        "wal_compression": "on",
    }


def server_settings(machine: Machine, port: int, cluster_name: str) -> dict[str, str]:
    """All settings: loopback only, scram only, sized to the machine, logging to where output goes."""
    return {
        "listen_addresses": LOOPBACK,
        "port": str(port),
        "unix_socket_directories": "",
        "password_encryption": "scram-sha-256",
        "cluster_name": cluster_name,  # in the title of every process, so that ours can be told from others'
        **size_settings(machine),
        "timezone": "UTC",
        "log_timezone": "UTC",
        "logging_collector": "off",
        "log_line_prefix": "%m [%p] %q%u@%d/%a ",
        "log_lock_waits": "on",
    }


def render(settings: Mapping[str, str]) -> str:
    """The settings as a configuration file, quoted."""
    lines = ["# Rewritten at every start. Put settings of your own in postgresql.auto.conf (ALTER SYSTEM)."]
    lines += [f"{name} = '{value.replace(chr(39), chr(39) * 2)}'" for name, value in settings.items()]
    return os.linesep.join(lines) + os.linesep


def _megabytes(amount: int, least: int, most: int) -> str:
    return f"{min(max(amount, least), most) // MB}MB"
