"""Every rule, by slug."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from fleetcheck.rules import (
    caches,
    companions,
    csrc,
    decoy,
    driver,
    fleet,
    frameworks,
    fusion,
    gpu,
    gpu_health,
    gpu_link,
    gpu_lost,
    gpu_setup,
    hardcoded,
    imports,
    package,
    policy,
    serving,
    shadows,
    toolchain,
    unreadable,
    unseen,
    venv,
    waivers,
)
from fleetcheck.rules.rule import Rule

FAMILIES = ("csrc", "venv", "fusion", "toolchain", "gpu", "policy", "fleet")
_ALL = (
    *csrc.RULES,
    *decoy.RULES,
    *unreadable.RULES,
    *shadows.RULES,
    *caches.RULES,
    *hardcoded.RULES,
    *serving.RULES,
    *unseen.RULES,
    *toolchain.RULES,
    *venv.RULES,
    *package.RULES,
    *imports.RULES,
    *companions.RULES,
    *fusion.RULES,
    *frameworks.RULES,
    *gpu.RULES,
    *gpu_lost.RULES,
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
