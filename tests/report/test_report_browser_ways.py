"""The HTML page in Chromium, as an operator uses it: to the first host, over the whole fleet, to the remedy."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, PdfMargins, ViewportSize, expect
from support import mixed_fleet, runs
from support.browser import NARROW, NEEDED, WIDE, Opened, chromium, look_at, names

from fleetcheck.report.further import DEMO
from fleetcheck.rules.catalog import RULES
from fleetcheck.run import Run

pytestmark = pytest.mark.skipif(chromium() is None, reason=NEEDED)

RUN = mixed_fleet.fleet(40)
EDITED, UNSAFE, LOST = mixed_fleet.name(3), mixed_fleet.name(12), mixed_fleet.name(18)
UNREACHABLE, RESTING, SILENT = mixed_fleet.name(9), mixed_fleet.name(31), mixed_fleet.name(38)
LARGE = mixed_fleet.fleet(400)
ROWS = "#matrix tbody tr"
SMALL = {"width": 900, "height": 700}
# Whether what the reader sees in the middle of an element is this element, or lies over it.
UNCOVERED = """(one) => {
    const { left, top, width, height } = one.getBoundingClientRect();
    const seen = document.elementFromPoint(left + width / 2, top + height / 2);
    return one === seen || one.contains(seen);
}"""
KEYS = "ssh-keygen -R gpu1.lab -f /etc/fleet/known_hosts && ssh-keyscan gpu1.lab >> /etc/fleet/known_hosts"
CHANGED = f"gpu1.lab shows the host key SHA256:x, not the one that is known; if the new key is right: {KEYS}"


def focused(page: Page) -> str:
    return str(page.evaluate("document.activeElement.textContent"))


def until(page: Page, said: str) -> None:
    """Wait until an expression is true; Playwright's own way needs an eval, which the page's policy forbids."""
    for _ in range(500):
        if page.evaluate(said):
            return
        page.wait_for_timeout(20)
    raise AssertionError(said)


def row(page: Page, host: str) -> Locator:
    return page.locator(ROWS, has_text=host)


def changed() -> Run:
    gone = runs.host("gpu1.lab", "host-key-changed", stage="kex", detail="changed", message=CHANGED)
    return runs.run(gone, runs.host("gpu2.lab", "timeout", message="no banner came"), runs.host("gpu3.lab"))


class TestToTheFirstHost:
    def test_one_link_leads_there(self, opened: Opened) -> None:
        page = opened(RUN)
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        assert focused(page) == names(page)[0]

    def test_the_headings_are_one_stop(self, opened: Opened) -> None:
        page = opened(RUN, viewport=SMALL)
        page.locator("#group").focus()
        stops: list[str] = []
        while focused(page) != names(page)[0] and len(stops) < 40:
            page.keyboard.press("Tab")
            stops.append(page.evaluate("document.activeElement.closest('th')?.dataset.key ?? ''"))
        assert [one for one in stops if one] == ["verdict"]
        assert len(stops) <= 5

    def test_the_verdict_is_seen_beside_a_host_wherever_the_table_stands(self, opened: Opened) -> None:
        page = opened(RUN, viewport=SMALL)
        page.locator("#matrix thead [data-key=verdict]").get_by_role("button").focus()
        page.keyboard.press("End")
        assert focused(page) == RULES["fusion-refused"].slug
        assert page.locator(".grid").evaluate("(one) => one.scrollLeft") > 100
        page.keyboard.press("Home")
        page.keyboard.press("End")
        page.keyboard.press("Tab")
        assert focused(page) == names(page)[0]
        verdict = row(page, names(page)[0]).locator("td.verdict")
        assert verdict.locator(".badge").evaluate(UNCOVERED)
        head = page.locator("#matrix th.host").bounding_box()
        place = verdict.bounding_box()
        assert head and place and abs(place["x"] - head["x"] - head["width"]) < 2

    def test_a_host_that_is_reached_is_never_under_the_headings(self, opened: Opened) -> None:
        page = opened(RUN, viewport=SMALL)
        page.locator(f"{ROWS} a").first.focus()
        page.keyboard.press("End")
        for _ in range(35):
            page.keyboard.press("ArrowUp")
            assert page.locator(":focus").evaluate(UNCOVERED)

    def test_the_arrows_lead_from_heading_to_heading(self, opened: Opened) -> None:
        page = opened(RUN)
        page.locator("#matrix thead [data-key=verdict]").get_by_role("button").focus()
        page.keyboard.press("ArrowLeft")
        page.keyboard.press("Enter")
        assert names(page) == sorted(names(page))
        assert page.locator("#matrix thead [tabindex='0']").count() == 1


class TestOverTheFleet:
    def test_the_wheel_moves_the_page(self, opened: Opened) -> None:
        page = opened(LARGE)
        page.mouse.move(640, 600)
        for _ in range(10):
            page.mouse.wheel(0, 200)
        until(page, "scrollY > 1500")
        assert page.locator(".grid").evaluate("(one) => one.scrollTop") == 0

    def test_the_headings_stay_and_sort_there(self, opened: Opened) -> None:
        page = opened(LARGE)
        page.evaluate("scrollTo(0, 5000)")
        heads = page.locator(".band th", has_text="FlashInfer")
        expect(heads).to_be_visible()
        box = heads.bounding_box()
        assert box and 0 <= box["y"] + box["height"] < 250
        real = page.locator("#matrix th", has_text="FlashInfer").bounding_box()
        assert real and abs(real["x"] - box["x"]) < 1
        heads.click()
        expect(page.get_by_role("status")).to_contain_text("by flashinfer")

    @pytest.mark.parametrize("part", ["Findings by rule", "Not checked", "In maintenance", "Waived", "Words"])
    def test_each_part_is_one_click_away_and_the_filter_stays(self, opened: Opened, part: str) -> None:
        page = opened(LARGE, "#severity=warning")
        page.get_by_role("navigation", name="On this page").get_by_role("link", name=part).click()
        expect(page.get_by_role("heading", name=part, exact=True)).to_be_in_viewport()
        assert page.evaluate("location.hash") == "#severity=warning"
        page.locator("main .up").last.click()
        assert page.evaluate("scrollY") == 0

    def test_what_does_not_fit_is_told_and_shown(self, opened: Opened) -> None:
        page = opened(RUN, viewport=SMALL)
        more = page.locator("#beyond")
        expect(more).to_have_text(re.compile(r"^\d+ more columns →$"))
        last = page.locator("#matrix thead th").last
        expect(last).not_to_be_in_viewport()
        for _ in range(20):
            told = more.inner_text()
            if not told.endswith("→"):
                break
            more.click()
            expect(more).not_to_have_text(told)
        expect(last).to_be_in_viewport()
        expect(more).to_have_text("← back to the first columns")
        page.set_viewport_size({"width": 1900, "height": 800})
        expect(more).to_be_hidden()

    def test_rules_that_say_nothing_of_the_hosts_shown_take_no_room(self, opened: Opened) -> None:
        page = opened(RUN, f"#q={EDITED}")
        heads = page.locator("#matrix th.r")
        shown = {one.inner_text() for one in heads.all() if one.is_visible()}
        assert shown == {one.rule for one in RUN.findings if one.host == EDITED}
        page.get_by_role("button", name="Clear").click()
        assert all(one.is_visible() for one in heads.all())

    def test_a_link_that_all_have_is_said_once(self, opened: Opened) -> None:
        page = opened(RUN)
        expect(page.locator("#matrix th[data-key=link]")).to_be_hidden()
        expect(page.locator("#alike")).to_have_text("Link: SYS on every host where it is known.")
        two = runs.run(*(runs.host(name, gpus=runs.gpus(link=name)) for name in ("NV18", "SYS")))
        expect(opened(two).locator("#matrix th[data-key=link]")).to_be_visible()

    def test_the_headings_fit_the_window_that_it_became(self, opened: Opened) -> None:
        page = opened(RUN)
        head = page.locator("#matrix thead tr")
        page.set_viewport_size({"width": 700, "height": 800})
        expect(page.locator("#matrix th.r").first).to_be_hidden()
        until(page, "document.querySelector('#matrix thead').offsetHeight < 60")
        page.set_viewport_size({"width": 1280, "height": 800})
        until(page, "document.querySelector('#matrix thead').offsetHeight > 80")
        assert head.evaluate("(one) => one.offsetHeight") < 115


class TestWords:
    def test_ok_with_a_warning_is_not_ok_alone(self, opened: Opened) -> None:
        page = opened(RUN)
        kinds = page.get_by_role("list", name="Hosts by kind")
        assert kinds.get_by_role("listitem").all_inner_texts() == [
            "25 ok, no warnings", "5 ok, with warnings", "7 failing", "2 not checked", "1 in maintenance",
        ]  # fmt: skip
        kinds.get_by_text("5 ok, with warnings").click()
        assert len(names(page)) == 5
        for text in page.locator(f"{ROWS} td.verdict").all_text_contents():
            assert text.startswith("warning ok (") and "warning" in text.removeprefix("warning ")

    def test_faulty_cells_are_red_and_the_others_are_not(self, opened: Opened) -> None:
        page = opened(RUN)
        colour = "(one) => getComputedStyle(one).color"
        usual = row(page, mixed_fleet.name(0)).locator("td").nth(1).evaluate(colour)
        for host, text in {
            EDITED: "MOVED, missing", UNSAFE: "on, unsafe-patch", LOST: "missing",
            mixed_fleet.name(27): "575.57.08", mixed_fleet.name(30): "hung", mixed_fleet.name(33): "venv missing",
        }.items():  # fmt: skip
            cell = row(page, host).locator("td:not(.verdict)", has_text=text)
            assert cell.evaluate(colour) != usual
        assert row(page, EDITED).locator("td").nth(1).evaluate(colour) == usual

    def test_plus_one_is_explained_and_agrees_with_the_host(self, opened: Opened) -> None:
        page = opened(RUN)
        verdict = row(page, EDITED).locator("td.verdict")
        expect(verdict).to_have_text("error env-edited +1")
        assert verdict.get_attribute("title") == (
            "env-edited (error), fleet-outlier (warning); explained: csrc-missing, csrc-unexpected; "
            "info: fusion-refused"
        )
        expect(page.locator(".legend")).to_contain_text("+1 one more rule found a fault here")
        look_at(page, EDITED)
        expect(page.locator("#host-facts h3").first).to_have_text("Findings: 5 (1 info, 2 explained)")

    @pytest.mark.parametrize("number", [3, 12, 18, 23, 7, 0])
    def test_the_heading_counts_what_the_sentence_counts(self, opened: Opened, number: int) -> None:
        name = mixed_fleet.name(number)
        live = [one for one in RUN.findings if one.host == name and not one.waived]
        page = opened(RUN, f"#host={name}")
        sentence = page.locator("#host-facts .sentence")
        sentence.wait_for()
        headings = page.locator("#host-facts h3", has_text="Findings")
        if not live:
            expect(headings).to_have_count(0)
            return
        told = "one finding" if len(live) == 1 else f"{len(live)} findings"
        expect(sentence).to_contain_text(told)
        expect(headings).to_have_text(re.compile(rf"^Findings: {len(live)}( \(|$)"))

    def test_counts_of_hosts_agree_wherever_they_stand(self, opened: Opened) -> None:
        page = opened(RUN)
        title = page.locator("h1").inner_text()
        kinds = page.get_by_role("list", name="Hosts by kind").get_by_role("listitem").all_inner_texts()
        assert "7 failing" in title and "7 failing" in kinds and "7 failing" in page.title()
        assert "30 ok (5 with warnings)" in title
        assert {"25 ok, no warnings", "5 ok, with warnings"} <= set(kinds)
        expect(page.locator("#verdict option[value=findings]")).to_have_text("failing (7)")
        alone = opened(runs.run(runs.host("a"), runs.host("b", "findings"), findings=(runs.finding("b"),)))
        assert alone.locator(".tallies li").all_inner_texts() == ["1 ok", "1 failing"]

    def test_the_legend_has_the_marks_of_this_run_alone(self, opened: Opened) -> None:
        page = opened(RUN)
        marks = "(all) => [...new Set(all.map((one) => one.className))].sort()"
        shown = page.locator("#matrix .badge").evaluate_all(marks)
        told = page.locator(".legend .badge").evaluate_all(marks)
        assert set(told) == {one for one in shown if one == "badge error explained" or "explained" not in one}
        assert "badge critical" not in told
        well = opened(runs.run(runs.host("a")))
        assert well.locator(".legend").inner_text().split() == ["nothing", "found"]

    def test_a_warning_that_is_explained_is_in_the_legend(self, opened: Opened) -> None:
        found = (runs.finding("a", "x"), runs.finding("a", "y", "warning", cause="x"))
        page = opened(runs.run(runs.host("a", "findings"), findings=found))
        expect(page.locator(".legend .badge.warning.explained")).to_have_count(1)
        expect(page.locator(".legend")).not_to_contain_text("one more rule")

    def test_each_rule_says_what_it_is(self, opened: Opened) -> None:
        page = opened(RUN)
        head = page.get_by_role("columnheader", name="smi-hung")
        assert RULES["smi-hung"].summary in str(head.get_attribute("title"))
        assert RULES["smi-hung"].summary in str(head.get_by_role("button").get_attribute("aria-description"))
        expect(page.locator("details.rule", has_text="smi-hung").locator("summary .what")).to_have_text(
            RULES["smi-hung"].summary
        )

    def test_a_rule_s_heading_shows_its_hosts_and_again_all(self, opened: Opened) -> None:
        page = opened(RUN)
        head = page.get_by_role("columnheader", name="persistence-off").get_by_role("button")
        head.click()
        assert set(names(page)) == {one.host for one in RUN.findings if one.rule == "persistence-off"}
        head.click()
        assert len(names(page)) == 40

    def test_a_reader_who_hears_the_legend_hears_each_word_once(self, opened: Opened) -> None:
        page = opened(RUN)
        legend = page.locator(".legend").aria_snapshot()
        assert legend.count("error") == 1
        assert page.get_by_role("region", name="Fleet").count() == 1

    def test_without_javascript_that_is_said_first(self, opened: Opened) -> None:
        page = opened(RUN, java_script_enabled=False)
        box = page.locator(".unscripted").bounding_box()
        assert box and box["y"] < 120


FOLDED = f"gpu[001-003].rack01.lab,{UNREACHABLE}"


class TestFilter:
    @pytest.mark.parametrize(
        ("text", "numbers"),
        [
            ("gpu[001-003].rack01.lab", [0, 1, 2]), ("GPU[001-002,005].rack01.lab", [0, 1, 4]),
            (FOLDED, [0, 1, 2, 9]), (" gpu001.rack01.lab, gpu009 , ", [0, 8]), ("gpu00[1-3]", [0, 1, 2]),
            ("gpu[1-3].rack01.lab", []), ("gpu*.rack05.lab", range(32, 40)), ("gpu03?", range(29, 39)),
            ("*rack01*", range(8)), ("rack01 gpu003", [2]), ("10.20.0.[1-3]", [0, 1, 2]), ("u00", range(9)),
            ("gpu[001-040].rack[01-02].lab", range(16)), (",", range(40)), ("[", []), ("gpu[", []), ("[a-b]", []),
            ("gpu(001", []), ("*", range(40)),
        ],
    )  # fmt: skip
    def test_hosts_as_they_are_written_elsewhere(self, opened: Opened, text: str, numbers: Any) -> None:
        page = opened(RUN)
        page.get_by_label("Host", exact=True).fill(text)
        assert set(names(page)) == {mixed_fleet.name(number) for number in numbers}

    def test_no_host_is_said_and_undone(self, opened: Opened) -> None:
        page = opened(RUN)
        page.get_by_label("Host", exact=True).fill("nothing")
        expect(page.get_by_text("No host matches.")).to_be_visible()
        expect(page.locator(".grid")).to_be_hidden()
        page.get_by_role("button", name="Clear the filters").click()
        assert len(names(page)) == 40
        expect(page.get_by_text("No host matches.")).to_be_hidden()

    def test_what_needs_work(self, opened: Opened) -> None:
        page = opened(RUN)
        page.get_by_role("combobox", name="Verdict").select_option("needs-work")
        assert set(names(page)) == {one.name for one in RUN.hosts if one.verdict not in ("ok", "skipped")}
        assert page.locator("#verdict option:checked").inner_text() == f"needs work ({len(names(page))})"

    def test_each_choice_counts_what_it_shows(self, opened: Opened) -> None:
        page = opened(RUN)
        for select in ("verdict", "severity", "rule"):
            for option in page.locator(f"#{select} option").all()[1:]:
                page.locator(f"#{select}").select_option(str(option.get_attribute("value")))
                assert option.inner_text().endswith(f" ({len(names(page))})")
            page.locator(f"#{select}").select_option("")

    def test_on_a_phone_they_are_folded(self, opened: Opened) -> None:
        page = opened(RUN, viewport=NARROW)
        expect(page.get_by_label("Severity")).to_be_hidden()
        first = page.locator(f"{ROWS} a").first.bounding_box()
        assert first and first["y"] < 600
        page.get_by_role("button", name="More filters").click()
        page.get_by_label("Severity").select_option("error")
        assert len(names(page)) == 7


class TestWays:
    @pytest.mark.parametrize("part", ["unseen", "resting", "findings", "waived"])
    def test_hosts_lead_to_themselves_wherever_they_are_named(self, opened: Opened, part: str) -> None:
        page = opened(RUN)
        for rule in page.locator("details.rule summary").all():
            rule.click()
        links = page.locator(f"#{part} .hosts a")
        one = links.filter(has_not_text="[").first
        host = one.inner_text().rstrip(",")
        one.click()
        expect(page.get_by_role("dialog", name=host)).to_be_visible()

    def test_a_range_of_hosts_is_a_filter(self, opened: Opened) -> None:
        page = opened(RUN)
        page.locator("details.rule", has_text="fusion-refused").locator("summary").click()
        link = page.locator("details.rule .hosts a", has_text="[").first
        text = link.inner_text().rstrip(",")
        link.click()
        assert page.locator("#q").input_value() == text
        assert 1 < len(names(page)) < 10

    def test_a_mark_opens_its_finding(self, opened: Opened) -> None:
        page = opened(RUN)
        for rule in ("fleet-outlier", "csrc-missing"):
            place = page.locator("#matrix th.r").all_inner_texts().index(rule)
            row(page, EDITED).locator("td").nth(7 + place).click()
            expect(page.locator("#host-facts [data-rule]:focus")).to_have_attribute("data-rule", rule)
            expect(page.locator(f"#host-facts [data-rule={rule}]")).to_be_in_viewport()
            assert page.evaluate("location.hash") == f"#host={EDITED}&at={rule}"
            page.keyboard.press("Escape")
            until(page, "location.hash === ''")

    @pytest.mark.parametrize("window", [WIDE, NARROW])
    @pytest.mark.parametrize("long", [False, True])
    def test_a_mark_s_finding_has_its_heading_whole_above_it(
        self, opened: Opened, window: ViewportSize, long: bool
    ) -> None:
        name = f"{'x' * 60}.{'y' * 60}.lab" if long else "gpu1.lab"
        found = tuple(runs.finding(name, f"rule-{number}", message="w " * 200) for number in range(20))
        run = runs.run(runs.host(name, "findings"), findings=found)
        for number in (0, 3):
            page = opened(run, f"#host={name}&at=rule-{number}", viewport=window)
            at = page.locator("#host-facts [data-rule]:focus")
            at.wait_for()
            bar = page.locator("dialog > .bar").bounding_box()
            head = page.locator("#host-facts h3", has_text="Findings").bounding_box()
            box = at.bounding_box()
            assert bar and head and box
            below = bar["y"] + bar["height"]
            assert below <= box["y"] < below + 60
            # The part's heading is whole or wholly out of sight, never cut by the bar.
            assert head["y"] >= below if number == 0 else head["y"] + head["height"] <= below

    @pytest.mark.parametrize("links", ["#host-facts .contents button", "header .contents a"])
    def test_links_to_parts_can_be_hit_on_a_phone_and_all_are_seen(self, opened: Opened, links: str) -> None:
        page = opened(RUN, f"#host={LOST}" if "host" in links else "", viewport=NARROW)
        page.locator(links).first.wait_for()
        boxes = [one.bounding_box() for one in page.locator(links).all()]
        assert len(boxes) > 4
        for box in boxes:
            assert box and box["height"] >= 32 and box["x"] + box["width"] <= NARROW["width"]
        for one in page.locator(".tallies a, .legend > span").all():
            box = one.bounding_box()
            assert box is None or box["x"] + box["width"] <= NARROW["width"]

    def test_references_are_followed_without_telling_where_from(self, opened: Opened) -> None:
        page = opened(RUN, f"#host={LOST}")
        link = page.locator("#host-facts a.address").first
        expect(link).to_have_attribute("rel", "noopener noreferrer")
        assert str(link.get_attribute("href")).startswith("https://")

    @pytest.mark.parametrize(
        "bad", ["javascript:alert(1)", "http://a.lab/", "https://a.lab/\u202e", "docs/ssh.md"]
    )
    def test_nothing_else_is_an_address(self, opened: Opened, bad: str) -> None:
        page = opened(
            runs.run(runs.host("a", "findings"), findings=(runs.finding("a", reference=bad),)), "#host=a"
        )
        expect(page.locator("#host-facts .address")).to_be_visible()
        assert page.locator("a.address").count() == 0


class TestRemedies:
    def test_a_command_is_code_and_a_sentence_is_not(self, opened: Opened) -> None:
        page = opened(RUN, f"#host={UNSAFE}")
        steps = page.locator("#host-facts .remedy li")
        expect(steps.nth(1).locator("code")).to_have_text(re.compile(r"^cp -a \S+ \S+$"))
        expect(steps.nth(1).locator(".note")).to_have_text("keeps what was edited")
        expect(steps.last.locator("code")).to_have_count(0)
        expect(steps.last).to_contain_text("Restart the processes that serve")
        expect(steps.last.locator(".mark")).to_have_text("restarts serving")
        assert (
            page.locator("#host-facts .remedy code").count() == page.locator("#host-facts .remedy .copy").count()
        )

    def test_what_ends_all_that_runs_is_marked(self, opened: Opened) -> None:
        remedy = ("sudo dmesg | grep -i xid", "sudo systemctl reboot  # ends everything that runs on this host")
        run = runs.run(runs.host("a", "findings"), findings=(runs.finding("a", remedy=remedy),))
        page = opened(run, "#host=a")
        last = page.locator("#host-facts .remedy li").last
        expect(last.locator("code")).to_have_text("sudo systemctl reboot")
        expect(last.locator(".mark")).to_have_text("reboots the host")
        expect(page.locator("#host-facts .remedy li").first.locator(".mark")).to_have_count(0)

    @pytest.mark.parametrize("clipboard", [True, False])
    @pytest.mark.parametrize("where", ["host", "list"])
    def test_it_is_copied(self, opened: Opened, clipboard: bool, where: str) -> None:
        page = opened(RUN, f"#host={LOST}" if where == "host" else "")
        if not clipboard:
            page.evaluate("Object.defineProperty(navigator, 'clipboard', { value: undefined })")
        if where == "list":
            page.locator("details.rule", has_text="gpu-missing").locator("summary").click()
        remedy = page.locator("#host-facts .remedy" if where == "host" else "details.rule[open] .remedy").first
        command = remedy.locator("code").last.inner_text()
        button = remedy.locator("button.copy").last
        button.click()
        expect(button).to_have_text("Copied")
        if where == "host":
            page.keyboard.press("Escape")
        page.get_by_label("Host", exact=True).focus()
        page.keyboard.press("Control+V")
        expect(page.get_by_label("Host", exact=True)).to_have_value(command)

    def test_a_host_that_was_not_checked_has_a_next_step(self, opened: Opened) -> None:
        page = opened(RUN)
        expect(page.locator("#unseen code", has_text=UNREACHABLE)).to_have_text(
            f"fleetcheck doctor {UNREACHABLE} -i fleet.yaml"
        )
        look_at(page, SILENT)
        expect(page.locator("#host-facts code").first).to_have_text(f"fleetcheck doctor {SILENT} -i fleet.yaml")
        page.keyboard.press("Escape")
        look_at(page, RESTING)
        expect(page.locator("#host-facts code")).to_have_count(0)

    def test_a_changed_key_stands_out_and_its_command_is_whole(self, opened: Opened) -> None:
        page = opened(changed())
        expect(row(page, "gpu1.lab").locator(".badge.alarm")).to_be_visible()
        expect(row(page, "gpu2.lab").locator(".badge.alarm")).to_have_count(0)
        listed = page.locator("#unseen .host-key-changed")
        expect(listed).to_contain_text("something else answers in its place")
        expect(listed.locator("code").first).to_have_text(KEYS)
        look_at(page, "gpu1.lab")
        told = page.locator("#host-facts .next.changed")
        expect(told).to_contain_text("Find out which before you log in")
        assert told.locator("code").all_inner_texts() == ["fleetcheck doctor gpu1.lab -i fleet.yaml", KEYS]

    @pytest.mark.parametrize("where", ["host", "list"])
    def test_a_button_says_what_it_copies(self, opened: Opened, where: str) -> None:
        page = opened(RUN, f"#host={LOST}" if where == "host" else "")
        if where == "list":
            page.locator("details.rule", has_text="gpu-missing").locator("summary").click()
        remedy = page.locator("#host-facts .remedy" if where == "host" else "details.rule[open] .remedy").first
        commands = remedy.locator("code").all_inner_texts()
        assert commands
        for command in commands:
            button = remedy.get_by_role("button", name=f"Copy: {command}", exact=True)
            expect(button).to_have_text("Copy")
        button.click()
        expect(button.or_(remedy.get_by_role("button", name=f"Copied: {command}", exact=True))).to_have_text(
            "Copied"
        )

    def test_the_demo_s_page_has_no_command_that_needs_an_inventory(self, opened: Opened) -> None:
        host = runs.host("demo-rtx06", "unreachable")
        run = runs.run(host, runs.host("demo-rtx01"))
        run = run.model_copy(update={"run": run.run.model_copy(update={"inventory": DEMO})})
        page = opened(run)
        told = ["fleetcheck demo --output json:demo.json", "fleetcheck show demo-rtx06 demo.json"]
        assert page.locator("#unseen code").all_inner_texts() == told
        footer = page.locator("footer code").all_inner_texts()
        assert footer == [told[0], "fleetcheck show HOST demo.json", "fleetcheck rules RULE"]
        look_at(page, "demo-rtx06")
        assert page.locator("#host-facts code").all_inner_texts() == told
        usual = opened(RUN).locator("footer code").first
        expect(usual).to_have_text("fleetcheck show HOST -i fleet.yaml")


class TestFacts:
    def test_they_are_closed_and_listed(self, opened: Opened) -> None:
        page = opened(RUN, f"#host={EDITED}")
        expect(page.locator("#host-facts details.block").first).to_be_visible()
        assert page.locator("#host-facts details.block[open]").count() == 0
        height = page.locator("#host").evaluate("(one) => one.scrollHeight")
        page.get_by_role("navigation", name="Of this host").get_by_role("button", name="Environments").click()
        assert page.locator("#host-facts details.block[open] h3").all_inner_texts() == ["Environments"]
        expect(page.get_by_text("FLASHINFER_INCLUDE_DIR")).to_be_visible()
        assert page.locator("#host").evaluate("(one) => one.scrollHeight") > height

    def test_nothing_is_cut_off_and_no_name_is_broken(self, opened: Opened) -> None:
        page = opened(RUN, f"#host={LOST}")
        page.locator("#host-facts .block").first.wait_for()
        page.evaluate("for (const one of document.querySelectorAll('#host-facts details')) one.open = true")
        cut = "(all) => all.filter((one) => one.scrollWidth > one.clientWidth + 1).map((one) => one.ariaLabel)"
        assert page.locator("#host-facts .scroll").evaluate_all(cut) == []
        # A name that stands on several lines without a place to break at.
        broken = """(all) => all.filter((one) => {
            const text = document.createRange();
            text.selectNodeContents(one);
            const lines = new Set([...text.getClientRects()].map(({ top }) => Math.round(top))).size;
            return lines > 1 && !/[/_,=: ]/.test(one.textContent);
        }).map((one) => one.textContent)"""
        assert page.locator("#host-facts dt").evaluate_all(broken) == []
        name = page.locator("#host-facts dt", has_text="FLASHINFER_INCLUDE_DIR").bounding_box()
        assert name and name["height"] < 30
        assert page.locator("#host-facts .scroll").count() > 2

    def test_a_drawing_can_be_read(self, opened: Opened) -> None:
        page = opened(RUN, f"#host={LOST}")
        page.locator(".topology").wait_for()
        least = "(all) => Math.min(...all.map((one) => parseFloat(getComputedStyle(one).fontSize)))"
        assert page.locator(".topology text").evaluate_all(least) >= 11
        page.get_by_role("button", name="Topology").click()
        top = page.locator(".topology figcaption").bounding_box()
        bar = page.locator("dialog > .bar").bounding_box()
        assert top and bar and top["y"] >= bar["y"] + bar["height"]


class TestPaper:
    @pytest.fixture
    def printed(self, opened: Opened, tmp_path: Path) -> Iterator[Any]:
        def words(page: Page, number: int) -> str:
            file = tmp_path / "page.pdf"
            page.pdf(path=file, format="A4", landscape=True)
            command = ["pdftotext", "-f", str(number), "-l", str(number), "-layout", str(file), "-"]
            return subprocess.run(command, capture_output=True, text=True, check=True).stdout

        yield words

    @pytest.mark.skipif(shutil.which("pdftotext") is None, reason="needs pdftotext: apt-get install poppler-utils")
    def test_the_headings_stand_on_each_sheet(self, opened: Opened, printed: Any) -> None:
        page = opened(LARGE)
        for number in (1, 2):
            assert re.search(r"Host +Verdict.* GPUs +Driver +FlashInfer +csrc +Fusion", printed(page, number))

    @pytest.mark.skipif(shutil.which("pdftotext") is None, reason="needs pdftotext: apt-get install poppler-utils")
    @pytest.mark.parametrize("window", [WIDE, NARROW])
    def test_upright_paper_shows_the_facts_as_well(
        self, opened: Opened, tmp_path: Path, window: ViewportSize
    ) -> None:
        page = opened(RUN, viewport=window)
        file = tmp_path / "page.pdf"
        margin: PdfMargins = {"top": "10mm", "bottom": "10mm", "left": "10mm", "right": "10mm"}
        page.pdf(path=file, format="A4", margin=margin)
        command = ["pdftotext", "-l", "1", "-layout", str(file), "-"]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        assert re.search(r"Host +Verdict.* GPUs +Driver +FlashInfer +csrc +Fusion", said)
        assert re.search(rf"{EDITED} .*env-edited \+1 +8× 12.0 +580.95.05 +0.6.2 +MOVED, missing", said)

    def test_a_narrow_sheet_has_no_layout_of_a_phone(self, opened: Opened) -> None:
        page = opened(RUN, viewport=NARROW)
        driver = page.locator("#matrix th[data-key=driver]")
        expect(driver).to_be_hidden()
        page.emulate_media(media="print")
        expect(driver).to_be_visible()

    @pytest.mark.skipif(shutil.which("pdftotext") is None, reason="needs pdftotext: apt-get install poppler-utils")
    def test_a_finding_stays_with_the_first_step_of_its_remedy(self, opened: Opened, printed: Any) -> None:
        """A remedy longer than what is left of a sheet goes on overleaf, and the finding keeps its beginning."""
        page = opened(RUN)
        sheets = [printed(page, number) for number in range(1, 7)]
        begun = [sheet for sheet in sheets if re.search(r"^ *Remedy", sheet, re.MULTILINE)]
        assert len(begun) > 2
        for sheet in begun:
            lines = [line.strip() for line in sheet.splitlines() if line.strip()]
            for place, line in enumerate(lines):
                if line.startswith("Remedy"):
                    # Below it its first step, and above it, on the same sheet, what it mends.
                    assert lines[place + 1].startswith("1.")
                    assert place >= 2
        # Steps that stand whole on two sheets: the long remedy is broken between them.
        assert any(re.match(r"[2-9]\.", sheet.strip()) for sheet in sheets[1:])

    def test_what_needs_a_look_is_printed_and_all_on_request(self, opened: Opened) -> None:
        page = opened(RUN)
        page.emulate_media(media="print")
        well = row(page, mixed_fleet.name(0))
        expect(well).to_be_hidden()
        expect(row(page, EDITED)).to_be_visible()
        expect(row(page, mixed_fleet.name(23))).to_be_visible()
        expect(page.get_by_text("Without 25 hosts that are ok and without warnings.")).to_be_visible()
        page.emulate_media(media="screen")
        expect(well).to_be_visible()
        page.get_by_label("Print every host").check()
        page.emulate_media(media="print")
        expect(well).to_be_visible()
        page.emulate_media(media="screen")
        page.get_by_label("Print every host").uncheck()
        page.get_by_label("Host", exact=True).fill(mixed_fleet.name(0))
        page.emulate_media(media="print")
        expect(well).to_be_visible()
