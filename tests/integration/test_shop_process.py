"""The process itself: starting, refusing to start, stopping, and dying without losing anything it answered."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import psutil
import pytest

from sandbox.client import ROOT, ShopControl, ShopError, ShopProcess

AUTH = {"Authorization": "Bearer sk_test_shop"}
CHARGE = {"amount": "500", "currency": "usd", "payment_method": "pm_card_visa", "confirm": "true"}


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "sandbox", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=20, check=False
    )


def wait_until(done: Callable[[], bool], seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def ship(http: httpx.Client, key: str) -> httpx.Response:
    body = {"order_id": key, "address": {}}
    return http.post("/shipping/shipments", json=body, headers={"Idempotency-Key": key})


def test_shop_starts_well_within_three_seconds_of_its_own_and_says_it_is_well() -> None:
    with ShopProcess() as process:
        spent = psutil.Process(process.pid).cpu_times()  # not the clock: others may have the machine
        assert spent.user + spent.system < 3
        assert httpx.get(process.url + "/health").json() == {"status": "ok"}


def test_port_in_use_is_one_clear_line_and_exit_3(tmp_path: Path) -> None:
    with ShopProcess() as process:
        port = process.url.rpartition(":")[2]
        result = run("--port", port, "--data", str(tmp_path))
    assert (result.returncode, result.stdout) == (3, "")
    assert (
        result.stderr
        == f"error: cannot listen on 127.0.0.1:{port}: Address already in use; choose another with --port\n"
    )


def test_data_folder_that_cannot_be_used_is_one_clear_line_and_exit_3(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = run("--port", "0", "--data", str(tmp_path / "file" / "shop"))
    assert (result.returncode, len(result.stderr.splitlines())) == (3, 1)
    assert str(tmp_path) in result.stderr


def test_data_folder_in_use_by_another_shop_is_refused(tmp_path: Path) -> None:
    with ShopProcess(tmp_path), pytest.raises(ShopError, match="another shop"), ShopProcess(tmp_path):
        pass


@pytest.mark.parametrize(
    "arguments",
    [
        ["--port", "70000", "--data", "x"],
        ["--port", "0"],
        ["--port", "0", "--data", "x", "--faults", "sunny"],
        ["--port", "0", "--data", "x", "--latency-ms", "-1"],
        ["--port", "0", "--data", "x", "--key-age-seconds", "nan"],
    ],
)
def test_bad_arguments_exit_2(arguments: list[str]) -> None:
    assert run(*arguments).returncode == 2


def test_help_has_an_example() -> None:
    result = run("--help")
    assert result.returncode == 0
    assert "example:\n  python -m sandbox --port 9900" in result.stdout


def test_sigterm_ends_the_shop_with_0_even_while_callers_hang() -> None:
    with ShopProcess() as process, ShopControl(process.url) as control:
        control.say("every list hangs")
        failures: list[Exception] = []

        def hang() -> None:
            try:
                httpx.get(process.url + "/v1/charges", headers=AUTH, timeout=20)
            except httpx.TransportError as error:
                failures.append(error)

        thread = threading.Thread(target=hang)
        thread.start()
        wait_until(lambda: control.calls()["total"] == 1)
        assert process.stop() == 0
        thread.join()
        assert len(failures) == 1
        assert process.errors == ""


def test_shop_does_not_outlive_the_process_that_started_it() -> None:
    script = (
        "import sys, time; from sandbox.client import ShopProcess; shop = ShopProcess(); shop.start();"
        "print(shop.pid, flush=True); time.sleep(60)"
    )
    parent = subprocess.Popen([sys.executable, "-c", script], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    shop = int(parent.stdout.readline())
    parent.kill()
    parent.communicate()
    wait_until(lambda: not Path(f"/proc/{shop}").exists())


@pytest.mark.parametrize("sync", ["normal", "full"])
def test_everything_answered_before_a_kill_is_there_after_it(tmp_path: Path, sync: str) -> None:
    with ShopProcess(tmp_path, sync=sync) as process, ShopControl(process.url) as control:
        with httpx.Client(base_url=process.url, headers=AUTH) as http:
            given = {**CHARGE, "metadata[order_id]": "order-7"}
            charged = http.post("/v1/payment_intents", data=given, headers={"Idempotency-Key": "k1"})
            process.restart()
            replayed = http.post("/v1/payment_intents", data=given, headers={"Idempotency-Key": "k1"})
            process.restart()
            refunded = http.post("/v1/refunds", data={"payment_intent": charged.json()["id"]})
            process.restart()
            found = http.get("/v1/charges/" + charged.json()["latest_charge"]).json()
        assert (replayed.content, replayed.headers["Idempotent-Replayed"]) == (charged.content, "true")
        assert (refunded.status_code, found["amount_refunded"]) == (200, 500)
        assert control.order("order-7")["counts"] == {"charge": 1, "refund": 1}
        assert [entry["seq"] for entry in control.log()] == [1, 2]


def test_kill_in_the_middle_of_many_requests_loses_no_answer_and_doubles_none(tmp_path: Path) -> None:
    answered: list[str] = []

    def keep_shipping(url: str, worker: int) -> None:
        with httpx.Client(base_url=url, timeout=5) as http:
            for number in range(10_000):
                try:
                    answer = ship(http, f"{worker}-{number}")
                except httpx.TransportError:
                    return
                assert answer.status_code == 201
                answered.append(answer.json()["shipment_id"])

    with ShopProcess(tmp_path) as process:
        threads = [threading.Thread(target=keep_shipping, args=(process.url, worker)) for worker in range(4)]
        for thread in threads:
            thread.start()
        wait_until(lambda: len(answered) > 100)
        os.kill(process.pid, signal.SIGKILL)
        for thread in threads:
            thread.join()
        process.restart()
        with ShopControl(process.url) as control:
            logged = control.log()
    shipped = [entry["object_id"] for entry in logged]
    assert len(answered) > 100
    assert set(answered) <= set(shipped)
    assert len(shipped) == len(set(shipped))
    assert len({entry["idempotency_key"] for entry in logged}) == len(logged)
    assert len(shipped) - len(answered) <= 4  # at most the one each worker was waiting for
    assert [entry["seq"] for entry in logged] == list(range(1, len(logged) + 1))


def test_clock_stays_advanced_across_a_restart(tmp_path: Path) -> None:
    with ShopProcess(tmp_path, key_age_seconds=3600) as process, ShopControl(process.url) as control:
        with httpx.Client(base_url=process.url) as http:
            first = ship(http, "k1").json()["created"]
            control.advance_clock(3601)
            process.restart()
            second = ship(http, "k1").json()["created"]
        assert second - first >= 3601
        assert control.totals()["counts"] == {"shipment": 2}


def test_preset_given_at_the_start_is_there_after_a_reset() -> None:
    with ShopProcess(faults="black-friday", seed=5) as process, ShopControl(process.url) as control:
        started_with = control.faults()
        control.clear_faults()
        control.reset()
        assert control.faults() == started_with
        assert (started_with["seed"], len(started_with["rules"])) == (5, 13)


def test_latency_given_at_the_start_delays_each_answer() -> None:
    with ShopProcess(latency_ms=150) as process, httpx.Client(base_url=process.url) as http:
        started = time.monotonic()
        ship(http, "k1")
        ship(http, "k1")  # the replay takes as long
        assert time.monotonic() - started >= 0.3
