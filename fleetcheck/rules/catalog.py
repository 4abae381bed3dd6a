"""Every rule, by slug."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from fleetcheck.rules import (
    csrc,
    driver,
    fleet,
    fusion,
    gpu,
    gpu_health,
    gpu_link,
    gpu_setup,
    package,
    policy,
    venv,
    waivers,
)
from fleetcheck.rules.rule import Rule

FAMILIES = ("csrc", "venv", "fusion", "gpu", "policy", "fleet")
_ALL = (
    *csrc.RULES,
    *venv.RULES,
    *package.RULES,
    *fusion.RULES,
    *gpu.RULES,
    *driver.RULES,
    *gpu_health.RULES,
    *gpu_link.RULES,
    *gpu_setup.RULES,
    *policy.RULES,
    *waivers.RULES,
    *fleet.RULES,
)
RULES: Mapping[str, Rule] = MappingProxyType(
    {rule.slug: rule for rule in sorted(_ALL, key=lambda rule: rule.slug)}
)
