"""``fleetcheck rules``: the catalogue, or one rule explained."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from fleetcheck.cli.completion import complete_rules

if TYPE_CHECKING:
    from fleetcheck.rules.rule import Rule


@click.command(name="rules")
@click.argument("rule", required=False, shell_complete=complete_rules)
@click.option(
    "--format", "form", type=click.Choice(("table", "json")), default="table", show_default=True,
    help="How to show it.",
)  # fmt: skip
def command(rule: str | None, form: str) -> None:
    """List the rules, or explain one: what it says, an example, what mends it, where to read on."""
    from fleetcheck.cli.output import emit
    from fleetcheck.rules.catalog import RULES

    if rule is not None and rule not in RULES:
        raise unknown(rule, list(RULES))
    if form == "json":
        import json

        chosen: Any = document(RULES[rule]) if rule is not None else [document(one) for one in RULES.values()]
        emit(json.dumps(chosen, indent=2, ensure_ascii=False) + "\n")
    elif rule is not None:
        emit(explained(RULES[rule]))
    else:
        emit(listed(list(RULES.values())))


def unknown(rule: str, known: list[str]) -> Exception:
    """Return the error for a rule that is not in the catalogue, with the nearest names."""
    from difflib import get_close_matches

    from fleetcheck.errors import InputError, Problem

    nearest = get_close_matches(rule, known, n=3, cutoff=0.5)
    hint = f"; did you mean {', '.join(nearest)}?" if nearest else "; `fleetcheck rules` lists all"
    return InputError([Problem("rules", None, f"there is no rule {rule!r}{hint}")])


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


def listed(rules: list[Rule]) -> str:
    """Return the catalogue as a table, by family."""
    from tabulate import tabulate

    from fleetcheck.rules.catalog import FAMILIES

    rows = [
        (rule.slug, rule.severity, rule.summary) for family in FAMILIES for rule in rules if rule.family == family
    ]
    table = tabulate(rows, headers=("RULE", "SEVERITY", "FIRES WHERE"), tablefmt="plain")
    return f"{table}\n\n`fleetcheck rules RULE` explains one.\n"


def explained(rule: Rule) -> str:
    """Return one rule as text: paragraphs wrapped, commands left whole."""
    from fleetcheck.rules.pages import sample

    parts = [
        f"{rule.slug} ({rule.severity}, {rule.family})",
        wrapped(rule.summary),
        wrapped(rule.explanation),
        "\n".join(["Example:", *(f"  {line}" for line in sample(rule.slug))]),
        wrapped(f"What mends it: {rule.remedy}"),
    ]
    if rule.causes:
        names = dict.fromkeys(cause.partition("/")[0] for cause in rule.causes)
        parts.append(wrapped(f"Explains: {', '.join(names)}"))
    parts.append("\n".join(["References:", *(f"  {reference}" for reference in rule.references)]))
    return "\n\n".join(parts) + "\n"


def wrapped(paragraph: str) -> str:
    """Return a paragraph in lines of 100 columns, names left whole."""
    from textwrap import fill

    return fill(paragraph, 100, break_on_hyphens=False, break_long_words=False)
