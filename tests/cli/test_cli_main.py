"""The program itself: cheap help, errors of one line, and exit codes that never read as a verdict by mistake."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from types import ModuleType

import click
import pytest
from support.program import PROGRAM, call, environ, look, recording

from fleetcheck import __version__
from fleetcheck.cli import cron, main, reference
from fleetcheck.remote.settings import Limits, Settings
from fleetcheck.report.rows import MORE

HEAVY = ("fabric", "paramiko", "pydantic", "yaml", "tabulate", "ClusterShell", "wcwidth", "cryptography")
DOCS = Path(__file__).parents[2] / "docs" / "cli.md"


def squeezed(text: str) -> str:
    return re.sub(r"\s+", " ", text)


def test_help_imports_nothing_heavy(tmp_path: Path) -> None:
    check = (
        "import sys; from fleetcheck.cli.main import run; code = run(['--help']); import json;"
        "print(json.dumps([code, sorted(sys.modules)]), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", check], env=environ(tmp_path), capture_output=True, check=True)
    code, modules = json.loads(done.stderr)
    assert code == 0
    assert not {name.partition(".")[0] for name in modules} & set(HEAVY)
    assert not {f"fleetcheck.cli.{name}" for name in main.SUMMARIES} & set(modules)


@pytest.mark.parametrize("name", list(main.SUMMARIES))
def test_a_summary_is_what_the_command_says(name: str) -> None:
    command: click.Command = import_module(f"fleetcheck.cli.{name}").command
    assert command.get_short_help_str(limit=500) == main.SUMMARIES[name]


def test_every_command_has_a_module_and_every_option_has_help() -> None:
    context = click.Context(main.cli)
    for name in main.cli.list_commands(context):
        command = main.cli.get_command(context, name)
        assert command is not None
        for parameter in command.params:
            assert isinstance(parameter, click.Argument) or parameter.help, (name, parameter.name)  # type: ignore[attr-defined]


def test_the_reference_page_is_what_the_commands_say() -> None:
    # Regenerate with: python -m fleetcheck.cli.reference > docs/cli.md
    assert squeezed(DOCS.read_text()) == squeezed(reference.page())


def test_version(tmp_path: Path) -> None:
    done = call(tmp_path, "--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"fleetcheck, version {__version__}\n", "")


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["nonsense"], "No such command 'nonsense'"),
        (["--nonsense"], "No such option"),
        (["audit", "--format", "xml"], "'xml' is not one of 'table', 'json', 'jsonl', 'csv'"),
        (["audit", "--output", "json"], "'json' is not FORMAT:PATH; formats are table, json, jsonl"),
        (["audit", "--output", "xml:a"], "'xml' is not a format"),
        (["audit", "--output", "json:-"], "--format"),
        (["audit", "--output", "prometheus:x.txt"], "no other files than those that end in .prom"),
        (["audit", "--limit", "sleep=3"], "limits are connect, banner, auth, channel, smi, host, run"),
        (["audit", "--limit", "host=0"], "above 0"),
        (["audit", "--limit", "host=nan"], "above 0"),
        (["audit", "--limit", "host"], "above 0"),
        (["audit", "--workers", "0"], "1<=x<=1024"),
        (["audit", "--fail-on", "fatal"], "'info', 'warning', 'error', 'critical'"),
        (["rules", "FUSION"], "did you mean fusion, "),
        (["replay"], "Missing argument 'EVIDENCE'"),
        (["replay", "x", "--output", "evidence:y"], "'evidence' is not a format; formats are table, json"),
        (["replay", "x", "--columns", "host,colour"], "'colour' is not a column; columns are host, gpus, link"),
        (["report"], "Missing argument 'RUN...'"),
        (["show"], "Missing argument 'HOST'"),
        (["show", "a", "run.json", "-i", "x"], "RUN and --inventory are two sources"),
    ],
)  # fmt: skip
def test_wrong_usage_is_a_two_and_says_what_is_allowed(tmp_path: Path, args: list[str], says: str) -> None:
    done = call(tmp_path, *args)
    assert (done.returncode, done.stdout) == (2, "")
    assert squeezed(says) in squeezed(done.stderr)


def test_no_command_shows_the_help(tmp_path: Path) -> None:
    done = call(tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == call(tmp_path, "--help").stdout
    assert done.stderr.startswith("Usage: fleetcheck [OPTIONS] COMMAND [ARGS]...\n\n  Audit a fleet")


def test_the_help_and_the_page_name_every_default() -> None:
    said = squeezed(DOCS.read_text())
    limits = {field.name: getattr(Limits(), field.name) for field in fields(Limits)}
    assert limits.pop("run") is None
    assert f"run's: none, with audit --cron {cron.RUN_LIMIT:g}" in said
    page = (DOCS.parent / "ssh.md").read_text()
    for name, seconds in limits.items():
        assert re.search(rf"[:,] {name} {seconds:g},", said)
        assert re.search(rf"^\| `{name}` \|.* \| {seconds:g} \|$", page, re.MULTILINE)
    assert re.search(rf"^\| `run` \|.* none; {cron.RUN_LIMIT:g} with `audit --cron` \|$", page, re.MULTILINE)
    assert f"{Settings().workers} unless told otherwise" in said
    assert f"`--workers`, {Settings().workers} unless told otherwise" in page


def test_a_device_for_metrics_needs_no_name(tmp_path: Path) -> None:
    evidence = recording(tmp_path / "e", [look("a")])
    done = call(tmp_path, "replay", evidence, "-q", "--output", "prometheus:/dev/null")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_help_names_every_column_beside_the_usual_ones(tmp_path: Path) -> None:
    said = squeezed(call(tmp_path, "report", "--help").stdout).replace("- ", "-")
    assert ", ".join(MORE).lower() in said


@pytest.mark.parametrize("command", ["audit", "hosts"])
def test_a_bad_inventory_is_a_two_with_one_line_each(tmp_path: Path, command: str) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text("groups:\n  a:\n    hosts: g[1-2]\n    colour: red\n  b:\n    hosts: h1\n    port: 99999\n")
    done = call(tmp_path, command, "-i", path)
    assert (done.returncode, done.stdout) == (2, "")
    first, second = done.stderr.splitlines()
    assert first.startswith(f"{path}:4:")
    assert second.startswith(f"{path}:7:")


def test_an_inventory_that_is_not_there_is_a_two(tmp_path: Path) -> None:
    done = call(tmp_path, "audit", "-i", tmp_path / "none.yaml")
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("content", [b"", b"not a recording\n", b"\x1f\x8bcut", b'{"schema": "\x1b[2J"}\n'])
def test_a_recording_that_is_none_is_a_two(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "evidence"
    path.write_bytes(content)
    done = call(tmp_path, "replay", path)
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.rstrip("\n").isprintable()


@pytest.fixture
def boom(monkeypatch: pytest.MonkeyPatch) -> None:
    """Add a command that ends as its argument says."""

    @click.command()
    @click.argument("what")
    def command(what: str) -> None:
        raise {
            "bug": ValueError("it\nbroke\x1b[2J"),
            "pipe": BrokenPipeError(32, "Broken pipe"),
            "stop": KeyboardInterrupt(),
        }[what]

    module = ModuleType("fleetcheck.cli.boom")
    module.command = command  # type: ignore[attr-defined]
    monkeypatch.setitem(main.SUMMARIES, "boom", "Break.")
    monkeypatch.setitem(sys.modules, "fleetcheck.cli.boom", module)


@pytest.mark.usefixtures("boom")
def test_an_unexpected_error_is_one_line_and_no_verdict(capfd: pytest.CaptureFixture[str]) -> None:
    assert main.run(["boom", "bug"]) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert err == (
        "fleetcheck: internal error: ValueError: it\\nbroke\\x1b[2J; run again with --debug to see where\n"
    )


@pytest.mark.usefixtures("boom")
def test_debug_shows_where(capfd: pytest.CaptureFixture[str]) -> None:
    assert main.run(["--debug", "boom", "bug"]) == 2
    assert "Traceback (most recent call last)" in capfd.readouterr().err


@pytest.mark.usefixtures("boom")
def test_a_broken_pipe_that_is_not_stdout_is_an_internal_error(capfd: pytest.CaptureFixture[str]) -> None:
    assert main.run(["boom", "pipe"]) == 2
    assert "internal error" in capfd.readouterr().err


@pytest.mark.usefixtures("boom")
def test_an_interrupt_is_130(capfd: pytest.CaptureFixture[str]) -> None:
    assert main.run(["boom", "stop"]) == 130
    assert capfd.readouterr().err.strip() == "fleetcheck: interrupted"


def read_nothing(home: Path, *args: str | Path) -> tuple[int, bytes]:
    """Run the program with a standard output that nobody reads."""
    process = subprocess.Popen(
        [*PROGRAM, *map(str, args)], env=environ(home), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, cwd=home,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    with process.stderr as stream:
        said = stream.read()
    return process.wait(120), said


@pytest.mark.parametrize("args", [["--help"], ["audit", "--help"], ["--version"]])
def test_help_that_nobody_reads_is_no_error(tmp_path: Path, args: list[str]) -> None:
    assert read_nothing(tmp_path, *args) == (0, b"")


def test_a_report_that_nobody_reads_keeps_its_verdict(tmp_path: Path) -> None:
    evidence = recording(tmp_path / "e", [look("a", 7)])
    for form in ("table", "json"):
        assert read_nothing(tmp_path, "replay", evidence, "--format", form) == (1, b"")


def test_a_full_disk_behind_stdout_is_a_two_and_the_files_are_written(tmp_path: Path) -> None:
    evidence = recording(tmp_path / "e", [look("a")])
    with Path("/dev/full").open("wb") as full:
        done = call(tmp_path, "replay", evidence, "--output", "json:out.json", stdout=full)
    assert (done.returncode, done.stderr) == (2, "fleetcheck: standard output: No space left on device\n")
    assert json.loads((tmp_path / "out.json").read_text())["summary"]["hosts"] == 1


def test_a_closed_stdout_is_a_two(tmp_path: Path) -> None:
    evidence = recording(tmp_path / "e", [look("a")])
    shell = ["sh", "-c", 'exec "$@" >&-', "sh", *PROGRAM, "replay", str(evidence)]
    done = subprocess.run(shell, env=environ(tmp_path), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, "fleetcheck: standard output is closed\n")


def test_a_terminal_that_knows_few_characters_gets_numbers(tmp_path: Path) -> None:
    evidence = recording(tmp_path / "e", [look("a")])
    done = call(tmp_path, "replay", evidence, PYTHONIOENCODING="ascii")
    assert done.returncode == 0
    assert "8\\xd7 9.0" in done.stdout


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["audti"], "fleetcheck: No such command 'audti'. Did you mean audit? See fleetcheck --help.\n"),
        (["zzzz"], "fleetcheck: No such command 'zzzz'. See fleetcheck --help.\n"),
        (["show"], "fleetcheck: Missing argument 'HOST'. See fleetcheck show --help.\n"),
        (["rules", "a", "b"], "fleetcheck: Got unexpected extra argument (b). See fleetcheck rules --help.\n"),
    ],
)
def test_wrong_usage_is_one_line(tmp_path: Path, args: list[str], says: str) -> None:
    done = call(tmp_path, *args)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", says)


def test_a_file_of_the_wrong_kind_names_the_command_that_takes_it(tmp_path: Path) -> None:
    for name in ("e.jsonl", "e.jsonl.gz"):
        recording(tmp_path / name, [look("good")])
        done = call(tmp_path, "report", name)
        assert (done.returncode, done.stdout) == (2, "")
        assert f"fleetcheck replay {name}" in done.stderr
    document = call(tmp_path, "replay", "e.jsonl", "--format", "json").stdout
    (tmp_path / "run.json").write_text(document)
    done = call(tmp_path, "replay", "run.json")
    assert (done.returncode, done.stderr) == (2, "run.json: is a run, not evidence: fleetcheck report run.json\n")


def test_show_without_an_inventory_names_the_stored_runs(tmp_path: Path) -> None:
    done = call(tmp_path, "show", "gpu01.example")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "fleetcheck show gpu01.example --run latest" in done.stderr


def test_a_mistyped_inventory_is_told_before_it_becomes_a_host(tmp_path: Path) -> None:
    done = call(tmp_path, "hosts", "-i", "nope")
    assert (done.returncode, done.stderr) == (0, "warning: -i: no file 'nope': taken as a host name\n")
    for name in ("nope.yaml", "nope.yml", "nope.ini", "nope.json"):
        assert call(tmp_path, "hosts", "-i", name).returncode == 2
    for names in ("gpu01", "gpu01,gpu02", "gpu01.example", "gpu[01-02]"):
        assert call(tmp_path, "hosts", "-i", names).stderr == ""


def test_an_inventory_whose_option_was_forgotten_is_noticed(tmp_path: Path) -> None:
    """``audit here.yaml``: the argument is a file, and not a host."""
    (tmp_path / "here it is.yaml").write_text("hosts: {gpu01: {}}\n")
    hint = "here it is.yaml: this is a file; as the inventory: -i 'here it is.yaml'\n"
    for command in ("audit", "hosts", "baseline", "show"):
        done = call(tmp_path, command, "here it is.yaml")
        assert (done.returncode, done.stdout) == (2, "")
        first, second = done.stderr.splitlines(keepends=True)
        assert first.startswith("fleetcheck: no inventory: ")
        assert second == hint
    (tmp_path / "usual.yaml").write_text("hosts: {gpu02: {}}\n")
    usual = call(tmp_path, "hosts", "here it is.yaml", FLEETCHECK_INVENTORY="usual.yaml")
    assert usual.stderr.endswith(hint)
    assert call(tmp_path, "hosts", "nope", FLEETCHECK_INVENTORY="usual.yaml").stderr.count("\n") == 1


def test_the_help_says_which_inventory_is_meant_without_one(tmp_path: Path) -> None:
    for command in ("audit", "hosts", "show", "compare", "baseline", "doctor", "schedule"):
        said = " ".join(call(tmp_path, command, "--help").stdout.split())
        assert "Without it, $FLEETCHECK_INVENTORY, then inventory.yaml in the config folder" in said
