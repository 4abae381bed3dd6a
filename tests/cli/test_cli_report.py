"""Reports by the program: every format printed and written, runs shown again, one host, a plugin's codes."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support import reports, runs
from support.program import SECONDS, START, call, environ, look, on_terminal, recording

from fleetcheck.agent.evidence import Evidence
from fleetcheck.report import formats, prometheus
from fleetcheck.run import Run

GOOD, SHORT = look("good"), look("short", 7)
DEAD = Evidence("dead", "unreachable", "connect", "refused", "dead refused")
RESTS = Evidence("rests", "skipped", "queue", "maintenance", "reinstall")
RUN = runs.every_kind()
# A test runner that runs in the background hands down a SIGINT that is ignored.
LISTENING = f"import signal; signal.signal(signal.SIGINT, signal.default_int_handler); {START}"


def document(path: Path, run: Run, name: str = "json") -> Path:
    path.write_text(formats.render(run, name))
    return path


@pytest.mark.parametrize("name", list(reports.READERS))
def test_each_format_is_printed_and_written(tmp_path: Path, name: str) -> None:
    path = document(tmp_path / "run.json", RUN)
    done = call(tmp_path, "report", path, "--format", name, "--output", f"{name}:out.prom")
    assert (done.returncode, done.stderr) == (2 if name == "nagios" else 4, "")
    expected = {host.name: host.outcome for host in RUN.hosts}
    assert reports.READERS[name](done.stdout) == expected
    assert reports.READERS[name]((tmp_path / "out.prom").read_text()) == expected


def test_replay_and_report_say_the_same(tmp_path: Path) -> None:
    evidence = recording(tmp_path / "e", [GOOD, SHORT, DEAD])
    for name in formats.FORMATS:
        done = call(tmp_path, "replay", evidence, "--format", name, "--output", "json:run.json")
        again = call(tmp_path, "report", "run.json", "--format", name)
        assert (again.stdout, again.returncode) == (done.stdout, done.returncode)
    piped = subprocess.run(
        [sys.executable, "-c", START, "report", "-", "--format", "json"], env=environ(tmp_path), cwd=tmp_path,
        input=(tmp_path / "run.json").read_bytes(), capture_output=True, check=False,
    )  # fmt: skip
    assert piped.stdout == (tmp_path / "run.json").read_bytes()


def test_sites_become_one(tmp_path: Path) -> None:
    east = document(tmp_path / "east.json", runs.run(runs.host("e"), runs.host("both")))
    west = document(tmp_path / "west.jsonl", runs.run(runs.host("w", "timeout"), runs.host("both")), "jsonl")
    done = call(tmp_path, "report", east, west, "--format", "json")
    assert (done.returncode, done.stderr) == (3, "")
    assert [host["name"] for host in json.loads(done.stdout)["hosts"]] == ["e", "both", "w"]


def test_what_cannot_be_one_is_told(tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_text("{")
    document(tmp_path / "a.json", runs.run(runs.host("x")))
    document(tmp_path / "b.json", runs.run(runs.host("x", "timeout")))
    done = call(tmp_path, "report", "bad.json", "a.json", "gone.json", "--output", "json:out")
    assert (done.returncode, done.stdout) == (2, "")
    assert [line.partition(": ")[0] for line in done.stderr.splitlines()] == ["bad.json:1", "gone.json"]
    done = call(tmp_path, "report", "a.json", "b.json")
    assert (done.returncode, done.stdout, done.stderr) == (
        2, "", "report: a.json and b.json tell different things of the host x; leave one of them out\n",
    )  # fmt: skip
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.json", "b.json", "bad.json"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[" * 200_000, "run:1: not JSON: Expecting value"),
        ('{"schema": "fleetcheck/run/1", "a": ' + "[" * 200_000 + "]" * 200_000 + "}", "nested too deeply"),
        (
            '{"type": "run"}\n' + '{"a":' * 200_000 + "}" * 200_000,
            "run:2: not JSON that can be read: nested too deeply",
        ),
        ('{"a": ' + "9" * 10_000 + "}", "a number with too many digits"),
        ('{"schema": "\\ud800\\u001b[2J"}', "its schema is "),
        ("\0" * 4096, "not JSON"),
        ("", "not JSON"),
        ("null", "not a JSON object"),
    ],
)
def test_a_document_made_to_harm_is_a_line_and_a_two(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "run").write_text(text)
    for args in (["report", "run"], ["show", "a", "run"], ["compare", "a", "b", "--run", "run"]):
        done = call(tmp_path, *args)
        assert (done.returncode, done.stdout) == (2, "")
        assert says in done.stderr or "nested too deeply" in done.stderr
        assert done.stderr.removesuffix("\n").isprintable()


def test_a_document_of_any_size_is_not_read_into_memory(tmp_path: Path) -> None:
    with (tmp_path / "run.json").open("wb") as stream:
        stream.write(b'{"schema": "fleetcheck/run/1", "a": "')
        stream.truncate(1 << 40)
    done = call(tmp_path, "report", "run.json")
    assert (done.returncode, done.stderr) == (2, "run.json: larger than 512 MB, more than is read of one run\n")


def test_a_line_of_jsonl_may_hold_what_other_texts_take_for_its_end(tmp_path: Path) -> None:
    text = formats.render(runs.run(runs.host("a", "timeout", message="one\u2028two\x85three")), "jsonl")
    (tmp_path / "run").write_text(
        "\n".join(json.dumps(json.loads(line), ensure_ascii=False) for line in text.splitlines())
    )
    done = call(tmp_path, "report", "run", "--format", "json")
    assert json.loads(done.stdout)["hosts"][0]["message"] == "one\u2028two\x85three"


def test_a_closed_standard_input_is_a_line_and_a_two(tmp_path: Path) -> None:
    for args in (["report", "-"], ["hosts", "-i", "-"]):
        shell = ["sh", "-c", 'exec "$@" <&-', "sh", sys.executable, "-c", START, *args]
        done = subprocess.run(shell, env=environ(tmp_path), capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.endswith(": standard input is closed\n")


def test_runs_by_different_rules_do_not_become_one(tmp_path: Path) -> None:
    for name, chosen in (("a", ()), ("b", ("--select", "gpu"))):
        evidence = recording(tmp_path / f"{name}.e", [look(name)])
        (tmp_path / f"{name}.json").write_text(
            call(tmp_path, "replay", evidence, "--format", "json", *chosen).stdout
        )
    done = call(tmp_path, "report", "a.json", "b.json")
    assert (done.returncode, done.stdout) == (2, "")
    assert "judged by different rules" in done.stderr


def test_reports_import_no_transport(tmp_path: Path) -> None:
    path = document(tmp_path / "run.json", RUN)
    check = (
        "import sys; from fleetcheck.cli.main import run; code = run(sys.argv[1:]);"
        "print(code, [name for name in ('fabric', 'paramiko', 'fleetcheck.remote') if name in sys.modules])"
    )
    for args in (["report", str(path), "--quiet"], ["show", "gpu01.lab", str(path), "--format", "json"]):
        done = subprocess.run(
            [sys.executable, "-c", check, *args], env=environ(tmp_path), capture_output=True, text=True, check=True
        )
        assert done.stdout.endswith(" []\n")


class TestColumns:
    def test_they_are_chosen_and_ordered(self, tmp_path: Path) -> None:
        path = document(tmp_path / "run.json", RUN)
        done = call(tmp_path, "report", path, "--columns", "torch, outcome,CSRC")
        header, *rows = done.stdout.split("\n\n")[1].splitlines()
        assert header.split() == ["HOST", "TORCH", "OUTCOME", "CSRC", "VERDICT"]
        assert rows[-1].split() == [
            "gpu[01-16].lab", "(16)", "2.9.1", "checked", "complete",
            "/root/ml-env/lib/python3.11/site-packages/flashinfer/data/csrc", "ok",
        ]  # fmt: skip
        assert reports.by_table(done.stdout) == {host.name: host.outcome for host in RUN.hosts}

    def test_what_is_not_shown_keeps_no_hosts_apart(self, tmp_path: Path) -> None:
        venvs = [runs.venv("/a"), runs.venv("/b")]
        run = runs.run(runs.host("h1", venvs=venvs), runs.host("h2", venvs=venvs[:1]), runs.host("h3"))
        done = call(tmp_path, "report", document(tmp_path / "r", run), "--columns", "driver")
        assert [line.split() for line in done.stdout.split("\n\n")[1].splitlines()] == [
            ["HOST", "DRIVER", "VERDICT"], ["h[1-3]", "(3)", "580.95.05", "ok"],
        ]  # fmt: skip

    def test_a_column_that_was_asked_for_is_never_left_out(self, tmp_path: Path) -> None:
        names = "gpus,driver,flashinfer,fusion,python,groups"
        done = call(tmp_path, "report", document(tmp_path / "r", RUN), "--columns", names, COLUMNS="40")
        header = done.stdout.split("\n\n")[1].splitlines()[0].split()
        assert header == ["HOST", "GPUS", "DRIVER", "FLASHINFER", "FUSION", "PYTHON", "GROUPS", "VERDICT"]


class TestShow:
    def test_a_host_of_a_run(self, tmp_path: Path) -> None:
        path = document(tmp_path / "run.json", RUN)
        done = call(tmp_path, "show", "gpu18.lab", path)
        assert (done.returncode, done.stderr) == (1, "")
        assert done.stdout.startswith("gpu18.lab has 2 findings, the worst csrc-missing (error): ")
        assert "\nNot examined\n" in done.stdout
        assert call(tmp_path, "show", "gpu01.lab", path).returncode == 0
        assert call(tmp_path, "show", "bad-timeout", path).returncode == 3
        alone = call(tmp_path, "show", "gpu18.lab", path, "--format", "json")
        assert reports.by_json(alone.stdout) == {"gpu18.lab": "checked"}

    def test_the_sentence_names_what_causes_the_rest(self, tmp_path: Path) -> None:
        findings = (
            runs.finding("a", "fusion-would-crash", "critical", venv="/v", cause="csrc-decoy"),
            runs.finding("a", "csrc-decoy", "error", venv="/v", cause="env-edited"),
            runs.finding("a", "env-edited", "warning", venv="/v"),
            runs.finding("a", "gpu-count", "error"),
        )
        path = document(tmp_path / "run.json", runs.run(runs.host("a", "findings"), findings=findings))
        done = call(tmp_path, "show", "a", path)
        assert done.stdout.startswith("a has 4 findings, the worst env-edited (critical): ")
        assert "\nCRITICAL  env-edited\n" in done.stdout

    def test_a_host_that_is_not_there(self, tmp_path: Path) -> None:
        path = document(tmp_path / "run.json", RUN)
        done = call(tmp_path, "show", "gpu18", path)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith("gpu18: the run has no such host; did you mean gpu18.lab")

    def test_a_look_now(self, tmp_path: Path, closed_port: int) -> None:
        (tmp_path / "fleet.yaml").write_text(
            f"hosts:\n  a1: {{address: 127.0.0.1, port: {closed_port}}}\n  a2: {{address: 127.0.0.1}}\n"
        )
        safe = ("-i", "fleet.yaml", "--ssh-config", "none", "--known-hosts", "/dev/null")
        done = call(tmp_path, "show", "a1", *safe)
        assert (done.returncode, done.stderr) == (3, "")
        assert done.stdout.startswith("a1 was not checked, unreachable at the stage connect: ")
        several = call(tmp_path, "show", "a[1-2]", *safe)
        assert (several.returncode, several.stderr) == (2, "a[1-2]: selects 2 hosts; show is for one\n")

    def test_a_terminal_gets_colour_and_its_width(self, tmp_path: Path) -> None:
        out, _, _ = on_terminal(tmp_path, "show", "gpu18.lab", document(tmp_path / "r", RUN), columns=60)
        assert "\x1b[" in out
        assert max(map(len, out.split("\n\n", maxsplit=1)[0].splitlines())) <= 80


@pytest.fixture
def closed_port() -> Iterator[int]:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


class TestJsonl:
    def test_lines_come_before_the_run_ends(self, tmp_path: Path) -> None:
        """One host is left alone, one never says a word: the line of the first is read while the other is open."""
        with socket.create_server(("127.0.0.1", 0)) as door:
            (tmp_path / "fleet.yaml").write_text(
                f"hosts:\n  mute: {{address: 127.0.0.1, port: {door.getsockname()[1]}}}\n  rests: {{}}\n"
                "maintenance:\n  - {hosts: rests, reason: reinstall, until: 2999-12-31}\n"
            )
            process = subprocess.Popen(
                [
                    sys.executable, "-c", LISTENING, "audit", "-i", "fleet.yaml", "--ssh-config", "none",
                    "--known-hosts", "/dev/null", "--format", "jsonl", "--output", "jsonl:whole.jsonl",
                    "--limit", f"banner={SECONDS}",
                ],
                env=environ(tmp_path), cwd=tmp_path, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.PIPE, text=True,
            )  # fmt: skip
            assert process.stdout is not None
            early = [process.stdout.readline(), process.stdout.readline()]
            door.settimeout(SECONDS)
            line, _ = door.accept()
            assert process.poll() is None
            os.kill(process.pid, signal.SIGINT)
            rest, err = process.communicate(timeout=SECONDS)
            line.close()
        assert (process.returncode, err) == (130, "")
        lines = reports.json_lines("".join(early) + rest)
        assert [(item["type"], item.get("name")) for item in lines] == [
            ("run", None), ("host", "rests"), ("host", "mute"), ("summary", None),
        ]  # fmt: skip
        assert lines[-1]["complete"] is False
        assert reports.by_jsonl((tmp_path / "whole.jsonl").read_text()) == {"mute": "timeout", "rests": "skipped"}

    def test_a_full_disk_is_a_two_and_the_files_are_written(self, tmp_path: Path) -> None:
        evidence = recording(tmp_path / "e", [GOOD, DEAD])
        with Path("/dev/full").open("wb") as full:
            done = call(tmp_path, "replay", evidence, "--format", "jsonl", "--output", "jsonl:out", stdout=full)
        assert (done.returncode, done.stderr) == (2, "fleetcheck: standard output: No space left on device\n")
        assert len(reports.by_jsonl((tmp_path / "out").read_text())) == 2

    def test_quiet_streams_nothing(self, tmp_path: Path) -> None:
        done = call(tmp_path, "replay", recording(tmp_path / "e", [GOOD]), "--format", "jsonl", "-q")
        assert (done.returncode, done.stdout) == (0, "")


class TestNagios:
    @pytest.mark.parametrize(
        ("looks", "state", "code"),
        [
            ([GOOD, RESTS], "OK", 0), ([GOOD, SHORT], "CRITICAL", 2), ([GOOD, DEAD], "UNKNOWN", 3),
            ([SHORT, DEAD], "CRITICAL", 2),
        ],
    )  # fmt: skip
    def test_a_plugins_codes(self, tmp_path: Path, looks: list[Evidence], state: str, code: int) -> None:
        done = call(tmp_path, "replay", recording(tmp_path / "e", looks), "--format", "nagios")
        assert (done.returncode, done.stderr) == (code, "")
        assert done.stdout.startswith(f"FLEETCHECK {state} - ")

    def test_what_does_not_fail_a_host_is_a_warning(self, tmp_path: Path) -> None:
        evidence = recording(tmp_path / "e", [SHORT])
        done = call(tmp_path, "replay", evidence, "--format=nagios", "--fail-on", "critical")
        assert (done.returncode, done.stdout[:20]) == (1, "FLEETCHECK WARNING -")

    @pytest.mark.parametrize(
        "args",
        [
            ["replay", "gone", "--format", "nagios"], ["replay", "--format=nagios"],
            ["replay", "--nonsense", "--format", "nagios"], ["audit", "-i", "gone.yaml", "--format", "nagios"],
        ],
    )  # fmt: skip
    def test_what_is_no_verdict_is_unknown(self, tmp_path: Path, args: list[str]) -> None:
        done = call(tmp_path, *args)
        assert done.returncode == 3
        assert done.stdout.startswith("FLEETCHECK UNKNOWN - ")
        assert len(done.stdout.splitlines()) == 1
        assert done.stderr

    def test_a_file_in_this_format_leaves_the_exit_code_alone(self, tmp_path: Path) -> None:
        evidence = recording(tmp_path / "e", [SHORT])
        done = call(tmp_path, "replay", evidence, "-q", "--output", "nagios:status")
        assert done.returncode == 1
        assert (tmp_path / "status").read_text().startswith("FLEETCHECK CRITICAL - ")


class TestPrometheusFile:
    def success(self, path: Path) -> float | None:
        return reports.samples(path.read_text()).get((prometheus.SUCCESS, frozenset()))

    def test_the_last_success_stays_until_the_next(self, tmp_path: Path) -> None:
        path = tmp_path / "fleetcheck.prom"
        lost = runs.run(runs.host("a", "timeout"))
        for run, expected in ((lost, None), (runs.run(runs.host("a")), 1893456009.0), (lost, 1893456009.0)):
            call(tmp_path, "report", document(tmp_path / "r", run), "-q", "--output", f"prometheus:{path}")
            assert self.success(path) == expected

    def test_an_interrupted_run_leaves_the_old_file(self, tmp_path: Path) -> None:
        path = tmp_path / "fleetcheck.prom"
        early = document(tmp_path / "r", runs.run(runs.host("a", "timeout"), complete=False))
        path.write_text("old 1\n")
        done = call(tmp_path, "report", early, "-q", "--output", f"prometheus:{path}", "--output", "csv:a.csv")
        assert (done.returncode, done.stderr) == (130, "")
        assert path.read_text() == "old 1\n"
        assert reports.by_csv((tmp_path / "a.csv").read_text()) == {"a": "timeout"}
        path.unlink()
        call(tmp_path, "report", early, "-q", "--output", f"prometheus:{path}")
        assert reports.by_prometheus(path.read_text()) == {"a": "timeout"}
        assert sorted(item.name for item in tmp_path.iterdir()) == ["a.csv", "fleetcheck.prom", "r"]

    @pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"not metrics {"])
    def test_a_file_of_someone_else_is_replaced(self, tmp_path: Path, content: bytes) -> None:
        path = tmp_path / "fleetcheck.prom"
        path.write_bytes(content)
        lost: Any = runs.run(runs.host("a", "timeout"))
        call(tmp_path, "report", document(tmp_path / "r", lost), "-q", "--output", f"prometheus:{path}")
        assert self.success(path) is None
