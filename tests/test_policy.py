"""Waivers, selection, levels of a group, and what only the whole run shows, through the one pipeline."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date
from typing import Any

from test_judge import judged, look, smi

from fleetcheck.agent.evidence import Evidence
from fleetcheck.inventory.model import Expect, Maintenance, Target, Waiver
from fleetcheck.judge import Policy, policy_json
from fleetcheck.policy import resting
from fleetcheck.rules.choice import Choice
from fleetcheck.rules.finding import Finding
from fleetcheck.run import Run, exit_code

EXPECT = Expect(gpus=8, driver=">=580", compute_capability="9.0", gpu_name="NVIDIA H200")
NEVER = date(2999, 1, 1)
LOST = "Unable to determine the device handle for GPU0000:07:00.0: GPU is lost.  Reboot the system to recover it\n"


def lost(name: str) -> Evidence:
    """Return the evidence of a host that lists seven GPUs and names the eighth as lost."""
    said: dict[str, Any] = smi(7)
    said["query"]["call"]["stdout"] = LOST + said["query"]["call"]["stdout"]
    functions = [
        {"bus_id": f"0000:0{number}:00.0", "vendor": "0x10de", "device": "0x2335", "class": "0x030200"}
        for number in range(8)
    ]
    parts = {"agent": {"version": "0"}, "pci": {"functions": functions, "error": None}, "smi": said}
    return Evidence(name, "checked", parts=parts)


def run(looks: Iterable[Evidence], policy: Policy | None = None, **more: Any) -> Run:
    """Judge looks, each of a host of its name that expects eight GPUs; ``more`` goes into each target."""
    pairs = [(Target(name=one.host, expect=EXPECT, **more), one) for one in looks]
    return judged([target for target, _ in pairs], iter(pairs), policy)


def of(run: Run, host: str | None) -> list[Finding]:
    """Return the findings of one host, None: of the fleet."""
    return [finding for finding in run.findings if finding.host == host]


def roots(run: Run, host: str) -> dict[str, set[str]]:
    """Return the roots of a host, each with the rules that it explains."""
    found: dict[str, set[str]] = {finding.rule: set() for finding in of(run, host) if finding.cause is None}
    for finding in of(run, host):
        if finding.cause is not None:
            found[finding.cause].add(finding.rule)
    return found


def test_a_lost_gpu_is_one_root_with_its_consequences() -> None:
    whole = run([lost("gpu01")])
    assert roots(whole, "gpu01") == {"gpu-fault": {"gpu-count"}}, of(whole, "gpu01")


def test_a_waived_root_waives_what_it_explains_on_the_same_host() -> None:
    waiver = Waiver(rule="gpu-fault", hosts="gpu01", reason="board ordered", until=NEVER)
    whole = run([lost("gpu01"), lost("gpu02")], Policy(waivers=(waiver,)))
    assert {finding.rule for finding in of(whole, "gpu01")} == {"gpu-fault", "gpu-count"}
    assert all(finding.waived and finding.waived.reason == "board ordered" for finding in of(whole, "gpu01"))
    assert not any(finding.waived for finding in of(whole, "gpu02"))
    assert [host.verdict for host in whole.hosts] == ["ok", "findings"]


def test_a_waived_consequence_leaves_its_root() -> None:
    waiver = Waiver(rule="gpu-count", hosts="gpu01", reason="known", until=NEVER)
    whole = run([lost("gpu01")], Policy(waivers=(waiver,)))
    assert {finding.rule: finding.waived is not None for finding in of(whole, "gpu01")} == {
        "gpu-fault": False, "gpu-count": True,
    }  # fmt: skip
    assert exit_code(whole) == 1


def test_of_two_waivers_the_longer_one_counts() -> None:
    waivers = tuple(
        Waiver(rule="gpu-count", hosts="gpu01", reason=str(day), until=day) for day in (NEVER, date(2998, 1, 1))
    )
    whole = run([look("gpu01", 7)], Policy(waivers=waivers))
    (finding,) = of(whole, "gpu01")
    assert finding.waived is not None
    assert finding.waived.reason == "2999-01-01"


def test_an_expired_and_an_unused_waiver_are_findings_of_the_fleet() -> None:
    waivers = (
        Waiver(rule="gpu-count", hosts="gpu01", reason="old", until=date(2001, 1, 1)),
        Waiver(rule="smi-hung", hosts="gpu[01-02]", reason="mended", until=NEVER),
    )
    whole = run([look("gpu01", 7), look("gpu02")], Policy(waivers=waivers))
    told = {finding.rule: finding for finding in of(whole, None)}
    assert set(told) == {"waiver-expired", "waiver-unused"}
    assert "still there on gpu01" in told["waiver-expired"].message
    assert told["waiver-unused"].severity == "info"
    assert [host.verdict for host in whole.hosts] == ["findings", "ok"]


def test_of_two_maintenance_entries_the_longer_one_is_named() -> None:
    days = (date(2030, 2, 1), date(2030, 1, 2))
    entries = tuple(Maintenance(hosts="gpu01", reason=f"until {day}", until=day) for day in days)
    rest = resting([Target(name="gpu01", address="192.0.2.1")], Policy(maintenance=entries), date(2030, 1, 1))
    assert "until 2030-02-01" in str(rest["gpu01"].message)
    assert rest["gpu01"].address == "192.0.2.1"


def test_a_rule_that_is_left_out_explains_nothing() -> None:
    whole = run([lost("gpu01")], Policy(choice=Choice(ignore=("gpu-fault",))))
    assert roots(whole, "gpu01") == {"gpu-count": set()}
    assert not of(run([lost("gpu01")], Policy(choice=Choice(select=("csrc",)))), "gpu01")


def test_levels_of_a_group_change_what_findings_count_as() -> None:
    quiet = run([lost("gpu01")], rules={"gpu-fault": "warning", "gpu": "info"})
    assert {finding.rule: finding.severity for finding in of(quiet, "gpu01")} == {
        "gpu-fault": "warning", "gpu-count": "info",
    }  # fmt: skip
    assert exit_code(quiet) == 0
    assert not of(run([lost("gpu01")], rules={"gpu": "ignore"}), "gpu01")
    assert exit_code(run([look("gpu01", 7)], Policy(fail_on="critical"), rules={"gpu-count": "critical"})) == 1


def test_an_outlier_changes_the_verdict_when_the_run_ends() -> None:
    looks = [look(f"gpu{number:02d}") for number in range(1, 10)] + [look("gpu10", 7)]
    chosen = Choice(select=("fleet-outlier",))
    whole = run(looks, Policy(fail_on="warning", choice=chosen))
    assert [finding.message for finding in of(whole, "gpu10")] == [
        "Unlike most hosts: the number of GPUs is 7, not 8."
    ]
    assert [host.verdict for host in whole.hosts] == ["ok"] * 9 + ["findings"]
    assert whole.summary.findings == 1
    waiver = Waiver(rule="fleet-outlier", hosts="gpu10", reason="small", until=NEVER)
    accepted = run(looks, Policy(fail_on="warning", choice=chosen, waivers=(waiver,)))
    assert exit_code(accepted) == 0
    assert not of(accepted, None)


def test_what_a_rule_says_is_no_outlier_too() -> None:
    looks = [look(f"gpu{number:02d}") for number in range(1, 10)] + [look("gpu10", 7)]
    assert [finding.rule for finding in of(run(looks), "gpu10")] == ["gpu-count"]


def test_when_most_hosts_fail_alike_the_run_says_so_first() -> None:
    looks = [look("gpu01", 7)] + [Evidence(f"gpu{number:02d}", "auth-failed", "auth") for number in range(2, 8)]
    whole = run(looks)
    assert whole.findings[0].rule == "fleet-suspicious"
    assert whole.findings[0].host is None
    assert "6 of 7 hosts" in whole.findings[0].message


def test_a_policy_of_an_older_recording_is_read() -> None:
    assert policy_json.validate_python({"fail_on": "error", "waivers": [], "maintenance": []}) == Policy()
    chosen = Policy(choice=Choice(("csrc",), ("csrc-decoy",)))
    assert policy_json.validate_python(policy_json.dump_python(chosen, mode="json")) == chosen
