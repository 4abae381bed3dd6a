"""The catalogue as text: ``docs/rules.md``, and one section a rule. The examples are really judged."""

from __future__ import annotations

from fleetcheck.rules.catalog import FAMILIES, RULES
from fleetcheck.rules.examples import EXAMPLES, RUNS, example
from fleetcheck.rules.rule import Rule

TITLES = {
    "csrc": "csrc: where the CUDA sources come from",
    "venv": "venv: environments and the package in them",
    "fusion": "fusion: all-reduce fusion",
    "toolchain": "toolchain: what FlashInfer compiles with and loads",
    "gpu": "gpu: GPUs and their driver",
    "policy": "policy: expectations and waivers",
    "fleet": "fleet: what only a whole run shows",
}
HEAD = """# Rules

A rule judges what is known of a host. A finding names the rule, says what is wrong with this host's
values, and gives steps that mend it, the reversible ones first. `fleetcheck rules RULE` shows one of the
sections below.

- **Severity**: `info`, `warning`, `error`, `critical`. Findings in environments that are neither listed
  nor serving are `info`.
- **Cause**: a finding that another one on the same host explains is folded under it. A cause is at least
  as grave as what it explains.
- **Selection**: `--select` and `--ignore` take rules, families (the headings below) and globs such as
  `csrc-*`; the inventory's `rules:` sets what findings count as on a group or a host. A rule that is left
  out explains nothing either, so that what it would have explained stands for itself.
- **Waivers**: a finding that a waiver accepts stays visible and does not fail the run; what it explains on
  the same host is accepted with it.
- **Not known is not wrong**: a rule fires on what is known. What was expected and could not be looked at
  is `expectation-unchecked`, never a pass.
"""


def render() -> str:
    """Return ``docs/rules.md``: Markdown, ending in a newline."""
    parts = [HEAD]
    for family in FAMILIES:
        rules = [rule for rule in RULES.values() if rule.family == family]
        rows = [f"| [`{rule.slug}`](#{rule.slug}) | {rule.severity} | {rule.summary} |" for rule in rules]
        parts.append(
            "\n".join([f"## {TITLES[family]}\n", "| rule | severity | fires where |", "|---|---|---|", *rows, ""])
        )
        parts.extend(section(rule) for rule in rules)
    return "\n".join(parts)


def section(rule: Rule) -> str:
    """Return one rule in Markdown: what it says, an example, what mends it, where to read on."""
    lines = [
        f"### {rule.slug}",
        "",
        f"{rule.summary} Severity: {rule.severity}. Family: {rule.family}.",
        "",
        rule.explanation,
        "",
        "**Example**",
        "",
        "```text",
        *sample(rule.slug),
        "```",
        "",
        f"**What mends it.** {rule.remedy}",
        "",
    ]
    if rule.causes:
        names = dict.fromkeys(cause.partition("/")[0] for cause in rule.causes)
        lines += [f"**Explains** {', '.join(f'[`{name}`](#{name})' for name in names)}.", ""]
    lines += ["**References**", "", *map(_reference, rule.references), ""]
    return "\n".join(lines)


def _reference(reference: str) -> str:
    """Return an item for a reference; a page of the documentation lies beside this one."""
    return f"- <{reference}>" if reference.startswith("https://") else f"- [{reference}]({reference[5:]})"


def sample(slug: str) -> list[str]:
    """Return the example of a rule as lines: what was expected, the finding, its steps, and what it explains."""
    expect = expected(slug)
    first, *others = example(slug)
    lines = [f"expect: {{{', '.join(f'{key}: {value}' for key, value in expect.items())}}}"] if expect else []
    place = f" on {first.host}" if slug in RUNS and first.host is not None else ""
    lines.append(f"{first.severity} {first.rule}{place}: {first.message}")
    lines += [f"  {number}. {step}" for number, step in enumerate(first.remedy, 1)]
    lines += [f"  explains {other.rule}: {other.message}" for other in others if other.cause == slug]
    return lines


def expected(slug: str) -> dict[str, object]:
    """Return what is expected of the example host of a rule; nothing of an example run."""
    return EXAMPLES[slug][0] if slug in EXAMPLES else {}
