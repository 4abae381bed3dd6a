"""The index against ssh-keygen -F: both must find the same keys in any file, however odd its lines are."""

from __future__ import annotations

import base64
import random
import re
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fleetcheck.remote.hostkey_file import hashed_name
from fleetcheck.remote.hostkey_line import matches_one
from fleetcheck.remote.hostkeys import HostKeyIndex

pytestmark = pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="needs ssh-keygen (openssh-client)")

Found = set[tuple[str, str]]
_FOUND = re.compile(r"# Host .* found: line \d+ ?(CA|REVOKED)?")


def ssh_keygen(name: str, file: Path) -> Found:
    """Return marker and fingerprint of each key that ``ssh-keygen -l -F`` finds and can read."""
    command = ["ssh-keygen", "-l", "-F", name, "-f", str(file)]
    answer = subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=False, stdin=subprocess.DEVNULL
    )
    found, marker = set(), ""
    for line in answer.stdout.splitlines():
        header = _FOUND.fullmatch(line)
        if header is not None:
            marker = header[1] or ""
        elif "SHA256:" in line:
            found.add((marker, next(word for word in line.split() if word.startswith("SHA256:"))))
    return found


def ours(index: HostKeyIndex, name: str) -> Found:
    """Return the same from the index. The alias asks for exactly this name, as ``-F`` does."""
    known = index.lookup("ignored", alias=name)
    groups = (("", known.keys), ("REVOKED", known.revoked), ("CA", known.authorities))
    return {(marker, key.fingerprint) for marker, keys in groups for key in keys}


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Real public keys of each type that ssh-keygen makes, as ``type base64``."""
    folder = tmp_path_factory.mktemp("keys")
    made = []
    for kind, bits in (("ed25519", 256), ("ecdsa", 256), ("ecdsa", 521), ("rsa", 2048), ("ed25519", 256)):
        path = folder / f"{len(made)}"
        command = ["ssh-keygen", "-q", "-t", kind, "-b", str(bits), "-N", "", "-f", str(path)]
        subprocess.run(command, check=True, capture_output=True, timeout=60)
        made.append(" ".join(Path(f"{path}.pub").read_text().split()[:2]))
    return made


LABELS = ["gpu1", "gpu2", "gpu17", "gpu1.lab", "GPU1.Lab", "a", "b-2", "192.0.2.1", "192.0.2.17", "2001:db8::1"]
HOSTS = st.sampled_from(LABELS) | st.text("abg.-12", min_size=1, max_size=6)
NAMES = HOSTS | st.builds(lambda host, port: f"[{host}]:{port}", HOSTS, st.sampled_from([22, 2222]))
PATTERNS = (
    NAMES
    | NAMES.map(lambda name: "!" + name)
    | st.text("abgpu1*?.!", min_size=1, max_size=7)
    | st.sampled_from(["*", "gpu*", "*.lab", "gpu?", "[*]:2222", "!gpu1*", "[gpu*]:*", "", "?", "**", "*1*"])
)
BLANKS = st.sampled_from([" ", "\t", "  ", " \t "])


@st.composite
def lines(draw: st.DrawFn) -> str:
    """One line: mostly sound, at times hashed, marked, commented, or broken."""
    key = f"KEY{draw(st.integers(0, 4))}"
    if draw(st.integers(0, 9)) == 0:
        broken = [
            "# comment",
            "",
            "   ",
            "gpu1",
            "gpu1 ssh-ed25519",
            "gpu1 ssh-ed25519 AAAA",
            "@nonsense gpu1 " + key,
        ]
        broken += [
            "gpu1 no-such-type AAAA",
            "|1|x|y " + key,
            "|2|a|b " + key,
            "gpu1 256 35 12345",
            "@revoked",
            key,
        ]
        broken += ["gpu1 ssh-rsa AAAAC3NzaC1lZDI1NTE5AAAAIBWCyho8x", "gpu1 " + key + "====", "\x0c gpu1 " + key]
        return draw(st.sampled_from(broken))
    # ssh-keygen compares a hashed name as it is given, ssh in lower case: only lower case means one thing.
    hosts = (
        hashed_name(draw(NAMES).lower())
        if draw(st.integers(0, 3)) == 0
        else ",".join(draw(st.lists(PATTERNS, min_size=1, max_size=4)))
    )
    marker = draw(st.sampled_from(["", "", "", "", "@revoked", "@cert-authority"]))
    blank, comment = draw(BLANKS), draw(st.sampled_from(["", " comment", "\troot@gpu1 x"]))
    # Behind a marker ssh wants a space: a tab hides the line from it, which the index does not follow.
    return draw(st.sampled_from(["", "", " ", "\t"])) + (marker and marker + " ") + hosts + blank + key + comment


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(lines() | st.just(""), max_size=30),
    st.sampled_from(["\n", "\r\n"]),
    st.lists(NAMES, min_size=4, max_size=12),
)
def test_the_same_keys_are_found(
    tmp_path: Path, keys: list[str], texts: list[str], newline: str, names: list[str]
) -> None:
    file = tmp_path / "known_hosts"
    text = newline.join(texts)
    for number, key in enumerate(keys):
        text = text.replace(f"KEY{number}", key)
    file.write_bytes(text.encode())
    index = HostKeyIndex.load([str(file)])
    for name in {name.lower() for name in names}:
        assert ours(index, name) == ssh_keygen(name, file), name


def test_two_thousand_names_in_one_file(tmp_path: Path, keys: list[str]) -> None:
    chance = random.Random(3)  # the same file each time
    file, names, rows = tmp_path / "known_hosts", [], []
    for number in range(2000):
        host = f"gpu{number:04}.lab"
        name = host if chance.random() < 0.5 else f"[{host}]:2222"
        names.append(name)
        listed = [name, f"192.0.2.{number % 250}"] if chance.random() < 0.5 else [hashed_name(name)]
        marker = chance.choice(["", "", "", "", "", "", "@revoked ", "@cert-authority "])
        rows.append(f"{marker}{','.join(listed)} {chance.choice(keys)}\n")
        if number % 50 == 0:
            rows.append(f"gpu{number // 100:02}*,!*7.lab {chance.choice(keys)}\n")
    file.write_text("".join(rows))
    index = HostKeyIndex.load([str(file)])
    names += ["192.0.2.7", "192.0.2.249", "absent.lab", "[gpu0001.lab]:22"]
    asked = names[::10] + names[-4:]
    with ThreadPoolExecutor(4) as pool:
        theirs = list(pool.map(lambda name: ssh_keygen(name, file), asked))
    assert [ours(index, name) for name in asked] == theirs
    assert sum(map(len, theirs)) > len(
        asked
    )  # wildcard lines beside their own: the comparison is not of empty sets
    assert all(ours(index, name) for name in names if name.startswith(("gpu", "[gpu")) and "]:22" not in name[-4:])


def test_the_fingerprint_is_the_one_that_ssh_keygen_prints(tmp_path: Path, keys: list[str]) -> None:
    file = tmp_path / "known_hosts"
    file.write_text("".join(f"h{number} {key}\n" for number, key in enumerate(keys)))
    index = HostKeyIndex.load([str(file)])
    for number, key in enumerate(keys):
        (known,) = index.lookup(f"h{number}").keys
        assert known.blob == base64.b64decode(key.split()[1])
        assert {("", known.fingerprint)} == ssh_keygen(f"h{number}", file)


@given(st.text("ab.", max_size=8), st.text("ab.*?", max_size=8))
def test_wildcards_mean_what_a_regular_expression_says(name: str, pattern: str) -> None:
    regex = "".join({"*": ".*", "?": "."}.get(char, re.escape(char)) for char in pattern)
    assert matches_one(name, pattern) == (re.fullmatch(regex, name) is not None)


def test_many_stars_do_not_stall() -> None:
    assert not matches_one("a" * 255, "a*" * 200 + "b")
