"""The HTML page in Chromium: how the links of a host's GPUs are drawn, and hosts that lie."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect
from support import mixed_fleet, runs
from support.browser import NEEDED, Opened, chromium, look_at, names

from fleetcheck.facts.records import Device
from fleetcheck.report import html
from fleetcheck.rules.finding import Waived
from fleetcheck.run import Run

pytestmark = pytest.mark.skipif(chromium() is None, reason=NEEDED)

RUN = mixed_fleet.fleet(40)
EDITED, LOST = mixed_fleet.name(3), mixed_fleet.name(18)
ROWS = "#matrix tbody tr"
EVIL = "</script><script>window.harmed = 1</script><img src=x onerror='window.harmed = 1'>\x1b[31m\u202e\x00"


def box_of(links: dict[str, str], count: int, **more: Any) -> Run:
    return runs.run(runs.host("a", gpus=runs.gpus(count, links=links, **more)))


class TestTopology:
    def drawing(self, page: Page) -> tuple[list[str], list[str]]:
        figure = page.locator(".topology")
        figure.wait_for()
        return figure.locator(".way").all_text_contents(), figure.locator(".tile .name").all_text_contents()

    def test_a_pcie_box_is_boxes_in_boxes_and_a_table(self, opened: Opened) -> None:
        page = opened(RUN, f"#host={EDITED}")
        ways, tiles = self.drawing(page)
        pix, node = "PIX  one PCIe switch", "NODE  one NUMA node"
        assert ways == ["SYS  between NUMA nodes", node, pix, pix, node, pix, pix]
        assert tiles == [f"GPU {index}" for index in range(8)]
        page.get_by_text("Each pair as a table").click()
        rows = page.locator(".ways tbody tr")
        for index in range(8):
            cells = rows.nth(index).locator("td").all_inner_texts()
            expected = [
                "–" if index == other else mixed_fleet.way(min(index, other), max(index, other))
                for other in range(8)
            ]
            assert cells == expected
        label = page.get_by_role("img").get_attribute("aria-label")
        assert label == "Links of 28 pairs of GPUs: 4 PIX, 8 NODE, 16 SYS."

    def test_a_lost_gpu_is_shown_as_lost(self, opened: Opened) -> None:
        page = opened(RUN, f"#host={LOST}")
        _, tiles = self.drawing(page)
        assert len(tiles) == 8
        expect(page.locator(".tile.missing")).to_have_count(1)
        assert page.locator(".tile.missing text").all_text_contents() == ["lost GPU", "not listed", "0000:E1:00"]
        told = "Links of 21 pairs of GPUs: 3 PIX, 6 NODE, 12 SYS. One GPU is lost; its place was not measured."
        expect(page.locator(".topology figcaption")).to_have_text(told)

    @pytest.mark.parametrize(
        ("linked", "states", "told"),
        [
            (3, ["ok", "ok", "ok"], ""),
            (3, ["ok", "ok", "fault"], " One GPU is at fault."),
            (2, ["ok", "ok", "fault"], " One GPU is at fault; its place was not measured."),
            (2, ["ok", "ok", "missing", "missing"], " 2 GPUs are lost; their places were not measured."),
            (2, ["missing", "ok", "missing"], " 2 GPUs are lost; the place of one of them was not measured."),
            (3, ["fault", "ok", "ok", "missing"],
             " One GPU is lost; its place was not measured. One GPU is at fault."),
            (2, ["ok", "ok", "ok"], " The place of one GPU was not measured."),
            (2, ["ok", "ok", "ok", "ok"], " The places of 2 GPUs were not measured."),
            (0, ["ok", "fault"], " One GPU is at fault."),
        ],
    )  # fmt: skip
    def test_what_is_lost_and_what_was_not_measured_is_one_sentence(
        self, opened: Opened, linked: int, states: list[str], told: str
    ) -> None:
        links = {f"{low}-{high}": "PIX" for low, high in combinations(range(linked), 2)}
        devices = [Device.model_validate({"index": at, "state": state}) for at, state in enumerate(states)]
        page = opened(box_of(links, len(states), devices=devices), "#host=a")
        lead = f"Links of {len(links)} pair{'s' * (len(links) > 1)} of GPUs: {len(links)} PIX."
        lead = lead if links else "How the GPUs are linked is not known."
        expect(page.locator(".topology figcaption")).to_have_text(lead + told)

    def test_a_gpu_that_no_link_tells_of_stands_in_a_box_of_its_own(self, opened: Opened) -> None:
        """Beside the boxes, a reader would take where it is drawn for where it is."""
        inside = """(box) => [...document.querySelectorAll(".topology .tile")].filter((tile) => {
            const [outer, inner] = [box.getBoundingClientRect(), tile.getBoundingClientRect()];
            return outer.left <= inner.left && inner.right <= outer.right
                && outer.top <= inner.top && inner.bottom <= outer.bottom;
        }).map((tile) => tile.querySelector(".name").textContent)"""
        page = opened(RUN, f"#host={LOST}")
        assert self.drawing(page)[0][-1] == "Place not measured"
        apart = page.locator(".box.apart")
        assert apart.evaluate(inside) == ["lost GPU"]
        for box in page.locator(".box:not(.apart)").all():
            assert "lost GPU" not in box.evaluate(inside)
        links = {f"{low}-{high}": "PIX" for low, high in combinations(range(3), 2)}
        page = opened(box_of(links, 5), "#host=a")
        assert self.drawing(page)[0] == ["PIX  one PCIe switch", "Place not measured"]
        assert page.locator(".box.apart").evaluate(inside) == ["GPU 3", "GPU 4"]

    def test_nvlink_between_all_is_one_box(self, opened: Opened) -> None:
        links = {f"{low}-{high}": "NV18" for low, high in combinations(range(8), 2)}
        page = opened(box_of(links, 8), "#host=a")
        assert self.drawing(page)[0] == ["NV18  NVLink"]
        expect(page.locator(".box.NV")).to_have_count(1)

    def test_bridges_lie_within_the_ways_around_them(self, opened: Opened) -> None:
        links = {"0-1": "NV4", "2-3": "NV4", "0-2": "SYS", "0-3": "SYS", "1-2": "SYS", "1-3": "SYS"}
        page = opened(box_of(links, 4, p2p={"0-1": "OK", "0-2": "CNS"}), "#host=a")
        assert self.drawing(page)[0] == ["SYS  between NUMA nodes", "NV4  NVLink", "NV4  NVLink"]
        page.get_by_text("Each pair as a table").click()
        assert page.locator(".ways tbody tr").nth(0).locator("td").all_inner_texts() == [
            "–", "NV4", "SYS no P2P (CNS)", "SYS",
        ]  # fmt: skip

    def test_a_ring_is_told_to_be_no_whole(self, opened: Opened) -> None:
        links = {"0-1": "NV1", "1-2": "NV1", "2-3": "NV1", "0-3": "NV1", "0-2": "SYS", "1-3": "SYS"}
        page = opened(box_of(links, 4), "#host=a")
        assert self.drawing(page)[0] == ["NV1  NVLink, not every pair"]

    def test_what_is_not_known_is_not_drawn(self, opened: Opened) -> None:
        page = opened(box_of({}, 2), "#host=a")
        assert self.drawing(page) == ([], ["GPU 0", "GPU 1"])
        expect(page.locator(".box")).to_have_count(0)
        expect(page.locator(".topology figcaption")).to_have_text("How the GPUs are linked is not known.")
        expect(page.locator(".ways")).to_have_count(0)

    def test_odd_links_harm_nothing(self, opened: Opened) -> None:
        links = {"0-1": EVIL, "x-y": "SYS", "0-99": "constructor", "__proto__": "SYS", "1-1": "PIX", "1-0": "NODE"}
        page = opened(box_of(links, 2), "#host=a")
        assert len(self.drawing(page)[1]) >= 2
        assert page.evaluate("window.harmed") is None


class TestHostile:
    @pytest.mark.parametrize(
        "bad", [EVIL, "A" * 1_000_000, "__proto__", "constructor", "&lt;b&gt;", "#q=x&host=y", ""], ids=range(7)
    )
    def test_a_hostile_host_harms_nothing(self, opened: Opened, bad: str) -> None:
        gpus = runs.gpus(
            8,
            names=(bad,),
            driver=bad,
            compute_capability=(bad,),
            diagnostics=(bad,),
            links={"0-1": bad},
            p2p={bad: bad},
        )
        venvs = (runs.venv(bad, version=bad), runs.venv("/b", constants={bad: bad}))
        found = (
            runs.finding(
                "a", bad, venv=bad, gpu=bad, message=bad, expected=bad, seen={bad: [bad]}, remedy=(bad,),
                reference=bad,
            ),
            runs.finding("a", "other", cause=bad, message=bad),
            runs.finding("a", waived=Waived(reason=bad, until=bad)),
            runs.finding(None, bad, message=bad),
        )  # fmt: skip
        lies = runs.host("a", "findings", groups=(bad,), address=bad, gpus=gpus, venvs=venvs)
        odd = runs.host(f"b{bad[:200]}", "timeout", detail=bad, message=bad)
        page = opened(runs.run(lies, odd, findings=found))
        assert page.locator(ROWS).count() == 2
        look_at(page, "a")
        expect(page.locator("#host-facts .block").first).to_be_visible()
        page.get_by_role("button", name="Next host").click()
        expect(page.locator(".sentence")).to_contain_text("was not checked, timeout")
        page.keyboard.press("Escape")
        rule = page.get_by_role("combobox", name="Rule")
        rule.select_option(index=1)
        assert names(page) == ["a"]
        group = page.get_by_role("combobox", name="Group")
        rule.select_option(index=0)
        group.select_option(index=group.locator("option").count() - 1)
        assert names(page)
        assert page.evaluate("window.harmed") is None
        assert page.locator("img, iframe, object").count() == 0
        assert page.locator("script").count() == 3

    def test_the_policy_forbids_what_the_page_never_does(self, browser: Browser, tmp_path: Path) -> None:
        file = tmp_path / "page.html"
        file.write_text(html.render(RUN), "utf-8")
        page = browser.new_page()
        page.goto(file.as_uri())
        tried = page.evaluate("""() => {
            const told = [];
            try { document.body.innerHTML = "<b>x</b>"; told.push("markup"); }
            catch (error) { told.push(error.name); }
            const script = document.createElement("script");
            try { script.textContent = "window.harmed = 1"; document.body.append(script); told.push("script"); }
            catch (error) { told.push(error.name); }
            return [...told, window.harmed ?? null];
        }""")
        assert tried == ["TypeError", "TypeError", None]
        page.close()
