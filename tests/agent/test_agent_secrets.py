"""No secret leaves the host: not by what an activation prints, not by an address in metadata or in a script."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from agent_host import Host, look

from fleetcheck.agent.evidence import Request
from fleetcheck.agent.program.commands import flags_of
from fleetcheck.agent.program.startup import csrc_paths, learn, without_comment
from fleetcheck.agent.program.values import Root, without_secrets
from fleetcheck.facts.redact import redacted

GIVEN = "ghp_0123456789abcdefXYZ"
SITE = "/opt/v/lib/python3.11/site-packages"


@pytest.mark.parametrize(
    "text",
    [
        f"+ export HF_TOKEN={GIVEN}", "+ API_KEY='a b c' run", 'DB_PASSWORD="x', "my_secret = hunter2; next",
        '{"aws_credentials": "abc", "n": 1}', "serve --api-key hunter2 --tp 8",
        "Authorization: Bearer abcdef.ghi-jk", "fetch https://user:p@ss@git.corp/fi.git", f"cat /opt/{GIVEN}/x",
        "KeyError: 'CUDA_HOME'", "bin/activate: line 3: /opt/keys: No such file", "ssh://gateway/path", "",
        "--tokenizer-path /srv/model",
    ],
)  # fmt: skip
def test_both_sides_take_out_the_same(text: str) -> None:
    assert without_secrets(text) == redacted(text)


def test_nothing_of_them_is_in_the_answer(tmp_path: Path) -> None:
    host = Host(tmp_path / "root")
    host.venv("/opt/ml")
    site = next(host.at("/opt/ml/lib").glob("python3*/site-packages"))
    info = site / "flashinfer_python-0.6.2.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text("Name: flashinfer-python\nVersion: 0.6.2\n")
    (info / "direct_url.json").write_text(
        json.dumps({"url": f"https://u:{GIVEN}@git.corp/fi.git", "vcs_info": {}})
    )
    activate = host.at("/opt/ml/bin/activate")
    activate.write_text(activate.read_text() + f"\nset -x\nexport HF_TOKEN={GIVEN}\nset +x\nfalse\n")
    activate.write_text(activate.read_text() + f"export FLASHINFER_TOKEN=hunter22 PYTHONPATH=/x/{GIVEN}\nfalse\n")
    host.write("/d/y.sh", f"ls /opt/{GIVEN}/flashinfer/csrc\n")
    host.write(
        "/d/x.sh", f"curl https://{GIVEN}@raw.githubusercontent.com/flashinfer-ai/flashinfer/main/csrc/x.cu\n"
    )
    answer = look(Request(sysroot=str(host.root), venvs=("/opt/ml",), scan=("/d",)))
    assert answer.parts["venv/0"]["activation"]["status"] == "failed"
    assert "HF_TOKEN=***" in answer.parts["venv/0"]["activation"]["stderr"]
    assert "https://git.corp/fi.git" in repr(answer.parts["venv/0"])
    assert [one["path"] for one in answer.parts["scan"]["named"]] == ["/opt/***/flashinfer/csrc"]
    assert "hunter22" not in repr(answer.parts)
    assert GIVEN not in repr(answer.parts)


SIGNED = "X-Amz-Signature=SIGNED1&sig=SIGNED2&t=SIGNED3"


@pytest.mark.parametrize(
    "end", ["?" + SIGNED, "#sha256=SIGNED1", f"?{SIGNED}#egg=flashinfer&subdirectory=SIGNED2"]
)
def test_what_a_signed_address_holds_stays_on_the_host(tmp_path: Path, end: str) -> None:
    host = Host(tmp_path / "root")
    site = host.venv("/opt/ml")
    info = site / "flashinfer_python-0.6.2.dist-info"
    url = f"https://files.corp/flashinfer_python-0.6.2.whl{end}"
    (info / "direct_url.json").write_text(json.dumps({"url": url, "subdirectory": "python", "archive_info": {}}))
    (info / "METADATA").write_text(
        f"Name: flashinfer-python\nVersion: 0.6.2\nRequires-Dist: flashinfer-cubin @ {url} ; extra == 'x'\n"
    )
    activate = host.at("/opt/ml/bin/activate")
    activate.write_text(activate.read_text() + f"echo 'fetching {url} now'; echo \"see '{url}'\" >&2\n")
    part = look(Request(sysroot=str(host.root), venvs=("/opt/ml",))).parts["venv/0"]
    assert "SIGNED" not in repr(part)
    (dist,) = part["packages"]["flashinfer"]["dists"]
    kept = "https://files.corp/flashinfer_python-0.6.2.whl"
    assert json.loads(dist["direct_url"]["text"]) == {"url": kept, "subdirectory": "python", "archive_info": {}}
    assert dist["requires"] == [f"flashinfer-cubin @ {kept} ; extra == 'x'"]
    assert part["activation"]["stderr"] == f"fetching {kept} now\nsee '{kept}'\n"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (f"SITE={SITE}\nsed $SITE/flashinfer/csrc/t.cu", f"{SITE}/flashinfer/csrc"),
        ('sed "${SITE}/flashinfer/csrc/t.cu"', "$SITE/flashinfer/csrc"),
        ('ls "$SITE"/flashinfer/csrc', "$SITE/flashinfer/csrc"),
        ("cd $(python -c x)/flashinfer/csrc", "$(...)/flashinfer/csrc"),
        ("ENV S=/a\nRUN ls ${S}/flashinfer/csrc", "/a/flashinfer/csrc"),
        ('ls "/opt/my venv/lib/site-packages/flashinfer/csrc"', "/opt/my venv/lib/site-packages/flashinfer/csrc"),
        (f"export X={SITE}/flashinfer/csrc\r", f"{SITE}/flashinfer/csrc"),
        (f"# never edit {SITE}/flashinfer/csrc", None),
        ("ls /a/b # see /x/flashinfer/csrc", None),
        ("wget https://raw.githubusercontent.com/flashinfer-ai/flashinfer/main/csrc/x.cu", None),
        ('sh -c "/bin/cp a.cu x/flashinfer/csrc"', None),
    ],
)
def test_what_a_line_names(text: str, wanted: str | None) -> None:
    known: dict[str, str] = {}
    found: list[str] = []
    for raw in text.split("\n"):
        line = without_comment(raw)
        found += csrc_paths(line, known)
        learn(line, known)
    assert found == ([] if wanted is None else [wanted])


def test_a_start_script_in_a_folder_bin_and_the_units_of_a_user(tmp_path: Path) -> None:
    from fleetcheck.agent.program.startup import Startup

    host = Host(tmp_path / "root")
    line = f"sed -i s/a/b/ {SITE}/flashinfer/csrc/x.cu\n"
    host.write("/etc/systemd/system/a.service", "[Service]\nExecStart=/opt/serve/bin/start.sh\n")
    host.write("/opt/serve/bin/start.sh", "#!/bin/sh\n" + line)
    host.write("/home/u/.config/systemd/user/b.service", "[Service]\nExecStart=/home/u/go.sh\n")
    host.write("/home/u/go.sh", "#!/bin/sh\n" + line)
    found = Startup(Root(str(host.root)))
    found.unit("a.service")
    found.unit("b.service", "/home/u")
    assert [one["file"] for one in found.named] == ["/opt/serve/bin/start.sh", "/home/u/go.sh"]


def test_how_many_more_is_told(tmp_path: Path) -> None:
    from fleetcheck.agent.program.startup import PathScan

    host = Host(tmp_path / "root")
    for number in range(60):
        host.write(f"/many/{number:03}", f"{SITE}/flashinfer/csrc\n")
    told = PathScan(Root(str(host.root)), ["/many"]).run()
    assert (len(told["named"]), told["errors"]) == (50, ["10 more lines name such a path, after the first 50"])


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["--config", "/etc/secret.yaml"], {"--config": ""}),
        (["--config=/etc/secret.yaml"], {"--config": ""}),
        (["--tensor-parallel", "8"], {"--tensor-parallel": "8"}),
        (["--tensor-parallel=8"], {"--tensor-parallel": "8"}),
        (["--enable-flashinfer-allreduce"], {"--enable-flashinfer-allreduce": ""}),
        (["--model", "x", "--api-key", "hunter2"], {}),
    ],
)
def test_abbreviations_and_files_of_arguments(words: list[str], wanted: dict[str, str]) -> None:
    assert flags_of(["python3", "-m", "sglang.launch_server", *words]) == wanted
