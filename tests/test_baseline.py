"""A baseline of a healthy host: an audit against it is quiet, and after a change every finding names it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from support.sshd import NEEDS_SSHD, SSHD, Sshd

from fleetcheck import baseline
from fleetcheck.audit import audit
from fleetcheck.cli.main import run as command
from fleetcheck.demo import package, smi
from fleetcheck.demo.tree import Environment, HostTree
from fleetcheck.inventory.load import load
from fleetcheck.inventory.model import Inventory, Target
from fleetcheck.judge import Policy
from fleetcheck.remote.settings import NO_CONFIG, Limits, Settings
from fleetcheck.report.json import render
from fleetcheck.rules.finding import Finding
from fleetcheck.run import Finished, Run

VENV = "/opt/serve"
SETTINGS = Settings(limits=Limits(smi=10.0), workers=4, ssh_config=NO_CONFIG)
Made = tuple[HostTree, Environment]


def healthy(folder: Path, name: str, release: package.Release = package.STOCK_0_6_2) -> Made:
    """Make a host in good order: eight GPUs, a toolkit, FlashInfer and torch as installed."""
    tree = HostTree(folder / name, "gpu")
    tree.gpus(smi.RTX_PRO_6000, 8)
    toolkit(tree, "12.9.1")
    environment = tree.environment(VENV)
    package.install(release, environment.site)
    torch(environment, "2.9.0+cu129", "12.9")
    return tree, environment


def toolkit(tree: HostTree, version: str) -> None:
    tree.write(
        "/usr/local/cuda/version.json", json.dumps({"cuda_nvcc": {"name": "CUDA NVCC", "version": version}})
    )
    tree.write("/usr/local/cuda/bin/nvcc", "#!/bin/sh\n", 0o755)


def torch(environment: Environment, version: str, cuda: str) -> None:
    folder = environment.site / "torch"
    folder.mkdir(exist_ok=True)
    (folder / "__init__.py").write_text("")
    (folder / "version.py").write_text(f"__version__ = '{version}'\ncuda = '{cuda}'\n")


def new_driver(tree: HostTree, _: Environment) -> None:
    tree.driver("590.44.01", 8)
    tree.nvidia_smi(
        smi.answering([smi.row(smi.RTX_PRO_6000, number, "590.44.01") for number in range(8)], "590.44.01")
    )


def lost_gpu(tree: HostTree, _: Environment) -> None:
    tree.nvidia_smi(smi.answering([smi.row(smi.RTX_PRO_6000, number) for number in range(7)]))


def other_gpus(tree: HostTree, _: Environment) -> None:
    tree.nvidia_smi(smi.answering([smi.row(smi.H200, number) for number in range(8)]))


def no_driver(tree: HostTree, _: Environment) -> None:
    shutil.rmtree(tree.place("/proc/driver"))
    shutil.rmtree(tree.place("/sys/module"))
    tree.nvidia_smi(smi.failing(9, smi.NOT_LOADED))


def upgraded(tree: HostTree, environment: Environment) -> None:
    shutil.rmtree(environment.flashinfer)
    for folder in environment.site.glob("flashinfer*"):
        shutil.rmtree(folder)
    package.install(package.STOCK_0_6_18, environment.site)


def no_csrc(_: HostTree, environment: Environment) -> None:
    shutil.rmtree(environment.flashinfer / "data" / "csrc")


def less_csrc(_: HostTree, environment: Environment) -> None:
    next(path for path in (environment.flashinfer / "data" / "csrc").iterdir() if path.suffix == ".cu").unlink()


def other_path(_: HostTree, environment: Environment) -> None:
    package.edit(environment.flashinfer / "jit/env.py", package.CSRC, '"csrc"')
    shutil.copytree(environment.flashinfer / "data" / "csrc", environment.flashinfer / "csrc")


def wide_gate(_: HostTree, environment: Environment) -> None:
    package.edit(environment.flashinfer / "jit/comm.py", package.GATE, package.WIDENED_GATE)


def other_torch(_: HostTree, environment: Environment) -> None:
    torch(environment, "2.10.0+cu130", "13.0")


def no_venv(_: HostTree, environment: Environment) -> None:
    shutil.rmtree(environment.real)


def no_python(_: HostTree, environment: Environment) -> None:
    for link in environment.bin.glob("python*"):
        link.unlink()
        link.symlink_to("/usr/bin/python-that-is-gone")


def other_toolkit(tree: HostTree, _: Environment) -> None:
    toolkit(tree, "13.0.48")


def decoy(_: HostTree, environment: Environment) -> None:
    (environment.flashinfer / "csrc").mkdir()
    (environment.flashinfer / "csrc" / "mine.cu").write_text("// mine\n")


CHANGES: dict[str, tuple[Callable[[HostTree, Environment], None], tuple[str, ...]]] = {
    "driver": (new_driver, ("590.44.01",)),
    "gpu-lost": (lost_gpu, ("nvidia-smi does not", "7 of 8")),
    "gpu-model": (other_gpus, ("H200", "9.0")),
    "no-driver": (no_driver, ("driver", "GPU", "nvidia-smi")),
    "flashinfer": (upgraded, ("0.6.18",)),
    "csrc": (no_csrc, ("does not exist", "data/csrc")),
    "csrc-file": (less_csrc, ("absent from", ".cu")),
    "env": (other_path, ("env.py", "flashinfer/csrc")),
    "gate": (wide_gate, ("gate", "jit/comm.py")),
    "torch": (other_torch, ("13.0", "2.10.0+cu130")),
    "venv": (no_venv, ("does not exist",)),
    "python": (no_python, ("interpreter",)),
    "toolkit": (other_toolkit, ("13.0",)),
    "decoy": (decoy, ("was made by hand",)),
}
"""What is done to a host, and words of which each finding after it must have one."""


def audited(targets: list[Target]) -> Run:
    for event in audit(targets, policy=Policy(), settings=SETTINGS):
        if isinstance(event, Finished):
            return event.run
    raise AssertionError("the audit ended without a run")


@pytest.fixture(scope="module")
def sshd() -> Iterator[Sshd]:
    if SSHD is None:
        pytest.skip(NEEDS_SSHD)
    with Sshd() as daemon:
        yield daemon


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("hosts")


@pytest.fixture(scope="module")
def good(sshd: Sshd, folder: Path) -> Run:
    """The audit of two healthy hosts of which nothing is expected."""
    made = []
    for name in ("good1", "good2"):
        tree, _ = healthy(folder, name)
        made.append(sshd.target(name, sysroot=str(tree.root), venvs=({"path": VENV},)))
    return audited(made)


@pytest.fixture(scope="module")
def written(good: Run, folder: Path) -> Path:
    """The baseline of one of them, as a file."""
    path = folder / "baseline.yaml"
    path.write_text(baseline.render(good.hosts[:1], run=good.run.id))
    return path


@pytest.fixture(scope="module")
def later(sshd: Sshd, folder: Path, written: Path) -> Run:
    """The audit against the baseline: the same host, and one for each change."""
    (wanted,) = load(written).targets
    keys = {"venvs": wanted.venvs, "expect": wanted.expect}
    targets = [sshd.target("good1", sysroot=str(folder / "good1"), **keys)]
    for name, (change, _) in CHANGES.items():
        tree, environment = healthy(folder, name)
        change(tree, environment)
        targets.append(sshd.target(name, sysroot=str(tree.root), **keys))
    return audited(targets)


def loud(run: Run, host: str) -> list[Finding]:
    return [one for one in run.findings if one.host == host and one.severity != "info"]


def test_the_host_meets_its_own_baseline(later: Run) -> None:
    assert not loud(later, "good1")
    assert later.hosts[0].verdict == "ok"


@pytest.mark.parametrize("name", CHANGES)
def test_after_a_change_every_finding_names_it(later: Run, name: str) -> None:
    found = loud(later, name)
    assert found
    for one in found:
        told = f"{one.message} {one.expected} {one.seen}"
        assert any(word in told for word in CHANGES[name][1]), (one.rule, told)


def test_what_it_expects(written: Path) -> None:
    group = yaml.safe_load(written.read_text())["groups"]["baseline"]
    assert group["hosts"] == "good1"
    known = {"gpus": 8, "gpu_name": smi.RTX_PRO_6000.name, "compute_capability": "12.0", "driver": smi.DRIVER}
    assert known.items() <= group["expect"].items()
    first, second = group["venvs"]
    assert first["path"] == VENV
    assert first["expect"]["flashinfer"] == "0.6.2"
    assert first["expect"]["torch_cuda"] == "12.9"
    assert first["expect"]["csrc_dir"].endswith("/flashinfer/data/csrc")
    assert "files" not in first["expect"]
    assert second == "running"


def test_of_several_hosts_it_is_what_they_agree_in(good: Run) -> None:
    one, other = good.hosts
    gpus = other.gpus.model_copy(update={"driver": "590.1", "count": None})
    text = baseline.render([one, other.model_copy(update={"gpus": gpus})], run="r")
    assert "# driver differs: 580.95.05 on good1; 590.1 on good2" in text
    assert "# gpus differs: 8 on good1; not known on good2" in text
    assert "gpu_name: " in text
    assert yaml.safe_load(text)["groups"]["baseline"]["hosts"] == "good[1-2]"


def test_a_file_that_no_wheel_vouches_for_is_expected_by_its_sum(good: Run, tmp_path: Path) -> None:
    host = good.hosts[0]
    (venv,) = host.venvs
    assert venv.flashinfer is not None
    files = tuple(
        file.model_copy(update={"record": "no-record"}) if file.path.endswith("jit/env.py") else file
        for file in venv.flashinfer.files
    )
    edited = venv.model_copy(update={"flashinfer": venv.flashinfer.model_copy(update={"files": files})})
    path = tmp_path / "inventory.yaml"
    path.write_text(baseline.render([host.model_copy(update={"venvs": (edited,)})], run="r"))
    item = load(path).targets[0].venvs[0]
    assert not isinstance(item, str)
    assert list(item.expect.files or {}) == ["jit/env.py"]


def test_hostile_values_stay_inert(good: Run, tmp_path: Path) -> None:
    host = good.hosts[0]
    evil = 'x"\n    sudo: true\n# \x1b[31m'
    gpus = host.gpus.model_copy(update={"names": (evil,), "driver": evil, "link": evil})
    (venv,) = host.venvs
    path = tmp_path / "inventory.yaml"
    text = baseline.render(
        [host.model_copy(update={"gpus": gpus, "venvs": (venv.model_copy(update={"path": f"/opt/{evil}"}),)})],
        run=evil,
    )
    assert "\x1b" not in text
    group = yaml.safe_load(text)["groups"]["baseline"]
    assert group.keys() == {"hosts", "expect", "venvs"}
    assert group["expect"]["gpu_name"] == evil
    assert "driver" not in group["expect"]
    path.write_text(text)


def test_command_reads_a_run(good: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "run.json"
    path.write_text(render(good))
    assert command(["baseline", "good1", "--run", str(path), "--group", "rtx"]) == 0
    out = capsys.readouterr().out
    (tmp_path / "inventory.yaml").write_text(out)
    inventory: Inventory = load(tmp_path / "inventory.yaml")
    assert inventory.targets[0].groups == ("rtx",)
    assert command(["baseline", "good9", "--run", str(path)]) == 2
    assert "nearest: good" in capsys.readouterr().err
    assert command(["baseline", "--run", str(path)]) == 2
    assert command(["baseline", "good1", "--run", str(path), "--group", "all"]) == 2


def test_command_warns_of_a_host_that_is_not_good(
    later: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "run.json"
    path.write_text(render(later))
    assert command(["baseline", "env", "--run", str(path)]) == 0
    assert "# Not in good order: env has " in capsys.readouterr().out


@pytest.fixture(scope="module", params=["local", "ssh"])
def reached(request: pytest.FixtureRequest, sshd: Sshd, folder: Path) -> tuple[Path, set[str]]:
    """An inventory of two hosts that their names alone do not reach, with a finding that is accepted."""
    local = request.param == "local"
    hosts = {}
    for name in ("box1", "box2"):
        tree, environment = healthy(folder, f"{name}-{request.param}")
        decoy(tree, environment)
        keys: dict[str, object] = {"connection": "local"}
        if not local:
            target = sshd.target(name)
            keys = target.model_dump(mode="json", exclude_defaults=True, exclude={"name", "venvs"})
        hosts[name] = keys | {"sysroot": str(tree.root), "venvs": [VENV], "rules": {"driver-*": "info"}}
    path = folder / f"reached-{request.param}.yaml"
    waiver = {"rule": "csrc-decoy", "hosts": "box[1-2]", "reason": "kept: on purpose", "until": "2999-12-31"}
    path.write_text(yaml.safe_dump({"hosts": hosts, "waivers": [waiver]}))
    return path, {"connection"} if local else {"address", "port", "user", "identity_file"}


NO_CONFIG_READ = ["--ssh-config", "none"]


def counted(path: Path, source: Path, capsys: pytest.CaptureFixture[str]) -> list[tuple[str, str, bool]]:
    """Audit ``source``; return its findings."""
    command(["audit", "-i", str(source), "--no-history", "--output", f"json:{path}", "-q", *NO_CONFIG_READ])
    assert capsys.readouterr().err == ""
    document = json.loads(path.read_text())
    assert document["summary"]["not_checked"] == 0, document["hosts"]
    return [
        (one["rule"], one["host"], bool(one["waived"]))
        for one in document["findings"]
        if one["severity"] != "info"
    ]


@pytest.mark.parametrize("kept", [False, True], ids=["now", "evidence"])
def test_what_it_writes_is_used_as_it_is(
    reached: tuple[Path, set[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str], kept: bool
) -> None:
    source, keys = reached
    words = ["-i", str(source), *NO_CONFIG_READ]
    if kept:
        evidence = tmp_path / "look.jsonl"
        command(["audit", *words, "--no-history", "-q", "--output", f"evidence:{evidence}"])
        words = ["--run", str(evidence)]
    assert command(["baseline", "box1", "box2", *words]) == 0
    out = capsys.readouterr().out
    assert "or use this file as it is" in out
    assert ("# The look had --ssh-config none; give audit the same." in out.splitlines()) is not kept
    written = tmp_path / "base.yaml"
    written.write_text(out)
    document = yaml.safe_load(out)
    assert all(keys | {"rules", "sysroot"} <= host.keys() for host in document["hosts"].values())
    before = counted(tmp_path / "before.json", source, capsys)
    assert ("csrc-decoy", "box1", True) in before
    assert set(counted(tmp_path / "after.json", written, capsys)) <= set(before)


def test_a_run_without_the_settings_of_reaching_says_what_to_take_over(
    reached: tuple[Path, set[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, _ = reached
    run = tmp_path / "run.json"
    counted(run, source, capsys)
    assert command(["baseline", "box1", "--run", str(run)]) == 0
    out = capsys.readouterr().out
    assert "or use this file as it is" not in out
    assert "connection, address, port, user" in out
    assert "hosts" not in yaml.safe_load(out)
    (tmp_path / "base.yaml").write_text(out)
    (waiver,) = load(tmp_path / "base.yaml").waivers
    assert (waiver.rule, waiver.hosts) == ("csrc-decoy", "box1")


def test_commands_look_now(sshd: Sshd, good: Run, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert good.summary.hosts == 2
    other, _ = healthy(folder, "live2", package.STOCK_0_6_18)
    wanted = {"good1": str(folder / "good1"), "live2": str(other.root)}
    hosts = {}
    for name, root in wanted.items():
        target = sshd.target(name, sysroot=root, venvs=({"path": VENV},))
        hosts[name] = target.model_dump(mode="json", exclude_defaults=True, exclude={"name", "venvs"})
        hosts[name]["venvs"] = [VENV]
    inventory = folder / "live.yaml"
    inventory.write_text(yaml.safe_dump({"hosts": hosts}))
    options = ["-i", str(inventory), "--ssh-config", "none"]
    assert command(["baseline", "good1", *options]) == 0
    assert 'flashinfer: "0.6.2"' in capsys.readouterr().out
    assert command(["compare", "good1", "live2", *options]) == 1
    out = capsys.readouterr().out
    assert (
        "  - venvs[/opt/serve].flashinfer.version  0.6.2\n  + venvs[/opt/serve].flashinfer.version  0.6.18\n"
        in out
    )
    assert command(["audit", "--select", "csrc", "--fold", *options]) == 0
    assert "Fold  2 groups of equal hosts" in capsys.readouterr().out
    inventory.write_text(yaml.safe_dump({"hosts": hosts, "defaults": {"rules": {"csrc-mising": "info"}}}))
    assert command(["audit", *options]) == 2
    assert "rules.csrc-mising: there is no rule or family" in capsys.readouterr().err
