"""Every rule, by slug."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from fleetcheck.rules import csrc, driver, fusion, gpu, package, policy, venv
from fleetcheck.rules.rule import Rule

FAMILIES = ("csrc", "venv", "fusion", "gpu", "policy")
_ALL = (
    *csrc.RULES,
    *venv.RULES,
    *package.RULES,
    *fusion.RULES,
    *gpu.RULES,
    *driver.RULES,
    *policy.RULES,
)
RULES: Mapping[str, Rule] = MappingProxyType(
    {rule.slug: rule for rule in sorted(_ALL, key=lambda rule: rule.slug)}
)
