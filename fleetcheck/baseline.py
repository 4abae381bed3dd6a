"""The expectations that good hosts meet, as an inventory ready to paste: YAML with comments.

In: hosts of a run that were checked, and how they were reached where that is known. Out: what they agree in; where
they do not, a comment with what each has.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Hashable, Iterator, Sequence
from datetime import date
from typing import Any

from fleetcheck.facts.records import Venv
from fleetcheck.folding import fold
from fleetcheck.inventory import dump
from fleetcheck.inventory.model import Target
from fleetcheck.rules import gpu, text, versions
from fleetcheck.rules.catalog import RULES
from fleetcheck.rules.finding import Finding
from fleetcheck.run import HostResult

YAML_WORDS = ("yes", "no", "on", "off", "true", "false", "null", "y", "n")
"""Words that are no text to YAML unless they are quoted."""
Values = dict[str, Hashable]
"""What each host has; None where it is not known."""


def render(
    hosts: Sequence[HostResult],
    *,
    run: str,
    group: str = "baseline",
    warnings: Sequence[str] = (),
    targets: Sequence[Target] | None = None,
    findings: Sequence[Finding] = (),
) -> str:
    """Return an inventory of one group with these hosts and what they meet. ``run`` names where it comes from.

    ``targets`` tell how the hosts were reached; None: the run does not hold that, and the text says so. Those of
    ``findings`` that a waiver accepted are accepted again.
    """
    names = fold(host.name for host in hosts)
    lines = [f"# Expectations that {_comment(names)} met in run {_comment(run)}."]
    lines += [f"# {_comment(warning)}" for warning in warnings]
    lines += _use(known=targets is not None)
    lines += [
        '# Loosen what may change: ">=580.95.05" for a driver, or leave a line out.',
        "groups:",
        f"  {scalar(group)}:",
        f"    hosts: {scalar(names)}",
    ]
    expect = [f"      {line}" for line in _host_lines(hosts)]
    told = any(not line.lstrip().startswith("#") for line in expect)
    lines += ["    expect:" if told else "    # expect: nothing is known of the GPUs", *expect]
    venvs = [f"      {line}" for line in _venv_lines(hosts)]
    lines += ["    venvs:", *venvs]
    chosen = {host.name for host in hosts}
    settings = dump.settings(target for target in targets or () if target.name in chosen)
    waivers = _waivers(chosen, findings)
    lines += ["# How they are reached:"] if settings else []
    return "\n".join(lines) + "\n" + dump.section("hosts", settings) + dump.section("waivers", waivers)


def _use(*, known: bool) -> list[str]:
    """Return what the text is good for; without the settings of reaching it is no whole inventory."""
    if known:
        return ["# Paste expect and venvs under a group or a host of your inventory, or use this file as it is."]
    return [
        "# Paste expect and venvs under a group or a host of your inventory.",
        "# By itself it does for hosts that ssh reaches by their names alone: the run does not hold how they were",
        "# reached (connection, address, port, user, identity_file, proxy_jump, sudo and the like), nor scan and",
        "# rules. Take these over from the inventory of that run.",
    ]


def _waivers(hosts: set[str], findings: Sequence[Finding]) -> list[dict[str, Any]]:
    """Return what was accepted on these hosts, as an inventory takes it. What no waiver could name is left out."""
    accepted: dict[tuple[str, str, str], list[str]] = {}
    for finding in findings:
        if finding.waived is not None and finding.host in hosts and finding.rule in RULES:
            key = (finding.rule, finding.waived.reason, finding.waived.until)
            accepted.setdefault(key, []).append(finding.host)
    return [
        {"rule": rule, "hosts": fold(dict.fromkeys(names)), "reason": reason, "until": day}
        for (rule, reason, until), names in accepted.items()
        if (day := _day(until)) is not None and reason.strip()
    ]


def _day(text: str) -> date | None:
    try:
        return date.fromisoformat(text)
    except ValueError:
        return None


def scalar(value: Hashable) -> str:
    """Return a value as YAML, on one line and inert whatever a host said."""
    plain = isinstance(value, str) and re.fullmatch(r"[A-Za-z/_][A-Za-z0-9/_.-]*", value) is not None
    return str(value) if plain and str(value).lower() not in YAML_WORDS else json.dumps(value)


def _comment(words: str) -> str:
    return json.dumps(" ".join(words.split()))[1:-1].replace('\\"', '"')


def _host_lines(hosts: Sequence[HostResult]) -> Iterator[str]:
    yield from _line("gpus", {one.name: gpu.counted(one.gpus) for one in hosts})
    yield from _line("gpu_name", {one.name: _only(one.gpus.names) for one in hosts})
    capability: Values = {one.name: _only(one.gpus.compute_capability) for one in hosts}
    yield from _line(
        "compute_capability", capability, lambda value: re.fullmatch(r"\d{1,2}\.\d", value) is not None
    )
    yield from _line("driver", {one.name: one.gpus.driver for one in hosts}, _is_version)
    yield from _line("link", {one.name: one.gpus.link for one in hosts})
    own = any(venv.toolchain is not None and venv.toolchain.nvcc for one in hosts for venv in one.venvs)
    if not own:
        kits: Values = {one.name: _only([kit.nvcc for kit in one.toolkits if kit.nvcc]) for one in hosts}
        yield from _line("nvcc", kits, _is_version)


def _venv_lines(hosts: Sequence[HostResult]) -> Iterator[str]:
    """Yield the environments that are listed or serve on every host, each with its expectations."""
    by_path: dict[str, dict[str, Venv]] = {}
    idle: dict[str, None] = {}
    for host in hosts:
        for venv in host.venvs:
            if venv.origin != "usual":
                by_path.setdefault(venv.path, {})[host.name] = venv
            else:
                idle[venv.path] = None
    for path, having in by_path.items():
        bare = sorted(name for name, venv in having.items() if venv.state != "ok" or venv.flashinfer is None)
        if len(having) < len(hosts):
            yield f"# {_comment(path)} is on {_comment(fold(having))} alone"
        elif bare:
            yield f"# {_comment(path)} has no FlashInfer in good order on {_comment(fold(bare))}"
        else:
            yield f"- path: {scalar(path)}"
            yield "  expect:"
            yield from (f"    {line}" for line in _expectations(having))
    for path in idle:
        if path not in by_path:
            yield f"# {_comment(path)} is neither listed nor serving; list it to expect something of it"
    yield "- running  # and whatever serves from another environment"


def _expectations(having: dict[str, Venv]) -> Iterator[str]:
    found = {name: venv.flashinfer for name, venv in having.items() if venv.flashinfer is not None}
    yield from _line("flashinfer", {name: one.version for name, one in found.items()}, _is_version)
    for framework in ("sglang", "vllm"):
        packages: Values = {name: venv.packages.get(framework) for name, venv in having.items()}
        yield from _line(framework, packages, _is_version)
    torch: Values = {name: venv.torch.cuda if venv.torch is not None else None for name, venv in having.items()}
    yield from _line("torch_cuda", torch, _is_version)
    nvcc: Values = {name: venv.toolchain.nvcc if venv.toolchain else None for name, venv in having.items()}
    yield from _line("nvcc", nvcc, _is_version)
    yield from _line("venv_python", {name: venv.python for name, venv in having.items()}, _is_version)
    yield from _line("csrc_dir", {name: one.csrc_dir for name, one in found.items()})
    yield from _line("allreduce_fusion", {name: _fusion(venv) for name, venv in having.items()})
    yield from _files(having)


def _files(having: dict[str, Venv]) -> Iterator[str]:
    """Yield the sums of files that no wheel vouches for, or that differ from what it lists."""
    by_name: dict[str, Values] = {}
    for host, venv in having.items():
        for file in venv.flashinfer.files if venv.flashinfer is not None else ():
            if venv.flashinfer is not None and file.sha256 is not None and file.record != "match":
                by_name.setdefault(text.inside(venv.flashinfer, file.path), {})[host] = file.sha256
    if not by_name:
        return
    lines: list[str] = []
    for name, sums in by_name.items():
        whole: Values = {host: sums.get(host) for host in having}
        lines += _line(scalar(name), whole)
    told = any(not line.startswith("#") for line in lines)
    yield "files:  # no wheel vouches for these" if told else "# files:"
    yield from (f"  {line}" for line in lines)


def _line(key: str, values: Values, fits: Callable[[str], bool] | None = None) -> Iterator[str]:
    """Yield ``key: value`` where all hosts agree, a comment where they do not, nothing where nothing is known."""
    by_value: dict[Hashable, list[str]] = {}
    for host, value in values.items():
        by_value.setdefault(value, []).append(host)
    known = [value for value in by_value if value is not None]
    if not known:
        return
    if len(by_value) > 1:
        told = "; ".join(
            f"{'not known' if value is None else value} on {fold(names)}" for value, names in by_value.items()
        )
        yield f"# {key} differs: {_comment(told)}"
    elif fits is not None and not fits(str(known[0])):
        yield f"# {key}: {_comment(str(known[0]))} is not of a form that can be expected"
    else:
        yield f"{key}: {scalar(known[0])}"


def _only(values: Sequence[str]) -> str | None:
    return values[0] if len(set(values)) == 1 else None


def _is_version(value: str) -> bool:
    return versions.parse(value) is not None


def _fusion(venv: Venv) -> str | None:
    """Return what to expect of all-reduce fusion, None where nobody chose it or it is not known.

    Where the gate bars it, it is off because of the version and the GPUs, which are expected by themselves.
    """
    if venv.fusion is None or venv.fusion.verdict in ("absent", "refused"):
        return None
    return {"on": "required", "on-unvalidated": "required", "off": "forbidden"}.get(venv.fusion.effective)
