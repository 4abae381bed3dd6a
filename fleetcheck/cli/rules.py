"""``fleetcheck rules``: the catalogue, or one rule explained."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from fleetcheck.cli.completion import complete_rules

READABLE = 100
"""Columns at which text breaks on a wider terminal."""

if TYPE_CHECKING:
    from fleetcheck.rules.rule import Rule


@click.command(name="rules")
@click.argument("rule", required=False, shell_complete=complete_rules)
@click.option(
    "--format", "form", type=click.Choice(("table", "json")), default="table", show_default=True,
    help="How to show it.",
)  # fmt: skip
def command(rule: str | None, form: str) -> None:
    """List the rules, or explain one: what it says, an example, what mends it, where to read on.

    RULE is a rule, which is explained; or a family such as csrc, or a glob such as gpu-*, which is listed.
    """
    from fleetcheck.cli.output import emit, table_width
    from fleetcheck.rules.catalog import RULES

    one = RULES.get(rule or "")
    some = list(RULES.values()) if rule is None else matching(rule)
    if form == "json":
        import json

        chosen: Any = document(one) if one is not None else [document(rule) for rule in some]
        emit(json.dumps(chosen, indent=2, ensure_ascii=False) + "\n")
    elif one is not None:
        emit(explained(one, table_width() or READABLE))
    else:
        emit(listed(some, table_width() or READABLE))


def matching(pattern: str) -> list[Rule]:
    """Return the rules that a name, a family or a glob means, as ``--select`` takes them. Raises InputError."""
    from fleetcheck.errors import InputError, Problem
    from fleetcheck.rules.catalog import RULES
    from fleetcheck.rules.choice import named, unknown

    names = named(pattern)
    if not names:
        raise InputError([Problem("rules", None, unknown(pattern))])
    return [rule for slug, rule in RULES.items() if slug in names]


def document(rule: Rule) -> dict[str, Any]:
    """Return a rule as JSON values."""
    from fleetcheck.rules.examples import example
    from fleetcheck.rules.pages import expected

    return {
        "rule": rule.slug,
        "family": rule.family,
        "severity": rule.severity,
        "summary": rule.summary,
        "explanation": rule.explanation,
        "remedy": rule.remedy,
        "references": list(rule.references),
        "causes": list(rule.causes),
        "example": {"expect": expected(rule.slug), "finding": example(rule.slug)[0].model_dump(mode="json")},
    }


def listed(rules: list[Rule], width: int) -> str:
    """Return rules under their families, each with its severity and where it fires, in ``width`` columns."""
    from textwrap import wrap

    from fleetcheck.rules.catalog import FAMILIES
    from fleetcheck.rules.pages import TITLES

    room = max(len(rule.slug) for rule in rules)
    blocks = []
    for family in FAMILIES:
        lines = [TITLES[family]]
        for rule in rules:
            if rule.family == family:
                lead = f"  {rule.slug:<{room}}  {rule.severity:<8}  "
                last = max(40, min(width, READABLE) - len(lead))
                first, *others = wrap(rule.summary, last, break_on_hyphens=False, break_long_words=False)
                lines += [lead + first, *(" " * len(lead) + line for line in others)]
        blocks += ["\n".join(lines)] if len(lines) > 1 else []
    more = "`fleetcheck rules RULE` explains one; `fleetcheck rules csrc` lists a family, `'gpu-*'` what matches."
    return "\n\n".join([*blocks, wrapped(more, min(width, READABLE))]) + "\n"


def explained(rule: Rule, width: int) -> str:
    """Return one rule as text: paragraphs wrapped to ``width`` columns, commands left whole."""
    from fleetcheck.rules.pages import sample

    width = min(width, READABLE)

    parts = [
        f"{rule.slug} ({rule.severity}, {rule.family})",
        wrapped(rule.summary, width),
        wrapped(rule.explanation, width),
        "\n".join(["Example:", *(f"  {line}" for line in sample(rule.slug))]),
        wrapped(f"What mends it: {rule.remedy}", width),
    ]
    if rule.causes:
        names = dict.fromkeys(cause.partition("/")[0] for cause in rule.causes)
        parts.append(wrapped(f"Explains: {', '.join(names)}", width))
    told = (
        one if one.startswith("https://") else f"{one} (in the source distribution)" for one in rule.references
    )
    parts.append("\n".join(["References:", *(f"  {one}" for one in told)]))
    return "\n\n".join(parts) + "\n"


def wrapped(paragraph: str, width: int = READABLE) -> str:
    """Return a paragraph in lines of at most ``width`` columns, names left whole."""
    from textwrap import fill

    return fill(paragraph, width, break_on_hyphens=False, break_long_words=False)
