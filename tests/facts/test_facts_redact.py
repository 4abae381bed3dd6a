"""No secret that a host printed is shown: not in an error, not in a path, not in an address."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetcheck.facts import shape
from fleetcheck.facts.processes import named_csrc, processes
from fleetcheck.facts.redact import hidden, redacted
from fleetcheck.facts.venv import HostView, venv

GIVEN = "ghp_0123456789abcdefXYZ"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (f"+ export HF_TOKEN={GIVEN}", "+ export HF_TOKEN=***"),
        ("+ API_KEY='a b c' run", "+ API_KEY=*** run"),
        ('DB_PASSWORD="x', "DB_PASSWORD=***"),
        ("my_secret = hunter2; next", "my_secret = ***; next"),
        ('{"aws_credentials": "abc", "n": 1}', '{"aws_credentials": ***, "n": 1}'),
        ("serve --api-key hunter2 --tp 8", "serve --api-key *** --tp 8"),
        ("Authorization: Bearer abcdef.ghi-jk", "Authorization: Bearer ***"),
        ("fetch https://user:p@ss@git.corp/fi.git", "fetch https://git.corp/fi.git"),
        (f"git clone https://{GIVEN}@github.com/x", "git clone https://github.com/x"),
        (f"cat /opt/{GIVEN}/x", "cat /opt/***/x"),
    ],
)
def test_secrets(text: str, wanted: str) -> None:
    assert redacted(text) == wanted


@pytest.mark.parametrize(
    "text",
    [
        "KeyError: 'CUDA_HOME'",
        "bin/activate: line 3: /opt/keys: No such file or directory",
        "ssh://gateway/path",
        "RuntimeError: flashinfer-cubin version (0.6.13) does not match",
        "--tokenizer-path /srv/model",
        "",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert redacted(text) == text


def test_every_line_of_a_host_is_redacted_before_it_is_cut() -> None:
    assert shape.line(f"x\nHF_TOKEN={GIVEN}\ny") == "x HF_TOKEN=*** y"
    assert GIVEN[:8] not in (shape.line("x" * 280 + f" HF_TOKEN={GIVEN}") or "")


def test_an_activation_that_traces_and_fails() -> None:
    part = {
        "state": "ran",
        "activation": {"status": "failed", "stderr": f"+ export HF_TOKEN={GIVEN}\n+ false\n"},
        "packages": {"flashinfer": {"spec": "none"}},
    }
    found = venv({}, part, HostView({}, (), ()))
    assert found.activation_error == "failed: + export HF_TOKEN=*** + false"


def test_what_a_process_was_started_with() -> None:
    env = {
        "FLASHINFER_X": GIVEN,
        "FLASHINFER_TOKEN": "hunter2",
        "PYTHONPATH": f"/x/{GIVEN}:/y",
        "PATH": "/bin",
    }
    (found,) = processes({"items": [{"pid": 7, "env": env, "flags": {"--tp": "8"}}], "views": []})
    assert found.environment == {
        "FLASHINFER_X": "***", "FLASHINFER_TOKEN": "***", "PYTHONPATH": "/x/***:/y", "PATH": "/bin",
    }  # fmt: skip
    assert found.flags == {"--tp": "8"}


def test_an_address_is_no_path_of_the_host() -> None:
    names = [
        f"//{GIVEN}@raw.githubusercontent.com/flashinfer-ai/flashinfer/main/csrc",
        "//raw.githubusercontent.com/flashinfer-ai/flashinfer/main/csrc",
        "https://x.corp/flashinfer/csrc",
        f"/opt/{GIVEN}/flashinfer/csrc",
        "//opt/ml/flashinfer/csrc",
    ]
    part = {"named": [{"file": "/x.sh", "line": 1, "kind": "scan", "path": one} for one in names]}
    assert [one.path for one in named_csrc(part)] == ["/opt/***/flashinfer/csrc", "//opt/ml/flashinfer/csrc"]


WORDS = st.sampled_from([
    "token", "Key", "SECRET", "passwd", "password", "credential", "bearer ", "Basic ", "://", "@", "=", ": ",
    '"', "'", "ghp_", "github_pat_", "glpat-", "hf_", "sk-", "xoxb-", "AKIA", "ABCDEF0123456789", "--", " ", "-",
    "iz", "\u017f", "\u212a",
])  # fmt: skip


@given(st.lists(WORDS | st.text(max_size=3), max_size=12).map("".join))
def test_the_first_look_misses_nothing_that_would_be_hidden(text: str) -> None:
    assert redacted(text) == hidden(text)
