"""The host part, over trees of files: PCI, driver, system, toolkits, nvidia-smi in all its moods."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from agent_host import Host, look, shells, this_python, tree

from fleetcheck.agent.evidence import Request
from fleetcheck.agent.program.smi import FOLDERS

ROWS = "0, GPU-1, 00000000:05:00.0, NVIDIA H200, 9.0, 143771, 580.95.05\n"


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path / "a host's root")


def ask(host: Host, **request: object) -> Request:
    return Request(sysroot=str(host.root), **request)  # type: ignore[arg-type]


@pytest.mark.parametrize("shell", shells())
def test_every_part_arrives_under_each_shell(host: Host, shell: str) -> None:
    host.gpu()
    host.write("/proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX Open Kernel Module  580.95.05\n")
    host.write("/usr/local/cuda-13.0/version.json", "{}")
    host.write("/usr/local/cuda-13.0/bin/nvcc", "", executable=True)
    host.at("/usr/local/cuda").symlink_to("cuda-13.0")
    host.at("/sys/kernel/iommu_groups/0").mkdir(parents=True)
    host.write("/dev/nvidia0", "")
    host.smi(f"printf '{ROWS}'")
    answer = look(ask(host), shell=shell)
    assert (answer.returncode, answer.stderr, answer.collector.notes) == (0, "", [])
    assert next(iter(answer.parts)) == "agent"
    assert list(answer.parts)[-2:] == ["smi", "end"]
    assert set(answer.parts) == {
        "agent", "system", "driver", "pci", "toolkits", "kernel", "processes", "caches", "venvs", "smi", "end",
    }  # fmt: skip
    assert answer.parts["agent"]["executable"] == this_python()
    system = answer.parts["system"]
    assert system["kernel"] == "6.8.0-test"
    assert system["boot_time"] == 1700000000
    assert system["distro"] == "Test Linux 1"
    assert system["machine_id"] == hashlib.sha256(b"0123456789abcdef0123456789abcdef").hexdigest()
    assert system["iommu"] == {"groups": 1, "cmdline": ["intel_iommu=on", "iommu=pt"]}
    (function,) = answer.parts["pci"]["functions"]
    assert function["bus_id"] == "0000:05:00.0"
    assert function["class"] == "0x030200"
    assert function["current_link_width"] is None
    assert answer.parts["driver"]["devices"] == ["nvidia0"]
    assert "580.95.05" in answer.parts["driver"]["proc_version"]["text"]
    assert answer.parts["driver"]["module_version"] == {"path": "/sys/module/nvidia/version", "error": "ENOENT"}
    found = {one["path"]: one for one in answer.parts["toolkits"]["found"]}
    assert found["/usr/local/cuda"]["real"] == "/usr/local/cuda-13.0"
    assert found["/usr/local/cuda"]["nvcc"] == "/usr/local/cuda/bin/nvcc"
    call = answer.parts["smi"]["query"]["call"]
    assert (call["rc"], call["stdout"], call["timed_out"]) == (0, ROWS, False)
    assert call["argv"][0] == "/usr/bin/nvidia-smi"
    assert answer.parts["end"]["reason"] == "done"
    assert answer.parts["end"]["errors"] == []


def test_nothing_there_is_a_value(host: Host) -> None:
    answer = look(ask(host))
    assert answer.parts["pci"] == {"functions": [], "error": "ENOENT"}
    assert answer.parts["smi"]["path"] is None
    assert answer.parts["smi"]["searched"] == list(FOLDERS)
    assert answer.parts["smi"]["query"] is None
    assert answer.parts["venvs"] == {"items": [], "unmatched": []}


def test_an_unknown_field_is_retried_once_with_few(host: Host) -> None:
    host.smi(
        'case "$1" in *compute_cap*)\n'
        'echo "Field \\"compute_cap\\" is not a valid field to query."; echo; exit 2;; esac\n'
        'case "$1" in --version) echo VERSION;; *) echo "0, GPU-1";; esac\n'
    )
    smi = look(ask(host)).parts["smi"]
    assert smi["query"]["call"]["rc"] == 2
    assert smi["retry"]["fields"] == ["index", "uuid", "pci.bus_id", "name", "memory.total", "driver_version"]
    assert smi["retry"]["call"]["stdout"] == "0, GPU-1\n"
    assert smi["version"]["stdout"] == "VERSION\n"


def test_a_hanging_nvidia_smi_that_ignores_sigterm_is_left(host: Host, tmp_path: Path) -> None:
    calls = tmp_path / "calls"
    host.smi(f'trap "" TERM HUP INT\necho $$ >>{calls}\necho half\nsleep 1000\nsleep 1000\n')
    answer = look(ask(host, smi_limit=1.0))
    call = answer.parts["smi"]["query"]["call"]
    assert (call["timed_out"], call["rc"], call["stdout"]) == (True, None, "half\n")
    assert answer.parts["smi"]["version"] is None
    assert answer.parts["end"]["reason"] == "done"
    (pid,) = calls.read_text().split()
    assert not Path(f"/proc/{pid}").exists() or "Z" in Path(f"/proc/{pid}/stat").read_text()


def test_no_second_nvidia_smi_where_one_is_stuck(host: Host, tmp_path: Path) -> None:
    host.write("/proc/4711/stat", "4711 (nvidia-smi) D 1 4711\n")
    host.write("/proc/4712/stat", "4712 (bash) D 1 4712\n")
    host.smi(f"echo ran >{tmp_path}/ran\n")
    smi = look(ask(host)).parts["smi"]
    assert (smi["d_state"], smi["skipped"], smi["query"]) == ([4711], "d-state", None)
    assert not (tmp_path / "ran").exists()


def test_nvidia_smi_that_cannot_be_run_is_a_value(host: Host) -> None:
    host.write("/usr/bin/nvidia-smi", "#!/no/such/interpreter\n", executable=True)
    call = look(ask(host)).parts["smi"]["query"]["call"]
    assert (call["rc"], call["error"]) == (None, "ENOENT")


def test_output_is_bounded_and_any_byte_survives(host: Host) -> None:
    host.smi("printf '\\377\\000\\033[4m'\nyes | head -c 300000\nprintf err >&2\nkill -SEGV $$\n")
    call = look(ask(host)).parts["smi"]["query"]["call"]
    assert call["truncated"] is True
    assert len(call["stdout"]) == 65536
    assert call["stdout"].startswith("\ufffd\0\x1b[4m")
    assert call["stderr"].startswith("err")
    assert call["rc"] == 139


def test_an_answer_beyond_its_room_drops_the_part_and_says_so(host: Host) -> None:
    host.smi("yes | head -c 60000\n")
    answer = look(ask(host, max_bytes=40000))
    assert "smi" not in answer.parts
    assert answer.collector.ended
    assert any(line.startswith("smi: ") for line in answer.parts["end"]["errors"])


@pytest.mark.parametrize("shell", shells())
def test_a_host_without_python_is_told_by_the_shell(host: Host, shell: str, tmp_path: Path) -> None:
    host.gpu()
    host.write("/proc/driver/nvidia/version", 'NVRM "quoted" \\ back\tslash\nGCC\n')
    host.smi("printf '0, GPU-1\\377\\n'\necho problem >&2\nexit 14\n")
    host.at("/opt/a b'c/bin").mkdir(parents=True)
    before = tree(host.root)
    request = ask(host, venvs=("/opt/a*", "/opt/none", "/opt/no*match"))
    answer = look(request, shell=shell, pythons=("/nonexistent/python3",))
    assert (answer.stderr, answer.collector.notes, answer.collector.ended) == ("", [], True)
    assert answer.parts["agent"]["via"] == "sh"
    assert answer.parts["driver"]["proc_version"]["text"] == 'NVRM "quoted" \\ back\tslash\nGCC'
    (function,) = answer.parts["pci"]["functions"]
    assert (function["device"], function["max_link_width"], function["revision"]) == ("0x2bb5", "16", None)
    call = answer.parts["smi"]["query"]["call"]
    assert (call["rc"], call["stdout"]) == (14, "0, GPU-1?\nproblem")
    states = [(item["path"], item["state"]) for item in answer.parts["venvs"]["items"]]
    assert states == [("/opt/a b'c", "present"), ("/opt/none", "missing")]
    assert answer.parts["venvs"]["unmatched"] == ["/opt/no*match"]
    assert [answer.venv(index)["state"] for index in (0, 1)] == ["no-interpreter", "missing"]
    assert tree(host.root) == before


def test_the_interpreter_of_a_listed_environment_serves_where_the_host_has_none(host: Host) -> None:
    host.venv("/opt/ml env")
    answer = look(ask(host, venvs=("/opt/ml env",)), pythons=("/nonexistent/python3",))
    assert answer.parts["agent"]["executable"] == str(host.at("/opt/ml env/bin/python"))
    assert answer.venv()["state"] == "ran"
