"""What nvidia-smi prints for people: its table, ``-L``, the ``-q`` text and XML, told from errors and noise.

None of them is asked for. Where one arrives instead of rows (a wrapper that drops its arguments), it is named, and
which GPUs it shows is taken from it: index, uuid, bus id, whole name, and the words of a fault. All else of them
changes its labels and its place with the releases (the banner at 610, the XML inside one DTD), and is not read.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from fleetcheck.facts import shape
from fleetcheck.facts.smi_messages import message
from fleetcheck.facts.smi_rows import LOST, UUID, Cell, Form, Row, bus_id, cell

WORDS: dict[Form, str] = {"table": "table for people", "list": "list (-L)", "text": "-q text", "xml": "XML"}
MOST = 256
LIST_GPU = re.compile(
    r"GPU\s+(\d{1,4}): (.{0,200}?)\s*\(UUID: (GPU-[0-9A-Fa-f]{8}-(?:[0-9A-Fa-f]{4}-){3}[0-9A-Fa-f]{12})\)"
)
LIST_MIG = re.compile(r"\s+MIG\s+(\S{1,40})\s+Device\s+(\d{1,3}):\s+\(UUID:\s+(MIG-[0-9A-Za-z/-]{1,80})\)")
_ADDRESS = r"[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7]"
_VERSION = r"\d{2,4}(?:\.\d{1,4}){1,3}"
_FRAME = re.compile(r"[|+].*[|+]")
_RULE = re.compile(r"[|+][-=+]{20,}[|+]")
_TABLE_GPU = re.compile(rf"\|\s*(\d{{1,4}})\s+(\S.{{0,80}}?)\s+(?:On|Off|N/A|ERR!)\s*\|\s*({_ADDRESS})\s.*\|")
_STAMP = re.compile(r"[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4}")
_BANNER = re.compile(rf"\b(?:Driver|KMD) Version:\s*({_VERSION})\b")
_TEXT_START = re.compile(r"=+NVSMI LOG=+")
_TEXT_GPU = re.compile(rf"GPU ({_ADDRESS})")
_PAIR = re.compile(r"\s*(\S[^:]{0,80}?)\s+: (.{0,200})")
_XML_GPU = re.compile(rf'<gpu id="({_ADDRESS})">')
_ELEMENT = re.compile(r"<([A-Za-z_]{1,60})>([^<]{0,200})</\1>")


@dataclass(slots=True)
class Shown:
    """What was found: the GPUs shown, the forms, the driver that they name, and the lines that are of none."""

    rows: list[Row] = field(default_factory=list)
    forms: list[Form] = field(default_factory=list)
    driver: str | None = None
    others: list[str] = field(default_factory=list)


def read(lines: Sequence[str], *, asked: bool) -> Shown:
    """Sort out the lines that are no rows. ``asked`` is whether columns were asked for, which no form has."""
    reader = _Reader(asked)
    for line in lines:
        reader.take(line)
    found = reader.shown
    if "table" in found.forms:
        found.others = [line for line in found.others if not _STAMP.fullmatch(line.strip())]
    return found


class _Reader:
    def __init__(self, asked: bool) -> None:
        self.shown = Shown()
        self.asked = asked
        self.inside: Form | None = None
        """Which of the forms of many lines has begun."""
        self.open = False
        """Whether lines are of the GPU that was shown last."""

    def take(self, line: str) -> None:
        bare = line.strip()
        if bare.startswith(("<?xml", "<nvidia_smi_log")):
            self.begin("xml")
        elif _TEXT_START.fullmatch(bare):
            self.begin("text")
        elif self.inside == "xml" and (bare.startswith("<") or message(bare).kind == "other"):
            self.xml(bare)
        elif _FRAME.fullmatch(bare):
            self.table(bare)
        elif LIST_GPU.fullmatch(bare) or LIST_MIG.fullmatch(line):
            self.listed(bare)
        elif self.inside == "text" and self.text(line):
            pass
        else:
            self.shown.others.append(line)

    def begin(self, form: Form) -> None:
        self.inside, self.open = form, False
        self.name(form)

    def name(self, form: Form) -> None:
        if form not in self.shown.forms:
            self.shown.forms.append(form)

    def table(self, line: str) -> None:
        self.name("table")
        gpu, banner = _TABLE_GPU.fullmatch(line), _BANNER.search(line)
        if gpu is not None:
            cut = gpu.group(2).endswith("...") or cell(gpu.group(2)).state != "value"
            self.add("table", int(gpu.group(1)), bus_id(gpu.group(3)), name=None if cut else gpu.group(2))
        elif banner is not None:
            self.shown.driver = self.shown.driver or banner.group(1)
        elif _RULE.fullmatch(line):
            self.open = False
        bad = re.search(rf"ERR!|{LOST.pattern}|GPU requires reset", line)
        if bad is not None:
            self.fault("table", bad.group(0), line)

    def listed(self, line: str) -> None:
        self.name("list")
        gpu = LIST_GPU.fullmatch(line)
        if gpu is not None:
            self.add("list", int(gpu.group(1)), None, uuid=gpu.group(3), name=gpu.group(2))

    def text(self, line: str) -> bool:
        gpu, pair = _TEXT_GPU.fullmatch(line), _PAIR.fullmatch(line)
        if gpu is not None:
            self.add("text", None, bus_id(gpu.group(1)))
        elif pair is not None:
            self.value(("Driver Version", "GPU UUID", "Product Name"), pair.group(1), pair.group(2), line)
        # Headings stand alone and indented; what stands alone at the margin is another line.
        return gpu is not None or pair is not None or (line[:1] == " " and message(line).kind == "other")

    def xml(self, line: str) -> None:
        gpu, element = _XML_GPU.search(line), _ELEMENT.fullmatch(line)
        if gpu is not None:
            self.add("xml", None, bus_id(gpu.group(1)))
        elif element is not None:
            self.value(("driver_version", "uuid", "product_name"), element.group(1), element.group(2), line)
        elif line.startswith("</gpu>"):
            self.open = False
        elif line.startswith("</nvidia_smi_log"):
            self.inside = None

    def value(self, keys: tuple[str, str, str], key: str, text: str, line: str) -> None:
        """Take a value; ``keys`` are the form's words for the driver, the uuid and the product."""
        driver, uuid, product = keys
        typed = cell(text)
        if key == driver and re.fullmatch(_VERSION, text):
            self.shown.driver = self.shown.driver or text
        elif key == uuid and UUID.fullmatch(text):
            self.change(uuid=text)
        elif key == product and typed.state == "value":
            self.change(name=text)
        elif typed.state == "fault":
            self.fault(key, typed.said, line)

    def add(
        self,
        form: Form,
        index: int | None,
        address: str | None,
        *,
        uuid: str | None = None,
        name: str | None = None,
    ) -> None:
        self.open = len(self.shown.rows) < MOST
        if self.open:
            cells = {} if name is None else {"name": Cell("value", name, name)}
            self.shown.rows.append(Row(index, uuid, address, cells, whole=not self.asked, form=form))

    def change(self, *, uuid: str | None = None, name: str | None = None) -> None:
        if self.open:
            row = self.shown.rows[-1]
            cells = row.cells if name is None else {**row.cells, "name": Cell("value", name, name)}
            self.shown.rows[-1] = Row(row.index, uuid or row.uuid, row.bus_id, cells, row.whole, row.form)

    def fault(self, key: str, said: str, line: str) -> None:
        if not self.open:
            self.shown.others.append(line)  # of no GPU that is shown, and said all the same
            return
        row = self.shown.rows[-1]
        if not row.faults:
            cells = {**row.cells, shape.line(key, 60) or "": Cell("fault", said)}
            self.shown.rows[-1] = Row(row.index, row.uuid, row.bus_id, cells, row.whole, row.form)
