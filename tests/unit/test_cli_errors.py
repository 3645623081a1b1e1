"""Errors are one tree, each with its exit code; and every command says how it is used."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import typer

from makegood import errors
from makegood.cli import app as cli
from makegood.cli import output


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "wants_json", False)


@pytest.mark.parametrize(
    ("error", "exit_code", "base"),
    [
        (errors.ConfigurationError, 3, errors.MakegoodError),
        (errors.InputError, 2, errors.MakegoodError),
        (errors.UnknownWorkflowType, 2, errors.InputError),
        (errors.UnknownOrder, 1, errors.InputError),  # it ran, and found nothing
        (errors.AlreadyStarted, 2, errors.InputError),
        (errors.KeyReused, 2, errors.InputError),
        (errors.IllegalTransition, 2, errors.InputError),
        (errors.NotAllowed, 1, errors.InputError),  # it ran, and this person may not
        (errors.TransientError, 1, errors.MakegoodError),
        (errors.DatabaseUnavailable, 3, errors.TransientError),
        (errors.PermanentError, 1, errors.MakegoodError),
        (errors.InvariantError, 1, errors.MakegoodError),
    ],
)
def test_error_has_its_exit_code_and_place_in_the_tree(
    error: type[errors.MakegoodError], exit_code: int, base: type[Exception]
) -> None:
    assert (error("x").exit_code, error.__base__) == (exit_code, base)
    assert error.__name__ in (errors.__doc__ or "")


def test_every_error_is_in_the_table_above() -> None:
    marks: Any = test_error_has_its_exit_code_and_place_in_the_tree.pytestmark  # type: ignore[attr-defined]
    tabled = {row[0] for row in marks[0].args[1]}
    defined = {e for e in vars(errors).values() if isinstance(e, type) and issubclass(e, errors.MakegoodError)}
    assert defined - {errors.MakegoodError} == tabled


def find_commands() -> list[tuple[tuple[str, ...], Any]]:
    """Every command with its words, groups included; hidden ones too."""
    for name in cli.COMMAND_MODULES:
        __import__(f"makegood.cli.{name}")

    def walk(words: tuple[str, ...], command: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
        yield words, command
        for name, inner in sorted(getattr(command, "commands", {}).items()):
            yield from walk((*words, name), inner)

    return list(walk((), typer.main.get_command(cli.app)))


COMMANDS = find_commands()
LEAVES = [(words, command) for words, command in COMMANDS if not hasattr(command, "commands")]


def test_commands_of_the_design_are_there() -> None:
    words = {" ".join(words) for words, _ in COMMANDS}
    assert {"up", "down", "status", "doctor", "timeline", "cancel", "prove crash", "shop run"} <= words
    assert {"db migrate", "db status", "db psql", "db url"} <= words


@pytest.mark.parametrize(
    ("words", "command"), LEAVES, ids=lambda value: " ".join(value) if isinstance(value, tuple) else ""
)
def test_every_command_helps_with_an_example(
    words: tuple[str, ...], command: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run([*words, "--help"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "makegood " + " ".join(words) in shown
    if not command.hidden:
        assert re.search(r"Example: .*makegood " + " ".join(words), shown)


@pytest.mark.parametrize(
    ("words", "command"), LEAVES, ids=lambda value: " ".join(value) if isinstance(value, tuple) else ""
)
def test_every_command_takes_json(words: tuple[str, ...], command: Any) -> None:
    options = {option for parameter in command.params for option in parameter.opts}
    handed_over = words in {("db", "psql"), ("shop", "worker")}  # psql's own output; a process without a result
    assert ("--json" in options) != handed_over


@pytest.mark.parametrize(
    "words",
    [words for words, command in COMMANDS if hasattr(command, "commands") and not command.invoke_without_command],
)
def test_group_alone_shows_its_help_and_no_empty_error(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(list(words)) == 2
    said = capsys.readouterr()
    assert "Commands" in said.out + said.err
    assert "error:" not in said.out + said.err


@pytest.mark.parametrize(
    "arguments",
    [
        ["nonsense"],
        ["timeline"],  # no order
        ["timeline", "order-1", "--nonsense"],
        ["cancel", "order-1"],  # no reason
        ["shop", "run", "--orders", "0"],
        ["shop", "run", "--orders", "many"],
        ["shop", "run", "--faults", "snow"],
        ["db", "url", "--role", "boss"],
        ["prove", "crash", "--every", "0"],
    ],
)
def test_bad_arguments_are_exit_2_and_one_json_document(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(arguments) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert "error: " in said.err
    assert cli.run([*arguments, "--json"]) == 2
    document = json.loads(capsys.readouterr().out)
    assert set(document) == {"error"}
    assert set(document["error"]) == {"type", "message", "hint"}
    assert document["error"]["message"]


def test_error_in_words_is_harmless_on_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    output.show_error(errors.UnknownOrder("nothing of [red]\x1b[31mx\x9b", hint="Did you mean \x1b]0;t\x07?"))
    said = capsys.readouterr().err
    assert "[red]" in said
    assert not {"\x1b", "\x9b", "\x07"} & set(said)


def test_json_document_holds_what_a_terminal_would_obey_as_text(capsys: pytest.CaptureFixture[str]) -> None:
    output.show_json({"a": "\x1b[31m\x9b\u202e é", "b": "\ud800"})
    said = capsys.readouterr().out
    assert not {"\x1b", "\x9b", "\u202e"} & set(said)
    assert json.loads(said) == {"a": "\x1b[31m\x9b\u202e é", "b": "\ud800"}
