"""Prometheus text for node_exporter's textfile collector: gauges alone, since the run is over when they are read.

The file outlives a run: the time of the last success is carried over from what it held before. No timestamps: the
collector refuses them. Label values are bounded in length, and series in number by hosts and environments.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from fleetcheck.agent.evidence import OUTCOMES
from fleetcheck.report.text import clean
from fleetcheck.rules.finding import SEVERITIES
from fleetcheck.run import HostResult, Run, exit_code

SUCCESS = "fleetcheck_last_success_timestamp_seconds"
VENVS = 32
"""How many environments of one host get a series."""
_LABEL = 200


def render(run: Run, earlier: str = "") -> str:
    """Return the metrics. ``earlier`` is what the file held before; what is not metrics is ignored."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Metrics(run, _last_success(run, earlier)))
    return generate_latest(registry).decode("utf-8")


class _Metrics(Collector):
    def __init__(self, run: Run, success: float | None) -> None:
        self._run, self._success = run, success

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterator[Metric]:
        names = unique(clean(host.name, _LABEL) for host in self._run.hosts)
        labelled = list(zip(names, self._run.hosts, strict=True))
        yield from _whole(self._run, self._success)
        yield from _outcomes(labelled)
        yield from _findings(labelled, self._run)
        yield from _infos(labelled)


_Labelled = list[tuple[str, HostResult]]


def unique(labels: Iterable[str]) -> list[str]:
    """Return the labels, each once: numbered where it came before: a series that comes twice spoils a file."""
    used: set[str] = set()
    told: dict[str, int] = {}
    distinct = []
    for label in labels:
        chosen = label
        while chosen in used:
            told[label] = told.get(label, 1) + 1
            chosen = f"{label}#{told[label]}"
        used.add(chosen)
        distinct.append(chosen)
    return distinct


def _whole(run: Run, success: float | None) -> Iterator[Metric]:
    started, ended = _time(run.run.started), _time(run.run.finished)
    said = (
        ("fleetcheck_last_run_timestamp_seconds", "When the last run ended.", ended or started),
        (SUCCESS, "When a run last ended that checked every host which is not under maintenance.", success),
        (
            "fleetcheck_run_duration_seconds",
            "How long the last run took.",
            None if started is None or ended is None else round(ended - started, 3),
        ),
        ("fleetcheck_run_complete", "1 where the last run was not interrupted.", float(run.run.complete)),
    )
    for name, text, number in said:
        metric = GaugeMetricFamily(name, text)
        if number is not None:
            metric.add_metric((), number)
            yield metric
    version = GaugeMetricFamily(
        "fleetcheck_build_info", "The version that made the last run.", labels=("version",)
    )
    version.add_metric((clean(run.run.version, _LABEL),), 1)
    yield version
    totals = GaugeMetricFamily("fleetcheck_hosts", "Selected hosts by outcome.", labels=("outcome",))
    for outcome in OUTCOMES:
        totals.add_metric((outcome,), run.summary.by_outcome.get(outcome, 0))
    yield totals


def _outcomes(hosts: _Labelled) -> Iterator[Metric]:
    states = GaugeMetricFamily(
        "fleetcheck_host_outcome",
        "1 for the outcome in which the look at a host ended.",
        labels=("host", "outcome"),
    )
    fine = GaugeMetricFamily(
        "fleetcheck_host_ok",
        "1 where a host was checked and nothing fails it. A host left alone for maintenance has none.",
        labels=("host",),
    )
    for name, host in hosts:
        for outcome in OUTCOMES:
            states.add_metric((name, outcome), float(host.outcome == outcome))
        if host.outcome != "skipped":
            fine.add_metric((name,), float(host.verdict == "ok"))
    yield states
    yield fine


def _findings(hosts: _Labelled, run: Run) -> Iterator[Metric]:
    live = [finding for finding in run.findings if not finding.waived]
    counts = Counter((finding.host, finding.severity) for finding in live)
    each = GaugeMetricFamily(
        "fleetcheck_host_findings",
        "Findings of a host that no waiver accepts. A host of which nothing was learnt has none.",
        labels=("host", "severity"),
    )
    for name, host in hosts:
        if host.outcome == "checked" or any(counts[host.name, severity] for severity in SEVERITIES):
            for severity in SEVERITIES:
                each.add_metric((name, severity), counts[host.name, severity])
    yield each
    rules = GaugeMetricFamily(
        "fleetcheck_findings", "Findings by rule that no waiver accepts.", labels=("rule", "severity")
    )
    by_rule = Counter((clean(finding.rule, 60), finding.severity) for finding in live)
    for (rule, severity), count in sorted(by_rule.items()):
        rules.add_metric((rule, severity), count)
    yield rules
    accepted = GaugeMetricFamily("fleetcheck_findings_waived", "Findings that a waiver accepts.")
    accepted.add_metric((), len(run.findings) - len(live))
    yield accepted


def _infos(hosts: _Labelled) -> Iterator[Metric]:
    counted = GaugeMetricFamily("fleetcheck_host_gpus", "GPUs of a host.", labels=("host",))
    info = GaugeMetricFamily(
        "fleetcheck_host_info",
        "What a host is.",
        labels=("host", "gpu_state", "gpu_name", "compute_capability", "driver"),
    )
    venvs = GaugeMetricFamily(
        "fleetcheck_venv_info",
        f"What an environment holds; at most {VENVS} of a host.",
        labels=("host", "venv", "state", "flashinfer", "csrc_dir", "csrc_state", "fusion"),
    )
    for name, host in hosts:
        gpus = host.gpus
        if gpus.count is not None:
            counted.add_metric((name,), gpus.count)
        if host.outcome == "checked":
            kinds = ",".join(gpus.compute_capability[:8])
            labels = (gpus.state, gpus.names[0] if gpus.names else None, kinds, gpus.driver)
            info.add_metric((name, *map(_label, labels)), 1)
        known = host.venvs[:VENVS]
        for path, venv in zip(unique(_label(venv.path) for venv in known), known, strict=True):
            flash, fusion = venv.flashinfer, venv.fusion
            said = (
                venv.state, flash.version if flash else "", flash.csrc_dir if flash else "",
                flash.csrc_state if flash else "", fusion.effective if fusion else "",
            )  # fmt: skip
            venvs.add_metric((name, path, *map(_label, said)), 1)
    yield counted
    yield info
    yield venvs


def _label(text: str | None) -> str:
    return clean(text or "", _LABEL)


def _time(text: str | None) -> float | None:
    """Return seconds since the epoch; None for no time, or what is none."""
    try:
        return datetime.fromisoformat(text).timestamp() if text else None
    except ValueError:
        return None


def _last_success(run: Run, earlier: str) -> float | None:
    """Return when every host was last checked: now, or what the file says already."""
    if exit_code(run) in (0, 1) and run.hosts:
        return _time(run.run.finished)
    try:
        for family in text_string_to_metric_families(earlier):
            for sample in family.samples:
                if sample.name == SUCCESS and 0 < sample.value < 1e12:
                    return float(sample.value)
    except ValueError:  # a file of someone else, or cut
        return None
    return None
