"""What a step of a remedy is taken for: over every step of every rule's example, and texts of another make."""

from __future__ import annotations

import re
import shlex

import pytest

from fleetcheck.report.steps import Step, doctor, key_command, step
from fleetcheck.rules.catalog import RULES
from fleetcheck.rules.examples import example

STEPS = sorted({text for slug in RULES for finding in example(slug) for text in finding.remedy})
PROGRAMS = {
    "cat", "command", "cp", "diff", "find", "fleetcheck", "grep", "id", "ldconfig", "ls", "lsmod", "lspci", "mv",
    "namei", "nvidia-smi", "printenv", "ps", "readlink", "sed", "sh", "ssh", "sudo", "tr", "uname", "uptime",
    "dkms",
}  # fmt: skip


@pytest.mark.parametrize("text", STEPS)
class TestRules:
    def test_a_command_is_one_that_a_shell_takes(self, text: str) -> None:
        for command in step(text).commands:
            first = next(word for word in shlex.split(command) if not re.match("[A-Z_]+=", word))
            assert first in PROGRAMS or first.startswith("/") or (first == "rules:" and "inventory" in text)
            assert not command.endswith((".", ":")) and "  #" not in command

    def test_a_sentence_is_one(self, text: str) -> None:
        parts = step(text)
        assert parts.commands or (parts.lead[0].isupper() and parts.lead[-1] in ".:)")
        assert not parts.lead or parts.lead[0].isupper()
        assert not (set(parts.lead.replace(".", "").split()) & {"sudo", "nvidia-smi", "pip", "cp", "mv"})

    def test_nothing_is_lost(self, text: str) -> None:
        parts = step(text)
        told = " ".join(filter(None, (parts.lead, "; ".join(parts.commands), parts.note and f" # {parts.note}")))
        assert text in (told, f"{told} ({parts.mark})")

    def test_what_interrupts_is_marked(self, text: str) -> None:
        said = any(
            word in text for word in ("ends everything", "stops what runs", "(restarts serving)", "slices\n")
        )
        assert bool(step(text).mark) >= said


class TestStep:
    def test_its_parts(self) -> None:
        assert step("cp -p a b  # keeps the edit") == Step("", ("cp -p a b",), "keeps the edit", "")
        assert step("Or: /v/bin/python -m pip freeze > ~/x") == Step(
            "Or:", ("/v/bin/python -m pip freeze > ~/x",), "", ""
        )
        assert step("ls -l /dev/nvidia*; id").commands == ("ls -l /dev/nvidia*", "id")
        assert step("Restart it; it keeps what it loaded. (restarts serving)") == Step(
            "Restart it; it keeps what it loaded.", (), "", "restarts serving"
        )

    @pytest.mark.parametrize(
        "command",
        [
            "mv '/x  # y; z' '/x.old'", "sh -c '. \"$1\"; command -v python3' sh a", 'echo "a; b"  c',
            r"find . -exec ls {} \;", "cat 'open", "FLASHINFER_CUDA_ARCH_LIST=12.0f serve",
        ],
    )  # fmt: skip
    def test_what_is_quoted_is_not_taken_apart(self, command: str) -> None:
        assert step(command).commands == (command,)

    @pytest.mark.parametrize(
        "text", ["", " ", "…", "A" * 4000, "'" * 4000, "; " * 2000, "Or: ", "A: b: c", "#", "\\"]
    )
    def test_a_text_of_another_make_is_shown_whole(self, text: str) -> None:
        parts = step(text)
        assert "".join((parts.lead, *parts.commands, parts.note)).replace(" ", "").replace(
            ";", ""
        ) == text.replace(" ", "").replace(";", "") or parts.commands == (text,)

    @pytest.mark.parametrize(
        ("text", "mark"),
        [
            ("sudo systemctl reboot", "reboots the host"),
            ("sudo nvidia-smi --gpu-reset", "stops what runs on the GPU"),
            ("sudo nvidia-smi -i 0 -mig 0", "ends MIG slices"),
            ("sudo systemctl restart sglang", "restarts serving"),
            ("Install a newer driver, after draining the host.", "drain the host first"),
            ("ps -eo pid  # only a reboot frees them", ""), ("sudo systemctl daemon-reload", ""),
        ],
    )  # fmt: skip
    def test_what_it_interrupts(self, text: str, mark: str) -> None:
        assert step(text).mark == mark


class TestNext:
    def test_the_doctor_is_asked_for_this_host_and_inventory(self) -> None:
        assert doctor("gpu1", "my fleet.yaml") == "fleetcheck doctor gpu1 -i 'my fleet.yaml'"
        assert doctor("-x; y", "north.yaml, south.yaml") == "fleetcheck doctor '-x; y' -i INVENTORY"

    def test_the_command_of_a_message_on_keys_stands_apart(self) -> None:
        message = (
            "gpu1 shows another key; if the new key is right: ssh-keygen -R gpu1 -f k && ssh-keyscan gpu1 >> k"
        )
        assert key_command(message) == (
            "gpu1 shows another key; if the new key is right:", "ssh-keygen -R gpu1 -f k && ssh-keyscan gpu1 >> k",
        )  # fmt: skip
        assert key_command("compare it, then record it: ssh gw 'ssh-keyscan gpu1' >> k")[1].startswith("ssh gw ")
        assert key_command("connected, but no banner came") == ("connected, but no banner came", "")
