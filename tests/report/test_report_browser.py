"""The HTML page in Chromium: filters, sorting, one host, keyboard, themes, narrow windows, links, and silence.

Every page is watched: a message on the console, an error, a breach of its policy, or a request for anything but
the file fails the test.
"""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Page, expect
from support import mixed_fleet, runs
from support.browser import NARROW, NEEDED, Opened, chromium, look_at, names

from fleetcheck.report.steps import step

pytestmark = pytest.mark.skipif(chromium() is None, reason=NEEDED)

RUN = mixed_fleet.fleet(40)
EDITED, LOST, UNREACHABLE = mixed_fleet.name(3), mixed_fleet.name(18), mixed_fleet.name(9)
ROWS = "#matrix tbody tr"


def with_finding(**wanted: Any) -> set[str]:
    found = (one for one in RUN.findings if not one.waived or "rule" in wanted)
    return {str(one.host) for one in found if all(getattr(one, key) == item for key, item in wanted.items())}


def fragment(page: Page) -> str:
    return str(page.evaluate("location.hash"))


class TestFleet:
    def test_every_host_is_there(self, opened: Opened) -> None:
        page = opened(RUN)
        assert sorted(names(page)) == sorted(host.name for host in RUN.hosts)
        expect(page.get_by_role("status")).to_have_text("40 hosts, worst first")
        assert page.title() == "fleetcheck: 40 hosts, 7 failing, 2 not checked"

    def test_it_is_filtered_by_host_rule_severity_group_and_verdict(self, opened: Opened) -> None:
        page = opened(RUN)
        page.get_by_label("Host", exact=True).fill("RACK01")
        assert names(page) and all("rack01" in name for name in names(page))
        expect(page.get_by_role("status")).to_have_text("8 of 40 hosts, worst first")
        assert fragment(page) == "#q=RACK01"
        page.get_by_label("Host", exact=True).fill("10.20.0.4")
        assert set(names(page)) == {
            f"{host.name}" for host in RUN.hosts if str(host.address).startswith("10.20.0.4")
        }
        page.get_by_role("button", name="Clear").click()
        assert (len(names(page)), fragment(page)) == (40, "")
        page.get_by_role("combobox", name="Rule").select_option("pcie-width")
        assert set(names(page)) == with_finding(rule="pcie-width")
        page.get_by_role("combobox", name="Rule").select_option("")
        page.get_by_role("combobox", name="Severity").select_option("error")
        assert set(names(page)) == with_finding(severity="error")
        page.get_by_role("combobox", name="Severity").select_option("warning")
        assert set(names(page)) == with_finding(severity="error") | with_finding(severity="warning")
        page.get_by_role("combobox", name="Group").select_option("rack05")
        worse = with_finding(severity="error") | with_finding(severity="warning")
        assert set(names(page)) == {name for name in worse if "rack05" in name}
        page.get_by_role("button", name="Clear").click()
        page.get_by_role("combobox", name="Verdict").select_option("not-checked")
        assert set(names(page)) == {host.name for host in RUN.hosts if host.outcome != "checked"}
        page.get_by_role("combobox", name="Verdict").select_option("timeout")
        assert set(names(page)) == {host.name for host in RUN.hosts if host.outcome == "timeout"}
        page.get_by_label("Host", exact=True).fill("no such host")
        assert names(page) == []
        expect(page.get_by_role("status")).to_have_text("0 of 40 hosts, worst first")

    def test_it_is_sorted_by_any_column(self, opened: Opened) -> None:
        page = opened(RUN)
        worst = names(page)
        head = page.get_by_role("columnheader", name="Host", exact=True)
        head.get_by_role("button").click()
        assert names(page) == sorted(worst)
        expect(head).to_have_attribute("aria-sort", "ascending")
        head.get_by_role("button").click()
        assert names(page) == sorted(worst, reverse=True)
        expect(head).to_have_attribute("aria-sort", "descending")
        assert page.locator("[aria-sort]").count() == 1
        page.get_by_role("columnheader", name="FlashInfer").get_by_role("button").click()
        versions = page.locator(f"{ROWS} td:nth-child(6)").all_inner_texts()
        assert versions == sorted(versions, key=["-", "0.6.2", "0.6.18", "venv missing"].index)
        page.get_by_role("columnheader", name="Verdict").get_by_role("button").click()
        assert names(page) == worst
        assert fragment(page) == ""

    def test_a_rule_below_shows_its_hosts_above(self, opened: Opened) -> None:
        page = opened(RUN)
        rule = page.locator("details.rule", has_text="persistence-off")
        rule.locator("summary").click()
        expect(rule.get_by_text("sudo systemctl enable --now nvidia-persistenced")).to_be_visible()
        rule.get_by_role("link", name="Show these hosts above").click()
        assert set(names(page)) == with_finding(rule="persistence-off")

    def test_a_thousand_hosts_are_all_there(self, opened: Opened) -> None:
        page = opened(mixed_fleet.fleet(1000))
        assert page.locator(ROWS).count() == 1000
        page.get_by_label("Host", exact=True).fill("gpu777")
        assert len(names(page)) == 1
        look_at(page, names(page)[0])
        expect(page.locator("#host-facts .sentence")).to_contain_text("gpu777.rack98.lab is ok")


class TestOneHost:
    def test_a_click_on_a_row_shows_everything_that_is_known(self, opened: Opened) -> None:
        page = opened(RUN)
        page.locator(ROWS, has_text=EDITED).locator("td").nth(1).click()
        dialog = page.get_by_role("dialog", name=EDITED)
        expect(dialog.locator(".sentence")).to_contain_text(f"{EDITED} has 5 findings")
        titles = dialog.locator(".block h3").all_text_contents()
        assert titles == [
            "Findings: 5 (1 info, 2 explained)", "Topology", "System", "GPUs", "CUDA toolkits",
            "Environments", "Caches", "Processes",
            "This check", "Not examined",
        ]  # fmt: skip
        for text in (
            "0.6.2", f"{mixed_fleet.ROOT}/csrc", "GPU-00000003-7c1d-4f0e-9a52",
            "--attention-backend", "FLASHINFER_CSRC_DIR", "gen_trtllm_comm_module", "12.9.86", "2.9.1+cu129",
            "batch_prefill", "2029-12-26T17:20:00Z", "ecc after reset", "surroundings", "20300114T021500Z-5c1e07",
        ):  # fmt: skip
            expect(dialog.get_by_text(text).first).to_be_attached()
        remedy = dialog.locator(".finding", has_text="env-edited").locator("li")
        (finding,) = (one for one in RUN.findings if one.host == EDITED and one.rule == "env-edited")
        assert remedy.locator("code").all_inner_texts() == [
            command for text in finding.remedy for command in step(text).commands
        ]
        assert remedy.count() == len(finding.remedy)
        expect(dialog.locator(".finding", has_text="env-edited").locator(".follows").first).to_contain_text(
            "csrc-missing"
        )

    def test_it_is_stepped_through_and_closed(self, opened: Opened) -> None:
        page = opened(RUN, "#sort=host")
        order = names(page)
        look_at(page, order[0])
        expect(page.get_by_role("button", name="Previous host")).to_be_disabled()
        page.get_by_role("button", name="Next host").click()
        expect(page.get_by_role("dialog", name=order[1])).to_be_visible()
        assert fragment(page) == f"#sort=host&host={order[1]}"
        page.get_by_role("button", name="Close").click()
        expect(page.get_by_role("dialog")).to_have_count(0)
        assert fragment(page) == "#sort=host"
        assert page.evaluate("document.activeElement.textContent") == order[1]

    def test_back_closes_it(self, opened: Opened) -> None:
        page = opened(RUN)
        look_at(page, EDITED)
        page.go_back()
        expect(page.get_by_role("dialog")).to_have_count(0)
        page.go_forward()
        expect(page.get_by_role("dialog", name=EDITED)).to_be_visible()

    def test_a_host_that_was_not_checked_says_why(self, opened: Opened) -> None:
        page = opened(RUN, f"#host={UNREACHABLE}")
        expect(page.locator(".sentence")).to_contain_text("was not checked, unreachable at the stage connect")
        expect(page.get_by_role("dialog")).to_contain_text("whatever comes after the stage connect")

    def test_a_waived_finding_is_marked(self, opened: Opened) -> None:
        page = opened(RUN, f"#host={mixed_fleet.name(7)}")
        block = page.locator(".block", has=page.get_by_role("heading", name="Waived"))
        expect(block).to_contain_text("pcie-width until 2030-06-01, slot wired x8")


class TestKeyboard:
    def test_the_table_is_one_stop_and_arrows_move_in_it(self, opened: Opened) -> None:
        page = opened(RUN, "#sort=host")
        order = names(page)
        page.keyboard.press("/")
        assert page.evaluate("document.activeElement.id") == "q"
        page.get_by_role("link", name=order[0]).focus()
        page.keyboard.press("ArrowDown")
        page.keyboard.press("ArrowDown")
        assert page.evaluate("document.activeElement.textContent") == order[2]
        page.keyboard.press("End")
        assert page.evaluate("document.activeElement.textContent") == order[-1]
        page.keyboard.press("Home")
        page.keyboard.press("Enter")
        expect(page.get_by_role("dialog", name=order[0])).to_be_visible()
        page.locator("#host-facts .sentence").wait_for()
        page.keyboard.press("Escape")
        expect(page.get_by_role("dialog")).to_have_count(0)
        assert page.evaluate("document.activeElement.textContent") == order[0]
        assert page.locator(f"{ROWS} a[tabindex='0']").count() == 1

    def test_every_control_is_reached_in_its_order(self, opened: Opened) -> None:
        page = opened(RUN)
        reached = []
        for _ in range(22):
            page.keyboard.press("Tab")
            reached.append(page.evaluate("document.activeElement.id || document.activeElement.innerText"))
        assert reached[:2] == ["skip", "theme"]
        last = reached.index("Verdict") + 2
        assert reached[last - 9 : last] == [
            "beyond", "q", "verdict", "severity", "rule", "group", "all", "Verdict", names(page)[0],
        ]  # fmt: skip


class TestLinks:
    def test_a_link_tells_filter_order_and_host(self, opened: Opened) -> None:
        page = opened(RUN, f"#severity=error&group=rack01&sort=-host&host={EDITED}")
        expect(page.get_by_role("dialog", name=EDITED)).to_be_visible()
        page.keyboard.press("Escape")
        assert names(page) == [EDITED]
        assert fragment(page) == "#severity=error&group=rack01&sort=-host"
        again = opened(RUN, fragment(page))
        assert names(again) == [EDITED]

    def test_a_host_that_is_not_there_is_told(self, opened: Opened) -> None:
        page = opened(RUN, "#host=%3Cb%3Egone")
        expect(page.get_by_role("alert")).to_have_text("This report has no host <b>gone.")
        page.get_by_label("Host", exact=True).fill("x")
        page.evaluate("location.hash = ''")
        expect(page.get_by_role("alert")).to_have_count(0)
        assert len(names(page)) == 40

    def test_a_rule_that_is_not_there_has_no_hosts(self, opened: Opened) -> None:
        page = opened(RUN, "#rule=smi-missing&sort=nothing")
        expect(page.get_by_role("status")).to_contain_text("0 of 40 hosts")
        expect(page.get_by_role("combobox", name="Rule")).to_have_value("smi-missing")


# Of each text, its colour and that of what lies under it, as the reader sees them.
CONTRAST = """(selectors) => {
    const linear = (part) => (part /= 255) <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
    const light = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
    const colour = (text) => text.match(/[\\d.]+/g).map(Number);
    const under = (one) => {
        for (let at = one; at; at = at.parentElement) {
            const found = colour(getComputedStyle(at).backgroundColor);
            if (found[3] !== 0) return found;
        }
    };
    return selectors.flatMap((selector) => [...document.querySelectorAll(selector)].slice(0, 3)
        .filter((one) => one.checkVisibility()).map((one) => {
            const style = getComputedStyle(one);
            const [dark, bright] = [light(colour(style.color)), light(under(one))].sort((a, b) => a - b);
            return [selector, (bright + 0.05) / (dark + 0.05)];
        }));
}"""
TEXTS = [
    "h1", "h1 .second", ".run span", "#count", "#matrix thead button", "#matrix tbody a", "#matrix tbody td",
    "#matrix td.bad", ".badge.error", ".badge.warning", ".badge.info", ".badge.ok", ".badge.unseen",
    ".badge.waived", ".badge.resting", ".badge.explained", ".rule .name", ".rule .what", ".legend", "footer p",
    ".message", "label span",
    ".facts dt", ".facts dd", ".remedy code", ".sentence", "#theme", "main a.scripted", ".tallies a",
    ".contents a", ".mark", ".warn", ".note", ".copy", ".hosts a", ".badge.alarm", ".glossary dd",
    ".finding .what",
]  # fmt: skip


class TestLooks:
    @pytest.mark.parametrize("theme", ["light", "dark"])
    def test_the_system_s_theme_is_followed_and_can_be_read(self, opened: Opened, theme: str) -> None:
        page = opened(RUN, color_scheme=theme)
        page.locator("details.rule summary").first.click()
        found = page.evaluate(CONTRAST, TEXTS)
        look_at(page, EDITED)
        found += page.evaluate(
            CONTRAST, [".facts dt", ".facts dd", ".remedy code", ".sentence", ".topology figcaption"]
        )
        assert {name for name, _ in found} >= {"h1", ".badge.error", ".facts dt", ".sentence", ".remedy code"}
        assert [one for one in found if one[1] < 4.5] == []
        ground = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
        assert (int(ground.removeprefix("rgb(").split(",")[0]) < 60) == (theme == "dark")

    def test_the_theme_is_chosen_and_kept(self, opened: Opened) -> None:
        page = opened(RUN, color_scheme="light")
        button = page.get_by_role("button", name="Theme")
        button.click()
        expect(button).to_have_text("Theme: dark")
        assert page.evaluate("getComputedStyle(document.body).colorScheme") == "dark"
        page.reload()
        expect(button).to_have_text("Theme: dark")
        assert page.evaluate("getComputedStyle(document.body).colorScheme") == "dark"
        button.click()
        button.click()
        expect(button).to_have_text("Theme: system")
        assert page.evaluate("getComputedStyle(document.body).colorScheme") == "light"

    @pytest.mark.parametrize("long", [False, True])
    def test_a_narrow_window_has_nothing_beside_it(self, opened: Opened, long: bool) -> None:
        name = f"{'x' * 60}.{'y' * 60}.lab"
        found = runs.finding(name, "z" * 80, venv="/v" * 150, message="w" * 300, remedy=("r" * 300,))
        venvs = (runs.venv("/v" * 150, version="9" * 90),)
        run = runs.run(runs.host(name, "findings", venvs=venvs), findings=(found,)) if long else RUN
        page = opened(run, viewport=NARROW)
        beside = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert page.evaluate(beside) == 0
        assert page.locator(".grid").evaluate("(one) => one.scrollWidth - one.clientWidth") == 0
        for rule in page.locator("details.rule summary").all():
            rule.click()
        assert page.evaluate(beside) == 0
        expect(page.locator(".unscripted")).to_be_hidden()
        look_at(page, name if long else EDITED)
        expect(page.locator("#host-facts .block").first).to_be_visible()
        assert page.locator("#host").evaluate("(one) => one.scrollWidth - one.clientWidth") == 0
        assert page.locator("#host").evaluate("(one) => one.clientWidth") == NARROW["width"]

    def test_print_shows_all_and_no_controls(self, opened: Opened) -> None:
        page = opened(RUN)
        page.emulate_media(media="print")
        expect(page.get_by_role("search")).to_be_hidden()
        expect(page.get_by_role("button", name="Theme")).to_be_hidden()
        assert page.locator(".grid").evaluate("(one) => one.scrollHeight - one.clientHeight") == 0
        assert page.pdf(print_background=False).startswith(b"%PDF-")
        assert page.locator("details.rule[open]").count() == 0

    def test_without_javascript_the_fleet_and_the_findings_are_there(self, opened: Opened) -> None:
        page = opened(RUN, java_script_enabled=False)
        assert page.locator(ROWS).count() == 40
        expect(page.locator(ROWS).first).to_be_visible()
        expect(page.locator("#filters")).to_be_hidden()
        expect(page.locator("#theme")).to_be_hidden()
        rule = page.locator("details.rule").first
        rule.locator("summary").click()
        expect(rule.locator(".remedy")).to_be_visible()
        expect(page.locator(".unscripted")).to_contain_text("Without JavaScript this page shows the whole fleet")


class TestAccessibility:
    def test_the_table_is_a_table(self, opened: Opened) -> None:
        page = opened(RUN)
        table = page.get_by_role("table", name="Hosts, what is said of each")
        assert table.get_by_role("row").count() == 41
        assert table.get_by_role("rowheader").count() == 40
        heads = table.get_by_role("columnheader").all_inner_texts()
        assert len(heads) == len(set(heads))
        row = table.get_by_role("row", name=EDITED)
        words = row.get_by_role("cell").all_text_contents()
        assert words[0] == "error env-edited +1"
        assert words.count("error explained") == 2

    def test_every_control_has_a_name(self, opened: Opened) -> None:
        page = opened(RUN, f"#host={EDITED}")
        page.locator("#host-facts .sentence").wait_for()
        controls = "button, input, select, [role=img], [role=region]"
        nameless = page.evaluate(
            """(controls) => [...document.querySelectorAll(controls)]
            .filter((one) => !(one.getAttribute("aria-label") || one.getAttribute("aria-labelledby")
                || one.textContent.trim() || one.labels?.length)).map((one) => one.outerHTML)""",
            controls,
        )
        assert nameless == []
        ids = page.evaluate("[...document.querySelectorAll('[id]')].map((one) => one.id)")
        assert len(ids) == len(set(ids))
        assert page.evaluate("document.activeElement.id") == "host-title"
