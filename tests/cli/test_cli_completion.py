"""Completion as the shells ask for it: the real scripts, in the shells that are here."""

from __future__ import annotations

import os
import pty
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support import nights

from fleetcheck.errors import InputError
from fleetcheck.history.store import History
from fleetcheck.inventory import ansible_run, names
from fleetcheck.inventory.load import load

START = "from fleetcheck.cli.main import main; main()"
INVENTORY = "groups:\n  rtx: {hosts: 'gpu[01-03].lab'}\n  h200: {hosts: 'h[1-2]'}\nhosts: {gpu09.lab: }\n"
HEAVY = {"fabric", "paramiko", "pydantic", "yaml", "ClusterShell", "tabulate"}
WATCHED = (
    "import atexit, sys\nfrom fleetcheck.cli.main import main\n"
    f"atexit.register(lambda: print('plain,heavy', *sorted({HEAVY!r} & set(sys.modules))))\nmain()"
)
"""Prints what is heavy and was imported beside what is completed."""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    path = tmp_path / "site.yaml"
    path.write_text(INVENTORY)
    return path


def run(*arguments: str, program: str = START, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        check=True, capture_output=True, text=True, timeout=60, env={**os.environ, **environment},
    )  # fmt: skip
    assert done.stderr == ""
    return done.stdout


def completed(*words: str, program: str = START) -> list[str]:
    text = " ".join(("fleetcheck", *words))
    out = run(program=program, COMP_WORDS=text, COMP_CWORD=str(len(words)), _FLEETCHECK_COMPLETE="bash_complete")
    return [line.partition(",")[2] for line in out.splitlines() if line]


def test_hosts_and_groups(site: Path) -> None:
    chosen = ("hosts", "-i", str(site))
    assert completed(*chosen, "gpu") == ["gpu01.lab", "gpu02.lab", "gpu03.lab", "gpu09.lab"]
    assert completed(*chosen, "h") == ["h200", "h1", "h2"]
    assert completed(*chosen, "a") == ["all"]
    assert completed(*chosen, "rtx,!gpu02") == ["rtx,!gpu02.lab"]


def test_rules_where_they_are_chosen(site: Path) -> None:
    from fleetcheck.rules.catalog import RULES

    known = sorted(RULES)
    for words in (("audit", "--select"), ("audit", "-i", str(site), "--ignore")):
        assert completed(*words, "csrc-") == [one for one in known if one.startswith("csrc-")]
    assert completed("audit", "--select", "gpu,csrc-mi") == ["gpu,csrc-missing"]
    assert sorted(completed("audit", "--select", "")) == known


def test_columns(site: Path) -> None:
    from fleetcheck.cli.completion import COLUMNS
    from fleetcheck.report.rows import MORE, USUAL

    assert [name.upper() for name in COLUMNS] == [*USUAL, *MORE]
    assert completed("audit", "--columns", "g") == ["gpus", "groups", "gpu-name"]
    assert completed("report", "--columns", "gpus,g") == ["gpus,groups", "gpus,gpu-name"]


def test_runs_of_the_usual_history(site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert completed("diff", "") == []
    with History.open(tmp_path / "state" / "fleetcheck" / "history.db") as history:
        nights.store(history, nights.run(1, [nights.machine("a")]))
    assert completed("diff", "r") == ["run-1"]


def test_runs_of_the_history(site: Path, tmp_path: Path) -> None:
    db = tmp_path / "state of mine" / "history.db"
    with History.open(db) as history:
        for number in (1, 2):
            nights.store(history, nights.run(number, [nights.machine("a")]))
    for words, file in ((("diff", "--db", f"'{db}'"), 0), (("show", "a", "--db", f"'{db}'", "--run"), 1)):
        assert completed(*words, "")[file:] == ["latest", "run-2", "run-1"]
        assert completed(*words, "run-1")[file:] == ["run-1"]
        assert completed(*words, "la")[file:] == ["latest"]
    heavy = completed("diff", "--db", f"'{db}'", "run", program=WATCHED)
    assert heavy == ["run-2", "run-1", "heavy"]
    assert completed("audit", "--select", "csrc-miss", program=WATCHED) == ["csrc-missing", "heavy"]
    assert completed("diff", "--db", str(tmp_path / "none.db"), "") == []
    (tmp_path / "bad.db").write_text("no database")
    assert completed("diff", "--db", str(tmp_path / "bad.db"), "") == []


def test_the_usual_inventory_is_meant_without_one(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEETCHECK_INVENTORY", str(site))
    assert completed("hosts", "r") == ["rtx"]
    monkeypatch.delenv("FLEETCHECK_INVENTORY")
    assert completed("hosts", "r") == []


def test_a_changed_inventory_is_read_again(site: Path) -> None:
    assert completed("hosts", "-i", str(site), "x") == []
    site.write_text(INVENTORY.replace("gpu09.lab", "xgpu"))
    assert completed("hosts", "-i", str(site), "x") == ["xgpu"]
    site.write_text("hosts: {: }")
    assert completed("hosts", "-i", str(site), "x") == []


def test_options_and_formats(site: Path) -> None:
    assert completed("hosts", "--inventory-") == ["--inventory-exec"]
    assert completed("hosts", "--format", "g") == ["graph"]
    assert "completion" in completed("")


def test_names_that_are_known_need_no_heavy_import(site: Path) -> None:
    chosen = ("hosts", "-i", str(site), "gpu09")
    assert completed(*chosen) == ["gpu09.lab"]
    assert completed(*chosen, program=WATCHED) == ["gpu09.lab", "heavy"]


def test_a_plain_inventory_needs_no_heavy_import_on_the_first_press(site: Path) -> None:
    site.write_text("groups:\n  rtx:\n    hosts: gpu[01-03].lab\n    port: 22\nhosts:\n  gpu09.lab:\n")
    assert completed("hosts", "-i", str(site), "gpu", program=WATCHED) == [
        "gpu01.lab", "gpu02.lab", "gpu03.lab", "gpu09.lab", "heavy"
    ]  # fmt: skip
    site.write_text("hosts:\n  gpu07.lab:\n")
    assert completed("hosts", "-i", str(site), "gpu", program=WATCHED) == ["gpu07.lab", "heavy"]


def test_an_inventory_in_flow_style_needs_no_judging_on_the_first_press(site: Path) -> None:
    site.write_text("groups: {rtx: {hosts: 'gpu[01-03].lab', port: 22}}\nhosts: {gpu09.lab: {port: 22}}\n")
    first = completed("hosts", "-i", str(site), "gpu", program=WATCHED)
    assert first == ["gpu01.lab", "gpu02.lab", "gpu03.lab", "gpu09.lab", "heavy yaml"]


@pytest.mark.skipif(ansible_run.find() is None, reason="needs ansible-core")
def test_an_ansible_inventory_that_fails_is_not_run_at_each_press(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls, program = tmp_path / "calls", tmp_path / "bin" / ansible_run.PROGRAM
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho called >> {calls}\nexec {ansible_run.find()} "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")

    def written(text: str) -> None:
        site.write_text(text)
        while names.seen(str(site))[1] is None:
            pass

    written("[web]\na1 ansible_port=22\n[web:vars\n")
    for _ in range(3):
        assert completed("hosts", "-i", str(site), "a") == []
    assert calls.read_text() == "called\n"
    with pytest.raises(InputError, match="a moment ago"):
        names.known(str(site))
    with pytest.raises(InputError, match=ansible_run.PROGRAM):
        names.known(str(site), execute=True)  # what was not allowed before is tried
    assert calls.read_text() == "called\n" * 2
    written("[web]\na1 ansible_port=22\n")
    assert names.known(str(site)) == (["a1"], ["web"])


def test_a_pipe_is_left_to_the_command(site: Path) -> None:
    fifo = site.parent / "fifo"
    os.mkfifo(fifo)
    assert completed("hosts", "-i", str(fifo), "g") == []


def test_names_that_were_loaded_before_a_change_are_not_kept_for_what_came_after(site: Path) -> None:
    before = names.seen(str(site))
    inventory = load(str(site))
    site.write_text("hosts:\n  new1:\n")
    names.remember(before, inventory)
    assert names.known(str(site)) == (["new1"], [])


def test_changes_of_one_length_within_one_tick_of_the_clock_are_seen(site: Path) -> None:
    for number in range(100, 200):
        site.write_text(f"hosts:\n  new{number}:\n")
        assert names.known(str(site)) == ([f"new{number}"], [])


def test_an_ssh_config_that_includes_others_is_read_each_time(site: Path) -> None:
    more = site.parent / "more"
    more.write_text("Host b1\n")
    site.write_text(f"Host a1\nInclude {more}\n")
    assert names.known(str(site))[0] == ["a1", "b1"]
    more.write_text("Host b2\n")
    assert names.known(str(site))[0] == ["a1", "b2"]


@pytest.mark.skipif(ansible_run.find() is None, reason="needs ansible-core")
def test_names_of_ansible_are_believed_until_its_files_change_or_for_minutes_where_a_program_gives_them(
    site: Path,
) -> None:
    def until() -> float:
        files = list((site.parent / "cache" / "fleetcheck" / "names").iterdir())
        return max(float(file.read_text().split("\n")[2]) for file in files)

    def settled() -> None:
        os.utime(site, (1_000_000_000, 1_000_000_000))
        while names.seen(str(site))[1] is None:
            pass

    site.write_text("[web]\na1 ansible_port=22\n")
    settled()
    assert names.known(str(site)) == (["a1"], ["web"])
    assert until() == 0
    site.write_text("[web]\na2 ansible_port=22\n")
    settled()
    assert names.known(str(site)) == (["a2"], ["web"])
    site.write_text('#!/bin/sh\necho \'{"web": {"hosts": ["a3"]}}\'\n')
    site.chmod(0o755)
    settled()
    assert names.known(str(site), execute=True) == (["a3"], ["web"])
    assert time.time() < until() <= time.time() + names.DYNAMIC_SECONDS


def test_a_command_that_loads_an_inventory_keeps_its_names(site: Path) -> None:
    run("hosts", "-i", str(site))
    (file,) = (site.parent / "cache" / "fleetcheck" / "names").iterdir()
    assert "gpu09.lab" in file.read_text()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_script_asks_the_program(shell: str) -> None:
    script = run("completion", shell)
    assert f"_FLEETCHECK_COMPLETE={shell}_complete" in script
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=script, text=True, check=True, capture_output=True)


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A folder for PATH that holds the program."""
    folder = tmp_path / "bin"
    folder.mkdir()
    script = folder / "fleetcheck"
    script.write_text(f"#!/bin/sh\nexec {sys.executable} -c '{START}' \"$@\"\n")
    script.chmod(0o755)
    return folder


def shell(name: str, script: str, program: Path) -> list[str]:
    environment = {**os.environ, "PATH": f"{program}:{os.environ['PATH']}", "HOME": str(program)}
    done = subprocess.run(
        [name, "-c", script], check=True, capture_output=True, text=True, timeout=60, env=environment
    )
    return done.stdout.splitlines()


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_a_real_bash(site: Path, program: Path) -> None:
    words = f"(fleetcheck hosts -i {site} gpu0)"
    script = (
        f"source <(fleetcheck completion bash); COMP_WORDS={words}; COMP_CWORD=4; "
        "_fleetcheck_completion fleetcheck; printf '%s\\n' \"${COMPREPLY[@]}\""
    )
    assert shell("bash", script, program) == ["gpu01.lab", "gpu02.lab", "gpu03.lab", "gpu09.lab"]


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_a_real_bash_completes_runs_and_files(site: Path, program: Path, tmp_path: Path) -> None:
    with History.open(tmp_path / "h.db") as history:
        nights.store(history, nights.run(1, [nights.machine("a")]))
    for typed, found in (("ru", ["run-1"]), ("si", [])):
        script = (
            "source <(fleetcheck completion bash); "
            f"COMP_WORDS=(fleetcheck show --db {tmp_path}/h.db a --run {typed}); "
            'COMP_CWORD=6; compopt() { echo "$@"; }; _fleetcheck_completion fleetcheck; '
            "printf '%s\\n' \"${COMPREPLY[@]}\""
        )
        said = [line for line in shell("bash", script, program) if line]
        assert said == ["-o default", *found]  # with nothing found, bash goes on with files


@pytest.mark.skipif(shutil.which("fish") is None, reason="needs fish")
def test_a_real_fish(site: Path, program: Path) -> None:
    script = f"fleetcheck completion fish | source; complete -C 'fleetcheck hosts -i {site} r'"
    assert shell("fish", script, program) == ["rtx\tgroup"]


class Zsh:
    """A zsh at a terminal, with its completion system and ours, and nothing of the user's."""

    def __init__(self, home: Path, path: Path) -> None:
        environment = {
            "PATH": f"{path}:{os.environ['PATH']}",
            "HOME": str(home),
            "TERM": "dumb",
            "LANG": "C.UTF-8",
        }
        environment |= {name: value for name, value in os.environ.items() if name.startswith("XDG_")}
        self.master, slave = pty.openpty()
        self.process = subprocess.Popen(
            ["zsh", "-f", "-i"], stdin=slave, stdout=slave, stderr=slave, env=environment, start_new_session=True
        )
        os.close(slave)
        self.typed("PS1= RPS1= PS2=; LISTMAX=1000; unsetopt automenu; stty columns 400\n")
        self.typed('autoload -U compinit; compinit -u -d ~/dump; eval "$(fleetcheck completion zsh)"\n')
        # What is typed comes back as an echo: the mark is put together only when it is printed.
        self.typed("echo rea''dy\n", until="ready")

    def typed(self, keys: str, until: str = "") -> str:
        """Press keys; return what the terminal shows up to ``until``."""
        os.write(self.master, keys.encode())
        seen = ""
        while until not in seen:
            assert select.select([self.master], [], [], 60)[0], f"no {until!r} in {seen!r}"
            seen += os.read(self.master, 65536).decode(errors="replace")
        return seen

    def close(self) -> None:
        self.process.kill()
        self.process.wait(60)
        os.close(self.master)


@pytest.mark.skipif(shutil.which("zsh") is None, reason="needs zsh")
def test_a_real_zsh(site: Path, program: Path, tmp_path: Path) -> None:
    zsh = Zsh(tmp_path, program)
    try:
        listed = zsh.typed(f"fleetcheck hosts -i {site} h\t\t", until="h200")
        listed += zsh.typed("\x15echo do''ne\n", until="done")
        assert {"h1", "h2", "h200", "host", "group"} <= set(listed.split())
        # The one group that begins so is completed, and the command runs on it.
        assert "gpu03.lab" in zsh.typed(f"fleetcheck hosts -i {site} r\t\n", until="3 hosts")
        assert "gpu09.lab" in zsh.typed(f"fleetcheck hosts -i {site} rtx,gpu09\t\n", until="4 hosts")
    finally:
        zsh.close()
